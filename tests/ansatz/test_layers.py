"""Networks of dense layers: that they are found, and that the layers make of the first one what the network does."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

from ferroket.ansatz import first_layer, layers
from ferroket.bench import models
from ferroket.ffi import dense_layers
from frameworks import FRAMEWORKS
from variational_states import random_like

N = 6


class Scaled(nn.Module):
    """With numbers between the layers, a sum of two linear functions, and a layer without a bias at the end."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.tanh(nn.Dense(8, param_dtype=float)(x)) * 0.3
        y = y - nn.Dense(8, param_dtype=float)(y) / 2 + 0.1
        weights = self.param("weights", nn.initializers.normal(), (8,), float)
        return 2 * jnp.einsum("i,bi->b", weights, nk.nn.activation.log_cosh(y)) + 1


class Convolution(nn.Module):
    """A first layer of several dimensions, whose axes the next one takes in another order."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.relu(nn.Conv(4, (3,), padding="CIRCULAR", param_dtype=float)(x[..., None]))
        return nn.silu(nn.DenseGeneral(5, axis=(-1, -2), param_dtype=float)(y)).sum(axis=-1)


class Residual(nn.Module):
    """What a function gave is added to what the next one gives."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.tanh(nn.Dense(8, param_dtype=float)(x))
        return (y + nn.tanh(nn.Dense(8, param_dtype=float)(y))).sum(axis=-1)


class Parametric(nn.Module):
    """A function with a parameter of its own."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.PReLU(param_dtype=float)(nn.Dense(8, param_dtype=float)(x)).sum(axis=-1)


def mlp(function: Any, dtype: Any = float) -> Any:
    return nk.models.MLP(hidden_dims=(7, 5), hidden_activations=function, param_dtype=dtype)


def of(model: Any, dtype: Any = float) -> tuple[Any, np.ndarray, Any, Any]:
    """Random variables, configurations, and what is found of a network."""
    x = np.random.default_rng(3).choice([-1.0, 1.0], size=(9, N)).astype(dtype)
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    variables = random_like(shapes, 0.7)
    first = first_layer.read(model.apply, variables, x[0])
    assert first is not None
    return variables, x, first, layers.read(first, variables, x[0])


def check(apply: Callable[..., Any], variables: Any, x: np.ndarray, first: Any, found: Any, precision: float) -> None:
    """The twin in NumPy's terms, and Rust, give what the network does."""
    sums = jax.vmap(first.sums, (None, 0))(variables, x)
    tables = jax.jit(found.operands)(variables)
    expected = apply(variables, x)
    y = sums
    for name, matrix, bias in zip(found.activations, tables[::2], tables[1::2], strict=True):
        y = layers.ACTIVATIONS[name](y) @ matrix + bias
    np.testing.assert_allclose(y[:, 0], expected, rtol=precision, atol=precision)
    in_rust = jax.jit(lambda sums, tables: dense_layers(sums, tables, found.activations))(sums, tables)
    assert in_rust.dtype == expected.dtype
    np.testing.assert_allclose(in_rust, expected, rtol=precision, atol=precision)


@pytest.mark.parametrize("name", layers.ACTIVATIONS)
def test_every_function(name: str) -> None:
    for dtype, precision in ((float, 1e-13), (np.float32, 1e-5)):
        model = mlp(layers.ACTIVATIONS[name], dtype)
        variables, x, first, found = of(model, dtype)
        assert found is not None
        assert (found.activations, found.dtype) == ((name, name), dtype)
        check(model.apply, variables, x, first, found, precision)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (Scaled(), ("tanh", "log_cosh")),
        (Convolution(), ("relu", "silu")),
        (models.MLP((6,)), ("gelu",)),
        (nk.models.MLP(hidden_dims=(7, 5), hidden_activations=[None, jnp.tanh], param_dtype=float), ("tanh",)),
        (mlp(lambda x: jnp.tanh(2 * x)), ("tanh", "tanh")),
    ],
    ids=["scaled", "convolution", "one hidden layer", "no function", "tanh 2x"],
)
def test_other_networks(model: Any, expected: tuple[str, ...]) -> None:
    variables, x, first, found = of(model)
    assert found is not None
    assert found.activations == expected
    check(model.apply, variables, x, first, found, 1e-13)


@pytest.mark.parametrize("make", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_every_framework(make: Any) -> None:
    state = nk.vqs.MCState(nk.sampler.MetropolisLocal(nk.hilbert.Spin(0.5, N)), make(N), n_samples=16)
    x = np.random.default_rng(3).choice([-1.0, 1.0], size=(9, N))
    first = first_layer.read(state._apply_fun, state.variables, x[0])
    assert first is not None
    found = layers.read(first, state.variables, x[0])
    assert found is not None
    assert found.activations == ("tanh",)
    check(state._apply_fun, state.variables, x, first, found, 1e-13)


@pytest.mark.parametrize(
    "model",
    [
        Residual(),
        Parametric(),
        mlp(jnp.sin),
        mlp(jnp.tanh, complex),
        mlp(lambda x: jax.nn.gelu(x, approximate=False)),
        nk.models.RBM(param_dtype=float),
        nk.models.RBMModPhase(param_dtype=float),
        models.ViT((2, 3)),
        models.ResCNN((2, 3)),
    ],
    ids=[
        *("residual", "parametric", "sin", "complex", "exact gelu"),
        *("RBM", "RBMModPhase", "ViT", "ResCNN"),
    ],
)
def test_networks_of_other_kinds(model: Any) -> None:
    *_, found = of(model)
    assert found is None


def test_parameters_are_no_constants() -> None:
    """Numbers that happen to be equal, as biases of 0 at first, are no part of a function."""
    model = mlp(jax.nn.gelu)
    x = np.ones((1, N))
    variables = model.init(jax.random.key(0), x)
    first = first_layer.read(model.apply, variables, x[0])
    assert first is not None
    found = layers.read(first, variables, x[0])
    assert found is not None
    for tables in (found.operands(variables), jax.jit(found.operands)(variables)):
        assert [table.shape for table in tables] == [(7, 5), (5,), (5, 1), (1,)]


class Sets(nn.Module):
    """The same layers on each site."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = x[..., None].astype(float)
        for _ in range(2):
            y = nn.gelu(nn.Dense(32, param_dtype=float)(y))
        return nn.Dense(1, param_dtype=float)(nn.gelu(nn.Dense(16, param_dtype=float)(y.sum(axis=-2))))[..., 0]


def test_layers_of_each_site_become_no_matrices_of_all_sites() -> None:
    """Those would be N² times as many numbers as there are parameters, in each call."""
    x = np.ones((1, 32))
    shapes = jax.eval_shape(Sets().init, jax.random.key(0), x)
    first = first_layer.read(Sets().apply, shapes, x[0])
    if first is None:
        return
    found = layers.read(first, shapes, x[0])
    tables = [] if found is None else jax.eval_shape(found.operands, shapes)
    n_parameters = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    assert sum(table.size for table in tables) <= 16 * n_parameters
