"""Networks with loops whose carry starts from constants, in each framework, with and without chunks."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import netket.experimental as nkx
import numpy as np
import pytest
from flax import nnx
from netket.vqs.mc.kernels import local_value_kernel_jax

import ferroket as fk
from support.mpi import run_on_devices

HILBERT = nk.hilbert.Spin(0.5, 4)
ISING = fk.operator.Ising(HILBERT, nk.graph.Chain(4), h=0.7)
PLAIN = nk.operator.IsingJax(HILBERT, nk.graph.Chain(4), h=0.7)


class Loop(nn.Module):
    """A recurrent network by hand: ``scan``, ``fori_loop``, or ``while_loop``, which has no derivative."""

    kind: str = "scan"
    param_dtype: Any = float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        normal = nn.initializers.normal(0.3)
        w = self.param("w", normal, (3, 3), self.param_dtype)
        u = self.param("u", normal, (3,), self.param_dtype)
        sites = x.T.astype(self.param_dtype)

        def step(h: jax.Array, site: jax.Array) -> jax.Array:
            return jnp.tanh(h @ w + site[:, None] * u)

        h = jnp.zeros((len(x), 3), self.param_dtype)
        if self.kind == "scan":
            h, _ = jax.lax.scan(lambda h, site: (step(h, site), None), h, sites)
        elif self.kind == "fori_loop":
            h = jax.lax.fori_loop(0, len(sites), lambda i, h: step(h, sites[i]), h)
        else:
            more = lambda state: state[0] < len(sites)  # noqa: E731
            _, h = jax.lax.while_loop(more, lambda state: (state[0] + 1, step(state[1], sites[state[0]])), (0, h))
        return h.sum(axis=-1)


class LinenGru(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.RNN(nn.GRUCell(3, param_dtype=float))(x[..., None].astype(float)).sum(axis=(-2, -1))


class NnxGru(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.rnn = nnx.RNN(nnx.GRUCell(1, 3, rngs=rngs, param_dtype=jnp.float64))

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.rnn(x[..., None].astype(float)).sum(axis=(-2, -1))


class EquinoxGru(eqx.Module):
    cell: eqx.nn.GRUCell

    def __init__(self, key: jax.Array) -> None:
        self.cell = eqx.nn.GRUCell(1, 3, key=key, dtype=jnp.float64)

    def __call__(self, x: jax.Array, key: Any = None) -> jax.Array:  # NetKet 3.20 gives a key
        def one(sites: jax.Array) -> jax.Array:
            h, _ = jax.lax.scan(lambda h, site: (self.cell(site, h), None), jnp.zeros(3), sites[:, None].astype(float))
            return h.sum()

        return jax.vmap(one)(x)


NETWORKS = {
    "scan": Loop,
    "complex scan": lambda: Loop(param_dtype=complex),
    "fori_loop": lambda: Loop("fori_loop"),
    "while_loop": lambda: Loop("while_loop"),
    "linen": LinenGru,
    "NNX": lambda: NnxGru(nnx.Rngs(0)),
    "Equinox": lambda: EquinoxGru(jax.random.key(0)),
}
AUTOREGRESSIVE = {
    "ARNNDense": lambda: nk.models.ARNNDense(hilbert=HILBERT, layers=2, features=3),
    "FastARNNConv1D": lambda: nk.models.FastARNNConv1D(hilbert=HILBERT, layers=2, features=3, kernel_size=2),
    "GRUNet1D": lambda: nkx.models.GRUNet1D(hilbert=HILBERT, layers=1, features=3),
}


def state_of(name: str) -> nk.vqs.MCState:
    """A state of the network."""
    if name in AUTOREGRESSIVE:
        return nk.vqs.MCState(nk.sampler.ARDirectSampler(HILBERT), AUTOREGRESSIVE[name](), n_samples=48, seed=1)
    sampler = fk.sampler.MetropolisLocal(HILBERT, n_chains=16)
    return nk.vqs.MCState(sampler, NETWORKS[name](), n_samples=48, seed=1)


def assert_same(found: Any, expected: Any) -> None:
    """To rounding errors."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11), found, expected)


@pytest.mark.quick("scan")
@pytest.mark.parametrize("name", [*NETWORKS, *AUTOREGRESSIVE])
def test_energies_and_forces(name: str) -> None:
    """Those of NetKet's operator without chunks, which NetKet evaluates outside of what checks types of devices."""
    state = state_of(name)
    local = local_value_kernel_jax(state._apply_fun, state.variables, state.samples.reshape(-1, 4), PLAIN)
    for chunk_size in (None, 16):
        state.chunk_size = chunk_size
        assert_same(state.local_estimators(ISING).ravel(), local)
        assert_same(state.expect(ISING).mean, local.mean())
    if name == "while_loop":
        return
    state.chunk_size = None
    expected = state.expect_and_grad(PLAIN)[1]
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected)) > 1e-3
    for chunk_size in (None, 16):
        state.chunk_size = chunk_size
        assert_same(state.expect_and_grad(ISING)[1], expected)


@pytest.mark.thorough
def test_operators_that_are_not_hermitian() -> None:
    """Their gradient is the derivative of the local energies, which NetKet calls experimental."""
    state = state_of("scan")
    plus = nk.operator.spin.sigmap(HILBERT, 0).to_jax_operator()
    nk.config.update("netket_experimental", True)
    try:
        expected = state.expect_and_grad(plus)[1]
        assert_same(state.expect_and_grad(fk.accelerate(plus))[1], expected)
    finally:
        nk.config.update("netket_experimental", False)


@pytest.mark.thorough
def test_forces_of_many_samples_of_one_chain() -> None:
    """Whose number the chunks don't divide, with parameters of which ln ψ is no holomorphic function."""
    model = nk.models.RBMModPhase(alpha=2)
    state = nk.vqs.MCState(nk.sampler.MetropolisLocal(HILBERT, n_chains=1), model, n_samples=37, seed=1)
    _, expected = state.expect_and_forces(PLAIN)
    state.chunk_size = 16
    _, found = state.expect_and_forces(ISING)
    assert_same(found, expected)


@pytest.mark.thorough
def test_on_four_devices() -> None:
    run_on_devices(compare_on_four_devices, 4, JAX_DISABLE_MOST_OPTIMIZATIONS="1").ok()


def compare_on_four_devices() -> None:
    """Each evaluates the samples of its own chains."""
    state = state_of("scan")
    assert len(state.samples.sharding.device_set) == jax.device_count() == 4
    local = local_value_kernel_jax(state._apply_fun, state.variables, state.samples.reshape(-1, 4), PLAIN)
    _, expected = state.expect_and_grad(PLAIN)
    for chunk_size in (None, 4):
        state.chunk_size = chunk_size
        assert_same(state.local_estimators(ISING).ravel(), local)
        assert_same(state.expect_and_grad(ISING)[1], expected)
