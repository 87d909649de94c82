"""First layers that are sums over the sites: that they are found, and that the network is what is made of them."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

from ferroket.ansatz import first_layer
from ferroket.bench import models
from ferroket.network import structure
from support.other_frameworks import FRAMEWORKS
from support.variational_states import random_like

SHAPE = (4, 4)
N = 16
HILBERT = nk.hilbert.Spin(0.5, N)


class Embedding(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Embed(2, 4, param_dtype=float)(((x + 1) // 2).astype(int))
        return jnp.tanh(nn.Dense(5, param_dtype=float)(x.reshape(x.shape[0], -1))).sum(axis=-1)


class OneHot(nn.Module):
    """With a complex layer, and with what uses σ beside it."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.nn.one_hot((x > 0).astype(int), 2, dtype=float).reshape(x.shape[0], -1)
        y = nk.nn.activation.log_cosh(nn.Dense(5, param_dtype=complex)(y)).sum(axis=-1)
        return y + jnp.where(x[..., 0] > 0, 0.3, x[..., 1] * x[..., 2])


class Residual(nn.Module):
    """Sums that several equations use, and a layer of scaled ones."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Dense(6, param_dtype=float)(x.astype(float) / 2) * 0.7
        y = y + nn.relu(nn.Dense(6, param_dtype=float)(nn.LayerNorm(param_dtype=float)(y)))
        return y.sum(axis=-1)


class Products(nn.Module):
    """What is neither a sum over the sites nor a function of one is the rest's."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        pairs = (x * jnp.roll(x, 1, axis=-1)).astype(float)
        return (
            nn.Dense(3, param_dtype=float)(pairs).sum(axis=-1) + nn.Dense(1, param_dtype=float)(x.astype(float))[..., 0]
        )


# The network, how many sums its first layer has, and how many products with matrices the rest has less.
NETWORKS = {
    "MLP": (models.MLP((6, 5)), 6, 1),
    "ResCNN": (models.ResCNN(SHAPE), 64, 0),
    "GCNN": (models.gcnn(SHAPE), 64, 1),
    "ViT": (models.ViT(SHAPE), 64, 0),
    "embedding": (Embedding(), 5, 1),
    "one-hot": (OneHot(), 10, 1),
    "residual": (Residual(), 6, 1),
    "products": (Products(), 1, 1),
    "RBM": (nk.models.RBM(alpha=2), 33, 2),
    "RBMModPhase": (nk.models.RBMModPhase(), 32, 2),
    "ARNNDense": (nk.models.ARNNDense(hilbert=HILBERT, layers=2, features=4), 64, 1),
    "single": (nk.models.MLP(hidden_dims=(6,), param_dtype=np.float32), 6, 1),
    "complex": (nk.models.MLP(hidden_dims=(6,), param_dtype=complex), 12, 1),
}


