"""Restricted Boltzmann machines in Rust, against NetKet's kernel."""

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from netket.vqs.mc.kernels import local_value_kernel_jax

import ferroket as fk
from example_operators import EXAMPLES
from ferroket.local_energy import rbm

TWO_STATES = [example for example in EXAMPLES if set(example.ours().hilbert.shape) == {2}]
MODELS = {
    "real": nk.models.RBM(alpha=1),
    "real, no biases": nk.models.RBM(alpha=2, use_hidden_bias=False, use_visible_bias=False),
    "complex": nk.models.RBM(alpha=1, param_dtype=complex),
    "float32": nk.models.RBM(alpha=3, param_dtype=np.float32),
    "complex64": nk.models.RBM(alpha=1, param_dtype=np.complex64),
}


def setup(model, hilbert, n_samples=70, scale=0.3, dtype=np.int8):
    x = hilbert.random_state(jax.random.key(1), n_samples, dtype=dtype)
    variables = model.init(jax.random.key(0), x[:1])
    leaves, structure = jax.tree.flatten(variables)
    rng = np.random.default_rng(0)

    def random(leaf):
        numbers = rng.normal(size=leaf.shape, scale=scale)
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            numbers = numbers + 1j * rng.normal(size=leaf.shape, scale=scale)
        return jnp.asarray(numbers, leaf.dtype)

    return x, structure.unflatten(map(random, leaves))


def compare(model, operator, x, variables):
    assert rbm.why_not(model, operator) is None
    found = rbm.local_values(model.apply, variables, x, operator, model=model)
    expected = local_value_kernel_jax(model.apply, variables, x, operator)
    assert found.dtype == expected.dtype
    single = np.dtype(model.param_dtype) in (np.float32, np.complex64)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=1e-4 if single else 1e-11, atol=(1e-5 if single else 1e-12) * scale)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("example", TWO_STATES, ids=lambda example: example.title)
def test_all_operators(example, model):
    operator = example.ours()
    if rbm.why_not(model, operator):
        pytest.skip("not of this form")
    compare(model, operator, *setup(model, operator.hilbert))


@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("dtype", [float, complex])
def test_large_parameters(dtype, scale):
    hilbert = nk.hilbert.Spin(0.5, 12)
    model = nk.models.RBM(alpha=2, param_dtype=dtype)
    operator = fk.operator.Heisenberg(hilbert, nk.graph.Chain(12))
    compare(model, operator, *setup(model, hilbert, scale=scale))


@pytest.mark.parametrize("sites", [1, 31, 64, 70])
def test_flips_of_many_sites(sites):
    hilbert = nk.hilbert.Qubit(sites)
    rng = np.random.default_rng(1)
    strings = ["".join(rng.choice(list("IXYZ"), sites)) for _ in range(9)]
    operator = fk.operator.PauliStrings(hilbert, strings, rng.normal(size=9))
    model = nk.models.RBM(alpha=1, param_dtype=complex)
    compare(model, operator, *setup(model, hilbert, n_samples=300, scale=0.2 / sites**0.5))


@pytest.mark.parametrize("n_samples", [0, 1, 63, 64, 257])
def test_numbers_of_samples(n_samples):
    hilbert = nk.hilbert.Spin(0.5, 9)
    operator = fk.operator.Ising(hilbert, nk.graph.Chain(9), h=0.7)
    model = MODELS["real"]
    x, variables = setup(model, hilbert, max(n_samples, 1))
    if n_samples:
        compare(model, operator, x, variables)
    else:
        assert rbm.local_values(model.apply, variables, x[:0], operator, model=model).shape == (0,)


def test_other_models_are_left_alone():
    operator = fk.operator.Ising(nk.hilbert.Spin(0.5, 4), nk.graph.Chain(4), h=1.0)
    sub = type("Mine", (nk.models.RBM,), {})
    assert "Mine is no nk.models.RBM" in rbm.why_not(sub(), operator)
    assert "activation is tanh" in rbm.why_not(nk.models.RBM(activation=jnp.tanh), operator)
    assert "parameters are of" in rbm.why_not(nk.models.RBM(param_dtype=jnp.bfloat16), operator)
    spin_one = fk.operator.Heisenberg(nk.hilbert.Spin(1, 4), nk.graph.Chain(4)) if False else None
    assert spin_one is None


def test_parameters_that_are_nan():
    hilbert = nk.hilbert.Spin(0.5, 6)
    operator = fk.operator.Ising(hilbert, nk.graph.Chain(6), h=0.7)
    model = MODELS["real"]
    x, variables = setup(model, hilbert)
    broken = jax.tree.map(lambda leaf: leaf * np.nan, variables)
    assert np.isnan(rbm.local_values(model.apply, broken, x, operator, model=model)).all()
