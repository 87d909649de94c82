"""Chains of determinants, and of their products with other amplitudes."""

import re
from typing import Any

import jax
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.natural_gradient.length import fubini_study_length
from support.comparisons import LEAST, p_value
from support.determinants import FERMIONS, MODELS
from support.variational_states import make_state

SOME = ["unrestricted", "generalized, complex", "sum", "Jastrow, complex", "times RBMModPhase and Jastrow"]
GRAPH = nk.graph.Chain(4)


def sampler_of(rule: str, **options: Any) -> Any:
    if rule == "hops":
        return fk.sampler.MetropolisFermionHop(FERMIONS, graph=GRAPH, **options)
    if rule == "exchange":
        clusters = [(i, j) for s in (0, 4) for i in range(s, s + 4) for j in range(s, i)]
        return fk.sampler.MetropolisExchange(FERMIONS, clusters=clusters, **options)
    up_and_down = [
        ((i, 1), (j, 0), (k + 4, 1), (m + 4, 0)) for i, j, k, m in [(0, 1, 2, 3), (1, 2, 0, 1), (2, 3, 1, 2)]
    ]
    hops = [((i + s, 1), ((i + 1) % 4 + s, 0)) for s in (0, 4) for i in range(4)]
    terms = [*up_and_down, *hops]
    terms += [tuple((mode, 1 - kind) for mode, kind in reversed(term)) for term in terms]
    operator = nk.operator.FermionOperator2ndJax(FERMIONS, terms, np.ones(len(terms)))
    return fk.sampler.MetropolisHamiltonian(FERMIONS, hamiltonian=operator, **options)


@pytest.mark.filterwarnings("ignore:(?s).*(Initializing|unintended):UserWarning")
@pytest.mark.quick("unrestricted-hops", "sum-exchange", "Jastrow, complex-Hamiltonian")
@pytest.mark.parametrize("rule", ["hops", "exchange", "Hamiltonian"])
@pytest.mark.parametrize("name", SOME)
def test_distribution(name: str, rule: str) -> None:
    """By enumeration of all configurations."""
    made = make_state(MODELS[name], FERMIONS, scale=0.7)
    sampler = sampler_of(rule, n_chains=64, sweep_size=21)
    state = nk.vqs.MCState(
        sampler, MODELS[name], n_samples=64 * 400, n_discard_per_chain=20, sampler_seed=1, variables=made.variables
    )
    found = fk.sampler.explain(state)
    assert found.path == "chains in Rust", found
    states = FERMIONS.all_states()
    counts = np.bincount(FERMIONS.states_to_numbers(state.samples.reshape(-1, 8)), minlength=len(states))
    weights = np.exp(2 * np.asarray(state.log_value(states)).real)
    assert p_value(counts, weights / weights.sum() * counts.sum()) > LEAST


def test_chains_in_another_space_are_refused() -> None:
    """A state that holds configurations with other numbers of fermions."""
    made = make_state(MODELS["unrestricted"], FERMIONS)
    sampler = sampler_of("hops", n_chains=2, sweep_size=3)
    model = MODELS["unrestricted"]
    state = sampler.init_state(model, made.variables, seed=1)
    configurations = np.array(FERMIONS.all_states()[:2])
    configurations[1, 0] = 1 - configurations[1, 0]
    state = sampler.reset(model, made.variables, state=state).replace(
        σ=jax.numpy.asarray(configurations, state.σ.dtype)
    )
    message = "chain 1 can't begin: sector 0 has [24] fermions, but the determinant has 3 orbitals there"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message) as caught:
        jax.block_until_ready(sampler.sample(model, made.variables, state=state, chain_length=2))
    assert re.search("give the state the Hilbert space of its model", str(caught.value))


def test_jaxlib_decomposes_no_matrices_between_steps() -> None:
    """For determinants of two spin sectors its threads may wait for each other for ever."""
    state = make_state(MODELS["unrestricted"], FERMIONS, n_samples=64)
    sampler, model, variables = sampler_of("hops", n_chains=16), state.model, state.variables

    def between(variables: Any, start: Any, x: jax.Array) -> Any:
        again = sampler.reset(model, variables, start)
        update = jax.tree.map(jax.numpy.ones_like, variables["params"])
        length = fubini_study_length(model.apply, variables["params"], {}, x, update, mode="complex")
        return again.log_prob, length

    x = state.samples.reshape(-1, FERMIONS.size)
    start = sampler.init_state(model, variables, seed=3)
    program = str(jax.make_jaxpr(between)(variables, start, x))
    assert "log_determinants" in program
    assert not re.search(r"\blu\b", program)
    log_prob, length = between(variables, start, x)
    expected = 2 * np.asarray(model.apply(variables, start.σ)).real
    np.testing.assert_allclose(log_prob, expected, rtol=1e-10)
    rows = np.asarray(nk.jax.jacobian(model.apply, variables["params"], x, mode="complex", dense=True))
    change = rows.sum(axis=-1)
    change = change[:, 0] + 1j * change[:, 1] if change.ndim > 1 else change
    assert float(length) == pytest.approx(np.std(change), rel=1e-8)
