"""Networks that are a product with determinants: the ratios of these come from Rust, and the rest is evaluated."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.ansatz.determinants import determinant_factor
from support.determinants import BALANCED, FERMIONS, random_operator
from support.variational_states import make_state, netkets_values, values_by

UNRESTRICTED: dict[str, Any] = {"restricted": False}


class DeterminantsAndNetwork(nn.Module):
    """Determinants, and hidden units in their place, beside them, or of them."""

    how: str
    dtype: Any = float
    hilbert: Any = FERMIONS

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        determinant = nk.models.Slater2nd(self.hilbert, restricted=False, param_dtype=self.dtype)
        hidden = jnp.tanh(nn.Dense(5, param_dtype=float)(x.astype(float)))
        rest = nn.Dense(1, param_dtype=self.dtype)(hidden)[..., 0]
        made = {
            "difference": lambda: determinant(x) - rest,
            "sum": lambda: rest + determinant(x).reshape(x.shape[:-1]),
            "two": lambda: (
                nk.models.Slater2nd(self.hilbert, generalized=True, restricted=False)(x) + determinant(x) + rest
            ),
            "twice": lambda: determinant(x) + determinant(x) + rest,
            "also of the other spin": lambda: determinant(x) + determinant(jnp.roll(x, 4, axis=-1)) + rest,
            "hidden": lambda: rest * jnp.tanh(determinant(x).real),
            "negative": lambda: rest - determinant(x),
        }
        log_psi: jax.Array = made[self.how]()
        return log_psi


FACTORS = {"difference": 1, "sum": 1, "two": 2, "twice": 2, "also of the other spin": 1}
"""How many determinants are factors; of the others none is."""


def model_of(how: str, dtype: Any = float) -> Any:
    return DeterminantsAndNetwork(how, dtype, BALANCED if how == "also of the other spin" else FERMIONS)


def test_what_is_a_factor() -> None:
    for how in (*FACTORS, "hidden", "negative"):
        state = make_state(model_of(how), model_of(how).hilbert, scale=0.5)
        found = determinant_factor(state._apply_fun, state.variables, np.zeros(8))
        assert (found.count if found else 0) == FACTORS.get(how, 0)
        if found:
            x = state.hilbert.all_states()
            whole = state._apply_fun(state.variables, x)
            parts = found.rest(state.variables, x) + found.log_of_determinants(state.variables, x)
            np.testing.assert_allclose(np.exp(parts), np.exp(whole), rtol=1e-10)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("how", [*FACTORS, "hidden", "negative"])
def test_local_energies(how: str, dtype: Any) -> None:
    model = model_of(how, dtype)
    theirs = random_operator(model.hilbert, 3)
    state, ours = make_state(model, model.hilbert, scale=0.5), fk.accelerate(theirs)
    x = model.hilbert.all_states()
    found = values_by(nk.vqs.get_local_kernel(state, ours), state._apply_fun, state.variables, x, ours)
    expected = netkets_values(state._apply_fun, state.variables, x, theirs)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_products_of_models() -> None:
    """A determinant, a factor that is known beside it, and one of which nothing is known."""
    model = fk.models.Product((fk.models.SlaterJastrow(FERMIONS, **UNRESTRICTED), nk.models.MLP(hidden_dims=(3,))))
    theirs = random_operator(FERMIONS, 5)
    state, ours = make_state(model, FERMIONS, scale=0.5), fk.accelerate(theirs)
    found = fk.explain(state, ours)
    assert (found.path, found.determinants) == ("any network", 1)
    assert "evaluated in Rust, in lanes" in str(found)
    assert "it is something times a determinant, whose ratios come from Rust" in str(found)
    x = FERMIONS.all_states()
    values = values_by(nk.vqs.get_local_kernel(state, ours), state._apply_fun, state.variables, x, ours)
    expected = netkets_values(state._apply_fun, state.variables, x, theirs)
    np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_configurations_with_other_numbers_of_fermions_have_no_amplitude() -> None:
    """NetKet's determinants have a value there, of whatever modes they find."""
    state, x = make_state(model_of("sum"), FERMIONS, scale=0.5), np.array(FERMIONS.all_states())
    found = determinant_factor(state._apply_fun, state.variables, x[0])
    assert found is not None
    others = x.copy()
    others[:, 0] = 1 - others[:, 0]
    ratios = found.log_ratios(state.variables, jnp.asarray(others), jnp.asarray(x), jnp.arange(len(x)))
    assert (np.asarray(ratios).real == -np.inf).all()
    assert (np.asarray(found.log_of_determinants(state.variables, jnp.asarray(others))).real == -np.inf).all()


@pytest.mark.parametrize("chunk_size", [None, 8])
def test_gradients(chunk_size: int | None) -> None:
    model = model_of("sum", complex)
    theirs = random_operator(FERMIONS, 6)
    theirs = theirs + theirs.H
    results = []
    for operator in (fk.accelerate(theirs), theirs):
        state = make_state(model, FERMIONS, scale=0.5, chunk_size=chunk_size)
        results.append(state.expect_and_grad(operator))
    (mean, gradient), (expected_mean, expected) = results
    np.testing.assert_allclose(mean.mean, expected_mean.mean, rtol=1e-9)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


def test_chains_around_them() -> None:
    """Chains ask for |ψ|² of determinants from Rust, too."""
    model, graph = model_of("sum"), nk.graph.Chain(4)
    made = make_state(model, FERMIONS, scale=0.5)
    sampler = fk.sampler.MetropolisFermionHop(FERMIONS, graph=graph, n_chains=16, sweep_size=8)
    state = nk.vqs.MCState(sampler, model, n_samples=512, sampler_seed=1, variables=made.variables)
    assert fk.sampler.explain(state).path == "chains in Rust around the network"
    samples, log_probs = sampler.sample(
        model, state.variables, state=state.sampler_state, chain_length=8, return_log_probabilities=True
    )[0]
    expected = 2 * np.asarray(state.log_value(samples.reshape(-1, 8))).real
    np.testing.assert_allclose(log_probs.ravel(), expected, rtol=1e-10, atol=1e-10)
