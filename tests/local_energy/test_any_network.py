"""Local values with any network, against NetKet's kernel and full summation."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from netket.vqs.mc.kernels import local_value_kernel_jax

import ferroket as fk
from ferroket.local_energy import local_values
from support.example_operators import EXAMPLES

RNG = np.random.default_rng(0)


class Network(nn.Module):
    """Two layers, complex output if asked for, and an integer among its variables."""

    complex_output: bool = False
    param_dtype: type = float

    @nn.compact
    def __call__(self, x):
        self.variable("statistics", "calls", lambda: jnp.array(3))
        y = nn.Dense(5, param_dtype=self.param_dtype)(x)
        y = nk.nn.activation.log_cosh(nn.Dense(4, param_dtype=self.param_dtype)(jnp.tanh(y)))
        if self.complex_output:
            return y[..., :2].sum(axis=-1) + 1j * y[..., 2:].sum(axis=-1)
        return y.sum(axis=-1)


NETWORKS = {
    "real": Network(),
    "complex amplitudes": Network(complex_output=True),
    "holomorphic": Network(param_dtype=complex),
    "float32": Network(param_dtype=np.float32),
}

HILBERT = nk.hilbert.Spin(0.5, 10, total_sz=0)
HEISENBERG = fk.operator.Heisenberg(HILBERT, nk.graph.Chain(10))


def setup(hilbert, network, n_samples=12, dtype=np.int8):
    x = hilbert.random_state(jax.random.key(1), n_samples, dtype=dtype)
    variables = network.init(jax.random.key(0), x[:1])
    return x, variables


def evaluate(logpsi, variables, x, operator, chunk_size=None):
    return jax.jit(partial(local_values, logpsi, chunk_size=chunk_size))(variables, x, operator)


def netkets(logpsi, variables, x, operator):
    return jax.jit(local_value_kernel_jax, static_argnums=0)(logpsi, variables, x, operator)


# Of each form, and with elements that depend on the sample in number; the contract tests hold the elements of all.
TITLES = ("transverse-field Ising model", "Fermi-Hubbard model", "Bose-Hubbard model")
SOME = [example for example in EXAMPLES if example.title in TITLES]


@pytest.mark.parametrize("example", SOME, ids=lambda example: example.title)
def test_operators(example):
    compare(example.ours(), NETWORKS["complex amplitudes"])


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_every_network(network):
    compare(HEISENBERG, network)
    compare(fk.operator.PauliStrings(nk.hilbert.Qubit(3), ["XYZ", "IYI"], [0.3, 1.2]), network)


def compare(operator, network):
    x, variables = setup(operator.hilbert, network)
    results = evaluate(network.apply, variables, x, operator)
    expected = netkets(network.apply, variables, x, operator)
    assert results.dtype == expected.dtype
    assert results.shape == (12,)
    tolerance = 1e-5 if network.param_dtype == np.float32 else 1e-12
    np.testing.assert_allclose(results, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.quick("0-7", "33-7", "33-None")
@pytest.mark.parametrize("chunk_size", [1, 7, 64, 10_000, None])
@pytest.mark.parametrize("n_samples", [0, 1, 33])
def test_chunks(n_samples, chunk_size):
    network = NETWORKS["complex amplitudes"]
    x, variables = setup(HILBERT, network, n_samples)
    seen = []

    def logpsi(variables, x):
        seen.append(len(x))
        return network.apply(variables, x)

    results = evaluate(logpsi, variables, x, HEISENBERG, chunk_size)
    np.testing.assert_allclose(results, netkets(network.apply, variables, x, HEISENBERG), rtol=1e-12)
    assert max(seen, default=0) <= max(chunk_size or 10_000, n_samples if chunk_size is None else 0)


def test_one_program_for_all_samples():
    """The number of elements changes with the samples and the coefficients, the program doesn't."""
    network = NETWORKS["real"]
    traced = []

    @jax.jit
    def traced_values(variables, x, operator):
        traced.append(1)
        return local_values(network.apply, variables, x, operator, chunk_size=8)

    for seed, J in ((0, 1.0), (1, 2.5), (2, -0.3)):
        operator = fk.operator.Heisenberg(HILBERT, nk.graph.Chain(10), J=J)
        x = HILBERT.random_state(jax.random.key(seed), 6)
        variables = network.init(jax.random.key(0), x[:1])
        expected = netkets(network.apply, variables, x, operator)
        np.testing.assert_allclose(traced_values(variables, x, operator), expected, rtol=1e-12, atol=1e-12)
    assert len(traced) == 1


def test_one_program_without_jit() -> None:
    """NetKet calls the kernels of some observables outside of functions that are compiled."""
    network = NETWORKS["real"]
    x, variables = setup(HILBERT, network)
    calls = []

    def logpsi(variables, x):
        calls.append(1)
        return network.apply(variables, x)

    first = local_values(logpsi, variables, x, HEISENBERG)
    traced = len(calls)
    np.testing.assert_array_equal(local_values(logpsi, variables, x, 1.0 * HEISENBERG), first)
    assert len(calls) == traced > 0


def by_parts(kernel, network, x, operator, chunk_size=None):
    """The gradients of a real number made of the local values, by the parameters and by the coefficients."""
    weights = jnp.asarray(RNG.normal(size=len(x)) + 1j * RNG.normal(size=len(x)))
    options = {} if chunk_size is None else {"chunk_size": chunk_size}

    def function(params, coefficient):
        variables = {"params": params, **state}
        values = kernel(network.apply, variables, x, coefficient * operator, **options)
        return (weights * values).sum().real + (jnp.abs(values) ** 2).sum()

    variables = network.init(jax.random.key(0), x[:1])
    params = variables.pop("params")
    state = variables
    return jax.jit(jax.grad(function, argnums=(0, 1)))(params, 1.3)


@pytest.mark.parametrize("network", list(NETWORKS.values())[:3], ids=list(NETWORKS)[:3])
def test_derivatives(network, monkeypatch):
    x = HILBERT.random_state(jax.random.key(1), 9)
    results = []
    for kernel, chunk_size in ((local_values, 5), (netkets, None)):
        monkeypatch.setitem(globals(), "RNG", np.random.default_rng(0))
        results.append(by_parts(kernel, network, x, HEISENBERG, chunk_size))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), *results)
    assert abs(results[0][1]) > 1e-3


def test_derivative_by_a_coefficient_that_is_zero():
    """Elements that are zero aren't evaluated, but for this derivative they matter."""
    network, graph = NETWORKS["real"], nk.graph.Chain(6)
    hilbert = nk.hilbert.Spin(0.5, 6)
    x, variables = setup(hilbert, network)

    def function(h, kernel):
        return kernel(network.apply, variables, x, fk.operator.Ising(hilbert, graph, h=h)).sum()

    derivatives = [jax.jit(jax.grad(function), static_argnums=1)(0.0, kernel) for kernel in (local_values, netkets)]
    np.testing.assert_allclose(*derivatives, rtol=1e-12)
    assert abs(derivatives[0]) > 1e-3


def test_parameters_that_are_nan():
    network = NETWORKS["real"]
    x, variables = setup(HILBERT, network)
    broken = jax.tree.map(lambda leaf: leaf * np.nan if leaf.dtype == float else leaf, variables)
    assert np.isnan(evaluate(network.apply, broken, x, HEISENBERG)).all()


def test_bad_samples():
    network = NETWORKS["real"]
    x, variables = setup(HILBERT, network)
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=r"3.*local states"):
        jax.block_until_ready(evaluate(network.apply, variables, x.at[2, 1].set(3), HEISENBERG))
