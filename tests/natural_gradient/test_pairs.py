"""The closed form of quadratic forms in ln ψ: NetKet's Jastrow factor."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax.test_util import check_grads
from netket._src.ngd.sr_srt_common import srt

from ferroket.models.pairs import sum_over_pairs
from ferroket.natural_gradient.jacobian import jacobian
from ferroket.natural_gradient.ntk import log_derivatives_of
from ferroket.natural_gradient.pairs import PairDerivatives
from ferroket.natural_gradient.vmc_sr import update_by_flat_ntk

SPINS = nk.hilbert.Spin(0.5, 7)


def test_by_definition() -> None:
    rng = np.random.default_rng(1)
    x, other = rng.normal(size=(5, 4)), rng.normal(size=(3, 4))
    delta, of_other = (rng.normal(size=(n, 2)) + 1j * rng.normal(size=(n, 2)) for n in (5, 3))

    def definition(x: np.ndarray, delta: np.ndarray) -> np.ndarray:
        products = np.array([[a[i] * a[j] for i in range(4) for j in range(i)] for a in x])
        return delta[:, :, None] * products[:, None]

    rows, columns = definition(x, delta), definition(other, of_other)
    pairs, others = (
        PairDerivatives(jnp.asarray(x), jnp.asarray(delta)),
        PairDerivatives(jnp.asarray(other), jnp.asarray(of_other)),
    )
    np.testing.assert_allclose(pairs.rows(), rows, atol=1e-14)
    expected = np.einsum("sci,tdi->sctd", rows, columns.conj())
    np.testing.assert_allclose(pairs.gram(others, is_holomorphic=True), expected, atol=1e-13)
    np.testing.assert_allclose(pairs.gram(others), expected.real, atol=1e-13)
    vector, weights = rng.normal(size=6), rng.normal(size=(5, 2))
    np.testing.assert_allclose(pairs.dot(jnp.asarray(vector)), rows @ vector, atol=1e-13)
    np.testing.assert_allclose(
        pairs.weighted_sum(jnp.asarray(weights)), np.einsum("sc,sci->i", weights, rows), atol=1e-13
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("of_x", [bool, np.int8, np.float32, np.complex128])
def test_sums_by_definition(of_x: type, dtype: type) -> None:
    rng = np.random.default_rng(1)
    x, weights = rng.integers(0, 2, size=(3, 2, 5)).astype(of_x), rng.normal(size=10).astype(dtype)
    pairs = zip(*np.tril_indices(5, k=-1), strict=True)
    expected = sum(w * (x[..., i] * x[..., j]) for w, (i, j) in zip(weights, pairs, strict=True))
    found = sum_over_pairs(jnp.asarray(x), jnp.asarray(weights))
    assert found.dtype == jnp.promote_types(of_x, dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == np.float32 else 1e-13, atol=1e-6)


def test_sums_are_transformed() -> None:
    rng = np.random.default_rng(2)
    x, weights = jnp.asarray(rng.normal(size=(4, 5))), jnp.asarray(rng.normal(size=(3, 10)))
    by_loop = jnp.stack([jnp.stack([sum_over_pairs(sample, w) for w in weights]) for sample in x])
    over_all = jax.vmap(jax.vmap(sum_over_pairs, (None, 0)), (0, None))
    for function in (over_all, jax.jit(over_all), jax.vmap(sum_over_pairs, (None, 0), out_axes=1)):
        np.testing.assert_allclose(function(x, weights), by_loop, rtol=1e-13)
    assert "sum_over_pairs" in str(jax.make_jaxpr(jax.vmap(sum_over_pairs, (0, None)))(x, weights[0]))
    check_grads(sum_over_pairs, (x, weights[0]), order=3)
    check_grads(lambda w: sum_over_pairs(jnp.arange(5), w), (weights[0],), order=2)

    def total(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.psum(sum_over_pairs(x, w).sum(), "S")

    mapped = jax.shard_map(total, mesh=Mesh(jax.devices()[:1], "S"), in_specs=(P(), P("S")), out_specs=P())
    expected = jax.grad(lambda w: sum_over_pairs(x, w).sum())(weights[0])
    np.testing.assert_allclose(jax.jit(jax.grad(mapped))(weights[0], x), expected, rtol=1e-13)
    with pytest.raises(TypeError, match="5 numbers have 10 pairs, but the weights have shape"):
        sum_over_pairs(x, weights[0, :9])


@pytest.mark.parametrize("dtype", [float, complex])
def test_updates(dtype: type) -> None:
    model = nk.models.Jastrow(param_dtype=dtype)
    state = nk.vqs.MCState(nk.sampler.MetropolisLocal(SPINS), model, n_samples=32, seed=1)
    x = SPINS.random_state(jax.random.key(2), 32)
    rng = np.random.default_rng(3)
    energies = jnp.asarray(rng.normal(size=32) + 1j * rng.normal(size=32))
    arguments = state._apply_fun, energies, state.parameters, state.model_state, x
    rows = log_derivatives_of(state._apply_fun, state.parameters, state.model_state, x, mode="complex")
    assert set(rows.pairs) == {0}
    assert rows.is_holomorphic == (dtype is complex)
    assert not rows.is_holomorphic or not jnp.iscomplexobj(rows.pairs[0].delta)  # so that the matrix is real
    mode = "complex" if dtype is complex else "real"
    for momentum in (None, 0.7):
        old = jnp.asarray(rng.normal(size=21 * (2 if dtype is complex else 1))) if momentum else None
        settings = {"diag_shift": 1e-3, "solver_fn": nk.optimizer.solver.cholesky, "mode": mode}
        settings |= {"momentum": momentum, "old_updates": old}
        expected, found = srt(*arguments, **settings), update_by_flat_ntk(*arguments, **settings)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


class Inside(nn.Module):
    """A Jastrow factor beside a layer."""

    dtype: type

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        hidden = jnp.tanh(nn.Dense(3, param_dtype=self.dtype)(x))
        return jnp.exp(nk.models.Jastrow(param_dtype=self.dtype)(x)) + hidden.sum(axis=-1)


def twice(model: nn.Module, variables: Any, x: jax.Array) -> jax.Array:
    """Another function of a module."""
    return 2 * model.apply(variables, x)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("make", [nk.models.Jastrow, Inside], ids=["alone", "inside"])
def test_functions_of_the_module(make: Any, dtype: type) -> None:
    """They have the closed form of the sum, times their derivatives by it."""
    model = make(dtype)
    x = nk.hilbert.Fock(100, 7).random_state(jax.random.key(2), 4, dtype=np.int8)  # products need more than int8
    variables = jax.tree.map(lambda leaf: leaf / 1000, model.init(jax.random.key(0), x))
    log_psi = nk.jax.HashablePartial(twice, model)
    rows = log_derivatives_of(log_psi, variables["params"], {}, x, mode="complex")
    assert len(rows.pairs) == 1
    assert rows.is_holomorphic == (dtype is complex)
    mode = "complex" if dtype is complex else "real"
    found, expected = (f(log_psi, variables["params"], x, mode=mode, dense=True) for f in (jacobian, nk.jax.jacobian))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())
