"""The log-derivatives O of a network for many samples, as factors: their products with vectors, rows, Gram matrix.

For a parameter θ and a component f of ln ψ (its real part, and in complex mode its imaginary part as well), a *row* is
what :func:`jax.vjp` gives for one sample: G with df = Re(G·dθ). So for a real parameter G is ∂f/∂θ, and for a complex
one ∂f/∂Re θ − i ∂f/∂Im θ. A holomorphic ln ψ has one complex row, G = ∂ ln ψ/∂θ, which stands for both components.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ferroket.natural_gradient.structure import Network, Product

MEMORY = 1 << 28
"""How many bytes the activations of the samples that are differentiated at once may take, and the rows of one
parameter, where nobody asks for something else."""

_TILE = 1 << 19
"""How many elements of the Gram matrix are computed at once: some megabytes, which stay in a processor's cache."""


@partial(jax.tree_util.register_dataclass, data_fields=["x", "delta"], meta_fields=["product"])
@dataclass(frozen=True)
class Factors:
    """Rows that are sums of outer products: ``G = Σ_p x_p ⊗ δ_p``."""

    x: jax.Array
    """``(Ns, B, P, I)``."""
    delta: jax.Array
    """``(Ns, C, B, P, O)``."""
    product: Product
    """How ``(B, I, O)`` and the parameter belong together."""

    @property
    def n_elements(self) -> int:
        """Of a row."""
        return self.x.shape[1] * self.x.shape[3] * self.delta.shape[4]

    def rows(self) -> jax.Array:
        """``(Ns, C, B, I, O)``."""
        return jnp.einsum("sbpi,scbpo->scbio", self.x, self.delta)


@partial(jax.tree_util.register_dataclass, data_fields=["factors", "rows"], meta_fields=["network", "is_holomorphic"])
@dataclass(frozen=True)
class LogDerivatives:
    """The rows of all parameters. Each is in one of the two dictionaries, by its place among the leaves."""

    factors: dict[int, Factors]
    rows: dict[int, jax.Array]
    """``(Ns, C, *parameter)``."""
    network: Network = field(repr=False)
    is_holomorphic: bool

    def dot(self, vector: Sequence[jax.Array]) -> jax.Array:
        """O·v: the change of each component along a vector of parameters, ``(Ns, C)``."""
        terms = []
        for leaf, rows in self.rows.items():
            terms.append(self._part(jnp.tensordot(rows, vector[leaf], vector[leaf].ndim)))
        for leaf, factors in self.factors.items():
            direction = _real_if(factors.product.view(vector[leaf]), factors)
            y = jnp.einsum("sbpi,bio->sbpo", factors.x, direction)
            terms.append(self._part(jnp.einsum("sbpo,scbpo->sc", y, factors.delta)))
        return sum(terms[1:], start=terms[0])

    def adjoint_dot(self, weights: jax.Array) -> list[jax.Array]:
        """Oᵀ·w for real weights ``(Ns, C)`` of the components, or O†·w for complex ones of a holomorphic ln ψ."""
        results = {}
        w = weights.conj()
        for leaf, rows in self.rows.items():
            results[leaf] = jnp.tensordot(w, rows, ((0, 1), (0, 1)))
        for leaf, factors in self.factors.items():
            total = jnp.einsum("sbpi,scbpo->bio", factors.x, factors.delta * w[:, :, None, None, None])
            results[leaf] = _to_parameter(factors.product, self.network.leaves[leaf], total)
        return [_like(results[place].conj(), leaf) for place, leaf in enumerate(self.network.leaves)]

    def dense(self) -> list[jax.Array]:
        """The rows of each parameter, ``(Ns, C, *parameter)``."""
        rows = dict(self.rows)
        for leaf, factors in self.factors.items():
            back = partial(_to_parameter, factors.product, self.network.leaves[leaf])
            rows[leaf] = jax.vmap(jax.vmap(back))(factors.rows())
        return [rows[place] for place in range(len(self.network.leaves))]

    def _part(self, values: jax.Array) -> jax.Array:
        return values if self.is_holomorphic else values.real