def of(model: Any) -> tuple[Any, Any]:
    """A network as a function of variables and configurations, and its variables."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, N), np.int8))
    return model.apply, random_like(shapes, 0.3)


def configurations(n: int) -> np.ndarray:
    return np.random.default_rng(3).choice([-1, 1], size=(n, N)).astype(np.int8)


def n_products(function: Any, *args: Any) -> int:
    text: str = jax.jit(function).lower(*args).compile().as_text()
    return text.count(" dot(") + text.count("__onednn$matmul") + text.count("__ynn_fusion")


@pytest.mark.quick("MLP", "embedding", "one-hot", "residual", "products", "complex")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_network_is_what_the_rest_makes_of_the_sums(name: str) -> None:
    model, width, fewer = NETWORKS[name]
    apply, variables = of(model)
    x = configurations(7)
    found = first_layer.read(apply, variables, x[0])
    assert found is not None
    assert found.width == width
    sums, rest = jax.vmap(found.sums, (None, 0)), jax.vmap(found.rest, (None, 0, 0))
    expected = apply(variables, x)
    precision = 1e-5 if name == "single" else 1e-13
    np.testing.assert_allclose(rest(variables, x, sums(variables, x)), expected, rtol=precision, atol=precision)
    # Two sites change what each of them does.
    one, other, both = x.copy(), x.copy(), x.copy()
    one[:, 3] *= -1
    other[:, 7] *= -1
    both[:, [3, 7]] *= -1
    of_each = [sums(variables, which) for which in (x, one, other, both)]
    np.testing.assert_allclose(of_each[3], of_each[1] + of_each[2] - of_each[0], rtol=precision, atol=10 * precision)
    assert not np.allclose(of_each[3], of_each[0])
    here = sums(variables, x)
    assert n_products(apply, variables, x) - n_products(rest, variables, x, here) >= fewer


@pytest.mark.parametrize("make", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_every_framework(make: Any) -> None:
    state = nk.vqs.MCState(nk.sampler.MetropolisLocal(HILBERT), make(N), n_samples=16)
    found = first_layer.read(state._apply_fun, state.variables, configurations(1)[0])
    assert found is not None
    assert found.width == 4


def test_networks_without_one() -> None:
    def loop(_: Any, x: jax.Array) -> jax.Array:
        h, _ = jax.lax.scan(lambda h, site: (jnp.tanh(h + site), None), jnp.zeros(len(x)), x.T.astype(float))
        return h

    def products(_: Any, x: jax.Array) -> jax.Array:
        return (x[:, :-1] * x[:, 1:]).astype(float).sum(axis=-1)

    def wide(_: Any, x: jax.Array) -> jax.Array:
        return jnp.tanh(x.astype(float) @ jnp.ones((N, 5000))).sum(axis=-1)

    for function in (loop, products, wide):
        assert first_layer.read(function, {}, configurations(1)[0]) is None


def is_separable(log_psi: Any, variables: Any, x: np.ndarray) -> bool:
    """Whether what is found of a network is a first layer; True where nothing is found."""
    found = first_layer.read(log_psi, variables, x[0])
    if found is None:
        return True
    sums = jax.vmap(found.sums, (None, 0))
    of_each = []
    for sites in ([], [3], [4], [3, 4]):
        of_each.append(sums(variables, x * np.where(np.isin(np.arange(N), sites), -1, 1).astype(x.dtype)))
    rest = jax.vmap(found.rest, (None, 0, 0))(variables, x, of_each[0])
    is_network = np.allclose(rest, log_psi(variables, x), rtol=1e-12, atol=1e-12)
    return is_network and np.allclose(of_each[3] + of_each[0], of_each[1] + of_each[2], rtol=1e-12, atol=1e-12)


def _shifted(x: jax.Array, by: int, length: int) -> jax.Array:
    """σ behind some zeros, and others behind it."""
    ends = [jnp.zeros((len(x), zeros), x.dtype) for zeros in (by, length - by)]
    return jnp.concatenate([ends[0], x, ends[1]], axis=-1)


ORDERS = {
    "beside zeros": (lambda x: _shifted(x, 1, 3), lambda x: _shifted(x, 2, 3)),
    "padded": (lambda x: jnp.pad(x, ((0, 0), (1, 3))), lambda x: jnp.pad(x, ((0, 0), (2, 2)))),
    "interior padding": tuple(
        lambda x, low=low: jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (low, -1 - low, 1)]) for low in (0, -1)
    ),
    "rolled": (lambda x: jnp.roll(x, 1, axis=-1), lambda x: jnp.roll(x, 2, axis=-1)),
    "sliced": (lambda x: x[:, 1:], lambda x: x[:, :-1]),
    "reversed": (lambda x: x[:, ::-1], lambda x: x),
    "in steps": (lambda x: x[:, ::2], lambda x: x[:, 1::2]),
    "gathered": (lambda x: x[:, np.arange(N) // 2], lambda x: x[:, np.arange(N) // 2 + 1]),
    "closed over": (lambda x: x[:, jnp.arange(N)], lambda x: x[:, jnp.roll(jnp.arange(N), 1)]),
    "turned": (lambda x: jnp.rot90(x.reshape(-1, 4, 4), 1, (1, 2)), lambda x: x.reshape(-1, 4, 4)),
    "at places of σ": (lambda x: jnp.take_along_axis(x, (x > 0) * 3 + 1, axis=-1), lambda x: x),
    "sorted": (lambda x: jnp.sort(x, axis=-1), lambda x: x),
}
"""Two orders of the sites each, and of numbers beside them."""


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("combine", [jnp.multiply, jnp.equal, jnp.maximum], ids=["product", "equal", "maximum"])
def test_functions_of_two_sites_are_none_of_one(name: str, combine: Any) -> None:
    """Whatever moves the sites: f(σ_i, σ_j) is no sum over the sites."""
    one, other = ORDERS[name]

    def log_psi(variables: Any, x: jax.Array) -> jax.Array:
        y = combine(one(x), other(x)).astype(float).reshape(len(x), -1)
        return jnp.tanh(y @ variables[: y.shape[1]]).sum(axis=-1)

    variables = jnp.asarray(np.random.default_rng(1).normal(size=(2 * N, 3)))
    assert is_separable(log_psi, variables, configurations(9))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_sums_of_few_bits_are_not_updated(dtype: Any) -> None:
    """Also not where longer numbers are made of them."""

    def log_psi(variables: Any, x: jax.Array) -> jax.Array:
        y = (x.astype(dtype) @ variables.astype(dtype)).astype(np.float32)
        return jnp.tanh(y).sum(axis=-1)

    variables = jnp.asarray(np.random.default_rng(1).normal(size=(N, 3)), np.float32)
    found = first_layer.read(log_psi, variables, configurations(1)[0])
    assert found is None or is_separable(log_psi, variables, configurations(9))


def _in_a_row(step: Any, times: int, x: jax.Array) -> jax.Array:
    for _ in range(times):
        x = step(x)
    return x


ROWS = {
    "rolls": lambda x: _in_a_row(lambda x: jnp.roll(x, 1, axis=-1), 12, x),
    "rot90s": lambda x: _in_a_row(lambda x: jnp.rot90(x, 1, (1, 2)), 10, x.reshape(-1, 4, 4)).reshape(-1, N),
    "squares": lambda x: _in_a_row(lambda y: y * y * 0.5, 16, jnp.tanh(x)),
    "steps of Newton": lambda x: _in_a_row(lambda y: y - (y * y - 2) / (2 * y + 0.1), 10, 2 + jnp.tanh(x)),
}
"""Operations whose words would grow as 2^k."""


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "is_behind"),
    [*((name, False) for name in ROWS), *((name, True) for name in ROWS if name != "rot90s")],
)
def test_many_operations_in_a_row(name: str, is_behind: bool) -> None:
    """Are read in no time, be they of the sites or of the sums."""

    def log_psi(variables: Any, x: jax.Array) -> jax.Array:
        y = x.astype(float)
        y = ROWS[name](y @ variables) if is_behind else jnp.tanh(ROWS[name](y) @ variables)
        return y.sum(axis=-1)

    variables = jnp.asarray(np.random.default_rng(1).normal(size=(N, N)))
    x = configurations(9).astype(float)
    found = first_layer.read(log_psi, variables, x[0])
    assert found is not None
    assert is_separable(log_psi, variables, x)
    assert structure(log_psi, variables, x[0], key=(name, is_behind)).first_layer is not None
