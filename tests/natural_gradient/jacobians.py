"""Log-derivatives by JAX's Jacobian, by the real and imaginary parts of the parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
import numpy as np

from ferroket.natural_gradient.gram import gram
from ferroket.natural_gradient.log_derivatives import LogDerivatives, by_xla, leaves_of, log_derivatives
from ferroket.natural_gradient.structure import Network, read

LogPsi = Callable[[Any, jax.Array], jax.Array]


def names(parameters: Any) -> list[str]:
    """Of the parameters, in the order of their leaves."""
    paths = jax.tree_util.tree_flatten_with_path(parameters)[0]
    return ["/".join(str(getattr(key, "key", key)) for key in path) for path, _ in paths]


def network_of(log_psi: LogPsi, variables: Any, samples: jax.Array) -> Network:
    """What is read from the log-amplitude of a model."""
    state = {name: value for name, value in variables.items() if name != "params"}
    return read(log_psi, variables["params"], state, samples[0])


def by_jacobian(
    log_psi: LogPsi, variables: Any, samples: jax.Array, mode: str, jacobian: Any = jax.jacrev
) -> list[jax.Array]:
    """The rows of each parameter, ``(Ns, C, *parameter)``: G with df = Re(G dθ)."""
    state = {name: value for name, value in variables.items() if name != "params"}
    real, restore = nkjax.tree_to_real(variables["params"])

    def components(real: Any) -> jax.Array:
        values = log_psi({"params": restore(real), **state}, samples)
        return jnp.stack([values.real, values.imag][: 2 if mode == "complex" else 1], axis=-1)

    by_real, by_imag = _parts(jacobian(components)(real), variables["params"])
    return [a if b is None else a - 1j * b for a, b in zip(by_real, by_imag, strict=True)]


def _parts(split: Any, parameters: Any) -> tuple[list[Any], list[Any]]:
    """The derivatives by the real parts, and by the imaginary ones where there are some."""
    leaves = jax.tree.leaves(parameters)
    is_complex = [jnp.iscomplexobj(leaf) for leaf in leaves]
    if not any(is_complex):
        found = jax.tree.leaves(split)
        return found, [None] * len(found)
    real, imag = (jax.tree.leaves(split[part], is_leaf=lambda a: a is None) for part in (0, 1))
    return real, [b if has else None for b, has in zip(imag, is_complex, strict=True)]


@dataclass(frozen=True)
class Found:
    """What :func:`compare` has compared."""

    made: LogDerivatives
    names: list[str]

    @property
    def with_rows(self) -> set[str]:
        """Of the factors those whose rows are smaller."""
        network, found = self.made.network, set()
        for place in self.made.rows:
            layouts = {product.layout for product in network.products if place in leaves_of(product)}
            if len(layouts) == 1 and place not in network.direct:
                found.add(self.names[place])
        return found

    @property
    def factors(self) -> set[str]:
        return {self.names[place] for place in self.made.factors} | self.with_rows

    @property
    def biases(self) -> set[str]:
        return {self.names[part.bias.leaf] for part in self.made.factors.values() if part.bias is not None}

    @property
    def pairs(self) -> set[str]:
        return {self.names[place] for place in self.made.pairs}

    @property
    def rows(self) -> set[str]:
        return {self.names[place] for place in self.made.rows} - self.with_rows


def compare(
    log_psi: LogPsi,
    variables: Any,
    samples: jax.Array,
    mode: str,
    chunk_size: int | None = None,
    rtol: float = 1e-10,
    jacobian: Any = jax.jacrev,
) -> Found:
    """Holds rows, Gram matrix, and products with vectors against those of the Jacobian."""
    parameters = variables["params"]
    state = {name: value for name, value in variables.items() if name != "params"}
    rng = np.random.default_rng(8)
    weights = jnp.asarray(rng.normal(size=(len(samples), 2 if mode == "complex" else 1)))
    vector = jax.tree.map(lambda leaf: _normal(rng, leaf), parameters)

    @jax.jit
    def evaluate(variables: Any, vector: Any, weights: jax.Array, samples: jax.Array) -> Any:
        parameters = variables["params"]
        network = read(log_psi, parameters, state, samples[0])
        subject = network, mode, chunk_size, jax.tree.leaves(parameters), state, samples
        made, of_xla = log_derivatives(*subject), by_xla(*subject)
        if made.is_holomorphic:
            weights = weights[:, :1] + 1j * weights[:, 1:]
        elif network.is_real:
            weights = weights[:, :1]
        results = made.dense(), of_xla.dense(), made.dot(jax.tree.leaves(vector)), made.adjoint_dot(weights)
        leaves = jax.tree.leaves(parameters)
        taps = [jnp.zeros((*product.lengths, *product.y.shape), product.y.dtype) for product in network.products]
        values = jax.vmap(lambda x: network(taps, leaves, state, x)[0])(samples)
        return (
            made,
            (values, *results, gram(made, made)),
            log_psi(variables, samples),
            by_jacobian(log_psi, variables, samples, mode, jacobian),
        )

    made, (values, rows, of_xla, along, back, matrix), log_values, expected = evaluate(
        variables, vector, weights, samples
    )
    close(values, log_values, rtol)
    assert values.dtype == log_values.dtype
    is_complex = made.is_holomorphic
    if made.network.is_real:
        assert not any(b[:, 1:].any() for b in expected)
        expected, weights = [b[:, :1] for b in expected], weights[:, :1]
    found = Found(made, names(parameters))
    assert sorted([*found.factors, *found.biases, *found.pairs, *found.rows]) == sorted(found.names)

    for leaf, *both, b in zip(jax.tree.leaves(parameters), rows, of_xla, expected, strict=True):
        for a in both:
            close(jnp.concatenate([a, -1j * a], axis=1) if is_complex else a, b, rtol)
            assert a.dtype == leaf.dtype
    leaves = zip(expected, jax.tree.leaves(vector), strict=True)
    change = sum(jnp.tensordot(b, v, v.ndim).real for b, v in leaves)
    close(jnp.concatenate([along.real, along.imag], axis=1) if is_complex else along, change, rtol)
    for leaf, a, b in zip(jax.tree.leaves(parameters), back, expected, strict=True):
        close(a, jnp.tensordot(weights, b.conj(), ((0, 1), (0, 1))), rtol)
        assert a.dtype == leaf.dtype
    flat = jnp.concatenate([b.reshape(*b.shape[:2], -1) for b in expected], axis=-1)
    products = jnp.einsum("scn,tdn->sctd", flat, flat.conj()).real
    close(centred(_of_both(matrix) if is_complex else matrix), centred(products), rtol)
    return found


def _normal(rng: np.random.Generator, leaf: jax.Array) -> jax.Array:
    numbers = rng.normal(size=leaf.shape) + (1j * rng.normal(size=leaf.shape) if jnp.iscomplexobj(leaf) else 0)
    return jnp.asarray(numbers.astype(leaf.dtype))


def _of_both(matrix: jax.Array) -> jax.Array:
    """The products of both components, from those of one complex row."""
    a = matrix[:, 0, :, 0]
    return jnp.stack([jnp.stack([a.real, -a.imag], -1), jnp.stack([a.imag, a.real], -1)], axis=1)


def centred(matrix: jax.Array) -> jax.Array:
    """What is left without the means over samples."""
    matrix = matrix - matrix.mean(axis=0, keepdims=True)
    return matrix - matrix.mean(axis=2, keepdims=True)


def close(found: Any, expected: Any, rtol: float) -> None:
    """Equal in shape, and up to a part of the largest number."""
    assert found.shape == expected.shape
    atol = rtol * max(1e-3, float(jnp.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