def _like(array: jax.Array, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    if not jnp.issubdtype(leaf.dtype, jnp.complexfloating):
        array = array.real
    return array.astype(leaf.dtype)


def _real_if(array: jax.Array, factors: Factors) -> jax.Array:
    """A parameter that was cast to complex numbers, if the factors of its rows are real."""
    is_real = not (jnp.iscomplexobj(factors.x) or jnp.iscomplexobj(factors.delta))
    return array.real if is_real else array


def _to_parameter(product: Product, leaf: jax.ShapeDtypeStruct, total: jax.Array) -> jax.Array:
    """From ``(B, I, O)`` to the shape of the parameter."""
    shape = jax.eval_shape(product.view, leaf)
    (result,) = jax.linear_transpose(product.view, leaf)(total.astype(shape.dtype))
    return result


# How they are made


def components(network: Network, mode: str) -> tuple[int, bool]:
    """How many rows a sample has, and whether one complex row stands for both components."""
    if mode == "real":
        return 1, False
    return (1, True) if network.is_holomorphic else (2, False)


def log_derivatives(
    network: Network, mode: str, chunk_size: int | None, leaves: Sequence[jax.Array], state: Any, samples: jax.Array
) -> LogDerivatives:
    """Differentiates a network for each sample.

    Args:
        network: Of :func:`ferroket.natural_gradient.structure.read`.
        mode: ``real`` for the real part of ln ψ, ``complex`` for both.
        chunk_size: How many samples are differentiated at once.
        leaves: The parameters.
        state: Other collections of variables.
        samples: ``(Ns, N)``.
    """
    n_components, is_holomorphic = components(network, mode)
    products = network.products
    direct = sorted(network.direct)
    taps = [jnp.zeros((*product.lengths, *product.y.shape), product.y.dtype) for product in products]

    def one(x: jax.Array) -> Any:
        def function(taps: Sequence[jax.Array], direct_leaves: Sequence[jax.Array]) -> Any:
            args = list(leaves)
            for place, leaf in zip(direct, direct_leaves, strict=True):
                args[place] = leaf
            log_psi, operands = network(taps, args, state, x)
            return (log_psi.real if mode == "real" else log_psi), operands

        log_psi, pullback, operands = jax.vjp(function, taps, [leaves[place] for place in direct], has_aux=True)
        cotangents = jnp.ones(1, log_psi.dtype)
        if n_components > 1:
            second = -1j if jnp.iscomplexobj(log_psi) else 0.0
            cotangents = jnp.asarray([1, second], log_psi.dtype)
        deltas, rows = jax.vmap(pullback)(cotangents)
        return operands, deltas, rows

    batch = min(len(samples), chunk_size or max(1, MEMORY // bytes_of_a_sample(network)))
    if batch == len(samples):
        operands, deltas, rows = jax.vmap(one)(samples)
    else:
        operands, deltas, rows = jax.lax.map(one, samples, batch_size=batch)
    found = [
        Factors(product.group(x, 1), product.taps_of(delta, 2), product)
        for product, x, delta in zip(products, operands, deltas, strict=True)
    ]
    return _collect(network, is_holomorphic, found, dict(zip(direct, rows, strict=True)))


def bytes_of_a_sample(network: Network) -> int:
    """What the values inside of the network take for one sample, and as much again for their derivatives."""
    outputs = (v.aval for eqn in network.jaxpr.jaxpr.eqns for v in eqn.outvars)
    sizes = (math.prod(aval.shape) * aval.dtype.itemsize for aval in outputs if hasattr(aval, "shape"))
    direct = (math.prod(network.leaves[place].shape) * network.leaves[place].dtype.itemsize for place in network.direct)
    return max(1, 2 * (sum(sizes) + sum(direct)))


def _collect(
    network: Network, is_holomorphic: bool, found: Sequence[Factors], rows: dict[int, jax.Array]
) -> LogDerivatives:
    """One entry for each parameter: products of one layout have their positions together, others are added as rows."""
    of_leaf: dict[int, list[Factors]] = {}
    for factors in found:
        leaf = factors.product.leaf
        is_complex = jnp.issubdtype(network.leaves[leaf].dtype, jnp.complexfloating)
        of_leaf.setdefault(leaf, []).append(factors if is_complex else _of_real(factors))
    kept = {}
    for leaf, parts in of_leaf.items():
        shape = network.leaves[leaf]
        if leaf not in rows and len({part.product.layout for part in parts}) == 1:
            x = jnp.concatenate([part.x for part in parts], axis=2)
            delta = jnp.concatenate([part.delta for part in parts], axis=3)
            kept[leaf] = Factors(x, delta, parts[0].product)
            continue
        for part in parts:
            back = jax.vmap(jax.vmap(partial(_to_parameter, part.product, shape)))
            more = back(part.rows())
            rows[leaf] = rows[leaf] + more if leaf in rows else more
    n_rows = {len(array) for array in jax.tree.leaves((kept, rows))}
    if len(n_rows) > 1:
        raise AssertionError(n_rows)
    for place, leaf in enumerate(network.leaves):
        if place not in kept and place not in rows:  # ln ψ doesn't depend on it
            shape = jax.tree.leaves((kept, rows))[0]
            n_components = _n_components(kept, rows)
            rows[place] = jnp.zeros((len(shape), n_components, *leaf.shape), leaf.dtype)
    return LogDerivatives(kept, rows, network, is_holomorphic)


def _n_components(kept: dict[int, Factors], rows: dict[int, jax.Array]) -> int:
    for factors in kept.values():
        return factors.delta.shape[1]
    return next(iter(rows.values())).shape[1]


def _of_real(factors: Factors) -> Factors:
    """Factors of a real parameter in a complex product, as real ones: Re(x δ) = Re x Re δ − Im x Im δ."""
    x, delta = factors.x, factors.delta
    if jnp.iscomplexobj(x) and jnp.iscomplexobj(delta):
        x = jnp.concatenate([x.real, -x.imag], axis=2)
        delta = jnp.concatenate([delta.real, delta.imag], axis=3)
    return Factors(x.real, delta.real, factors.product)


# The Gram matrix


def gram(rows: LogDerivatives, columns: LogDerivatives) -> jax.Array:
    """Products of the rows of some samples with those of others, each without a mean over the latter.

    A vector that is subtracted from all rows changes the Gram matrix, but not what is left of it when its own means
    are subtracted; so where it is cheap, or precision needs it, means of rows are subtracted before.

    Returns:
        ``(Ns, C, Ns', C)``: Re(G·G'*), or G·G'* for a holomorphic ln ψ.
    """
    total = None
    for leaf in columns.factors:
        term = _gram_of_factors(rows.factors[leaf], columns.factors[leaf], columns.is_holomorphic)
        total = term if total is None else total + term
        # One parameter after the other, so that no two need their memory at once.
        total, rows, columns = jax.lax.optimization_barrier((total, rows, columns))
    if columns.rows:
        flat = [
            _gram_of_rows(a, b, columns.is_holomorphic) for a, b in _small_rows(list(rows.rows.items()), columns.rows)
        ]
        for term in flat:
            total = term if total is None else total + term
    assert total is not None
    return total


def _small_rows(rows: list[tuple[int, jax.Array]], columns: dict[int, jax.Array]) -> Any:
    """Rows of all parameters that have no factors, put together by their types."""
    by_type: dict[Any, list[int]] = {}
    for leaf, array in rows:
        by_type.setdefault(array.dtype, []).append(leaf)
    of = dict(rows)
    for leaves in by_type.values():
        yield tuple(
            jnp.concatenate([side[leaf].reshape(*side[leaf].shape[:2], -1) for leaf in leaves], axis=-1)
            for side in (of, columns)
        )


def _gram_of_rows(rows: jax.Array, columns: jax.Array, is_holomorphic: bool) -> jax.Array:
    """Of ``(Ns, C, n)`` and ``(Ns', C, n)``."""
    mean = columns.mean(axis=0)
    rows, columns = rows - mean, columns - mean
    if not is_holomorphic:
        rows, columns = _as_real(rows), _as_real(columns)
    return jnp.einsum("scn,tdn->sctd", rows, columns.conj())


def _as_real(array: jax.Array) -> jax.Array:
    """Complex numbers as pairs, along the last axis: products of pairs are Re(a b*)."""
    if not jnp.iscomplexobj(array):
        return array
    return jnp.concatenate([array.real, array.imag], axis=-1)


@dataclass(frozen=True)
class Cost:
    """What the Gram matrix of one parameter costs for a sample: multiplications with additions."""

    by_factors: int
    """B·P²·(I + C²·(O + 2)) for each other sample."""
    by_rows: int
    """C²·B·I·O for each other sample, and P·C·B·I·O to write the row down."""

    @property
    def prefers_rows(self) -> bool:
        """Whether rows that are written down take fewer operations than their factors."""
        return self.by_rows < self.by_factors


def cost_of(n_samples: int, n_components: int, parts: int, positions: int, n_in: int, n_out: int) -> Cost:
    """What the factors of one parameter cost, for ``x (B, P, I)`` and ``δ (C, B, P, O)``."""
    by_factors = n_samples * parts * positions**2 * (n_in + n_components**2 * (n_out + 2))
    by_rows = (n_samples * n_components + positions) * n_components * parts * n_in * n_out
    return Cost(by_factors, by_rows)


def _gram_of_factors(rows: Factors, columns: Factors, is_holomorphic: bool) -> jax.Array:
    n_samples = len(columns.x)
    n_components, n_parts, n_positions, n_out = columns.delta.shape[1:]
    if cost_of(n_samples, n_components, n_parts, n_positions, columns.x.shape[-1], n_out).prefers_rows:
        n_bytes = n_samples * columns.delta.shape[1] * columns.n_elements * columns.delta.dtype.itemsize
        n_blocks = min(-(-n_bytes // MEMORY), columns.delta.shape[4])
        blocks = zip(_blocks(rows, n_blocks), _blocks(columns, n_blocks), strict=True)
        terms = (_gram_of_rows(_flat(a.rows()), _flat(b.rows()), is_holomorphic) for a, b in blocks)
        return sum(terms, start=jnp.zeros((), columns.delta.real.dtype))
    if jnp.finfo(columns.delta.dtype).bits < 64:  # noqa: PLR2004
        mean = columns.x.mean(axis=0), columns.delta.mean(axis=0)
        rows, columns = _without_mean(rows, *mean), _without_mean(columns, *mean)
    batch = max(1, _TILE // (n_samples * n_parts * n_positions**2))
    of_one = partial(_gram_of_one, columns=columns, is_holomorphic=is_holomorphic)
    if batch >= len(rows.x):
        return jax.vmap(of_one)(rows.x, rows.delta)
    return jax.lax.map(lambda row: of_one(*row), (rows.x, rows.delta), batch_size=batch)


def _blocks(factors: Factors, n_blocks: int) -> list[Factors]:
    return [Factors(factors.x, delta, factors.product) for delta in jnp.array_split(factors.delta, n_blocks, axis=4)]


def _flat(rows: jax.Array) -> jax.Array:
    return rows.reshape(*rows.shape[:2], -1)


def _without_mean(factors: Factors, x_mean: jax.Array, delta_mean: jax.Array) -> Factors:
    """Outer products less that of the means, x ⊗ (δ − δ̄) + (x − x̄) ⊗ δ̄: what small numbers of 32 bits need."""
    delta = factors.delta - delta_mean
    x = jnp.concatenate([factors.x, factors.x - x_mean], axis=2)
    delta = jnp.concatenate([delta, jnp.broadcast_to(delta_mean, delta.shape)], axis=3)
    return Factors(x, delta, factors.product)


def _gram_of_one(x: jax.Array, delta: jax.Array, columns: Factors, is_holomorphic: bool) -> jax.Array:
    """The products of one sample's row with those of others: ``(C, Ns', C)``."""
    other_x, other_delta = columns.x, columns.delta
    if not is_holomorphic and not jnp.iscomplexobj(x):
        delta, other_delta = _as_real(delta), _as_real(other_delta)
    of_x = jnp.einsum("bpi,tbqi->tbpq", x, other_x.conj())
    of_delta = jnp.einsum("cbpo,tdbqo->ctdbpq", delta, other_delta.conj())
    if of_x.shape[1:] == (1, 1, 1):
        total = of_x[None, :, None, 0, 0, 0] * of_delta[..., 0, 0, 0]
    else:
        total = jnp.einsum("tbpq,ctdbpq->ctd", of_x, of_delta)
    return total if is_holomorphic else total.real
