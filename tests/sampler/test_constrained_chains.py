"""Chains respect a constraint of a user's own, and are distributed as they should be."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from netket.hilbert.constraint import ExtraConstraint, SumConstraint

import ferroket as fk
from support.constrained_spaces import CASES as OPERATORS
from support.constrained_spaces import ELECTRONS, RING, RYDBERG, SPINS, Blockade, Untraceable
from support.transitions import Case, connected_moves, exchange_moves, local_moves, numbers_of, p_value_of_moves, run
from support.variational_states import MODELS

PAIR = nk.hilbert.Fock(1, 6, constraint=ExtraConstraint(SumConstraint(2), Blockade()))
FLIPS = OPERATORS["Rydberg atoms"].make(nk.operator, RYDBERG)
PROJECTED = fk.accelerate(FLIPS)
RING_EDGES = [tuple(edge) for edge in RING.edges()]
HOPS = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]
HOP = np.zeros((4, 4))
HOP[1, 2] = HOP[2, 1] = 1.0
# From some configurations it leads nowhere.
HOPPING = fk.operator.LocalOperator(SPINS, [HOP] * 6, RING_EDGES)
CASES = {
    "local": Case(RYDBERG, lambda s, **o: s.MetropolisLocal(RYDBERG, **o), local_moves),
    "exchange": Case(PAIR, lambda s, **o: s.MetropolisExchange(PAIR, graph=RING, **o), exchange_moves(RING_EDGES)),
    "fermions": Case(
        ELECTRONS,
        lambda s, **o: s.MetropolisFermionHop(ELECTRONS, graph=nk.graph.Chain(3), **o),
        exchange_moves(HOPS),
    ),
    "Hamiltonian": Case(
        RYDBERG, lambda s, **o: s.MetropolisHamiltonian(RYDBERG, FLIPS, **o), connected_moves(PROJECTED)
    ),
    "hops": Case(SPINS, lambda s, **o: s.MetropolisHamiltonian(SPINS, HOPPING, **o), connected_moves(HOPPING)),
}
ERGODIC = [name for name in CASES if name != "hops"]
MLP = nk.models.MLP(hidden_dims=(5,), param_dtype=float)
LEAST = 1e-3


pytestmark = pytest.mark.filterwarnings("ignore:(?s).*Defaulting to a slow:UserWarning")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    fk.disable()


def check_distribution(case: Case, model: Any, library: Any = None) -> None:
    """Of single samples of many chains, so that they are independent."""
    found = run(case, model, length=2, library=library, n_chains=4096, sweep_size=61)
    numbers = numbers_of(case, found.samples)  # an error if one is outside
    counts = np.bincount(numbers[:, -1], minlength=len(case.states))
    assert p_value_of_moves(counts, case.probabilities(model, found.variables, 2.0) * 4096) > LEAST


@pytest.mark.quick("RBM-Hamiltonian")
@pytest.mark.parametrize("name", ERGODIC)
@pytest.mark.parametrize("model", [MODELS["RBM"], MLP], ids=["RBM", "MLP"])
def test_distribution(name: str, model: Any) -> None:
    check_distribution(CASES[name], model)


@pytest.mark.quick("exchange")
@pytest.mark.parametrize("name", CASES)
def test_transitions(name: str) -> None:
    """Each single step: how often each move is made, against the transition matrix."""
    case, model = CASES[name], MODELS["RBM"]
    found = run(case, model, length=300, n_chains=256, sweep_size=1)
    numbers = numbers_of(case, found.samples)
    n_states = len(case.states)
    steps = np.bincount((n_states * numbers[:, :-1] + numbers[:, 1:]).ravel(), minlength=n_states**2)
    steps = steps.reshape(n_states, n_states)
    accepted = case.accepted(case.probabilities(model, found.variables, 2.0))
    matrix = accepted + np.diag(1 - accepted.sum(axis=1))
    assert p_value_of_moves(steps.ravel(), (steps.sum(axis=1)[:, None] * matrix).ravel()) > LEAST
    # What is rejected isn't counted as accepted.
    moved = (numbers[:, 1:] != numbers[:, :-1]).sum()
    if name != "Hamiltonian":  # where the diagonal is a proposal, which is always accepted
        assert abs(np.asarray(found.state.n_accepted_proc).sum() - moved) <= len(numbers)


@pytest.mark.quick("local")
@pytest.mark.parametrize("name", ["local", "Hamiltonian"])
def test_enabling(name: str) -> None:
    """NetKet's own samplers, in an unchanged script."""
    fk.enable()
    check_distribution(CASES[name], MODELS["RBM"], nk.sampler)
    sampler = CASES[name].make(nk.sampler)
    state = nk.vqs.MCState(sampler, MODELS["RBM"], n_samples=64)
    found = fk.sampler.explain(state)
    assert found.path == ("NetKet" if name == "Hamiltonian" else "chains in Rust around the network")
    assert found.reasons == ["the Hilbert space has a constraint of its own, which the kernels don't know"]
    fk.disable()
    assert fk.sampler.explain(state).reasons[-1:] == [
        "the sampler is NetKet's, whose moves may lead out of the Hilbert space: call fk.enable(), or take the one of "
        "fk.sampler"
    ]


def test_networks_see_nothing_outside() -> None:
    """They may be no numbers there."""

    def log_psi(_: Any, x: jax.Array) -> jax.Array:
        return jnp.where(Blockade()(x), 0.1 * x[..., 0], jnp.nan)

    sampler = fk.sampler.MetropolisLocal(RYDBERG, n_chains=64)
    state = nk.vqs.MCState(sampler, apply_fun=log_psi, variables={"params": {}}, n_samples=640, sampler_seed=1)
    assert bool(Blockade()(state.samples).all())
    assert np.isfinite(state.sampler_state.log_prob).all()
    assert 0 < state.sampler_state.acceptance < 1


@pytest.mark.thorough
def test_where_chains_begin() -> None:
    for case in CASES.values():
        sampler = case.make(fk.sampler, n_chains=32)
        state = nk.vqs.MCState(sampler, MLP, n_samples=32)
        numbers_of(case, np.asarray(state.sampler_state.σ))


@pytest.mark.thorough
def test_a_rule_of_netkets_without_a_kernel() -> None:
    rule = nk.sampler.rules.MultipleRules(
        [nk.sampler.rules.LocalRule(), nk.sampler.rules.ExchangeRule(graph=RING)], [0.5, 0.5]
    )
    state = nk.vqs.MCState(fk.sampler.MetropolisSampler(RYDBERG, rule), MLP, n_samples=512, sampler_seed=1)
    assert bool(Blockade()(state.samples).all())
    samples, _ = state.sampler.sample(MLP, state.variables, state=state.sampler_state, chain_length=3)
    following, (one, _) = state.sampler.sample_next(MLP, state.variables, state.sampler_state)
    assert bool(Blockade()(one).all())
    np.testing.assert_array_equal(samples[:, 0], one)
    assert type(state.sampler.rule) is type(rule)
    np.testing.assert_array_equal(following.σ, one)


@pytest.mark.thorough
def test_netkets_samplers_go_on_where_a_constraint_can_not_be_traced() -> None:
    hilbert = nk.hilbert.Fock(1, 6, constraint=Untraceable())
    fk.enable()
    sampler = nk.sampler.MetropolisLocal(hilbert)
    variables = MLP.init(jax.random.key(0), np.zeros((1, 6)))
    of_state = {"σ": np.zeros((16, 6), np.int8), "rng": jax.random.key(1), "log_prob": jnp.zeros(16)}
    state = nk.sampler.MetropolisSamplerState(rule_state=None, **of_state)
    samples, _ = sampler.sample(MLP, variables, state=state, chain_length=2)
    assert samples.shape == (16, 2, 6)
