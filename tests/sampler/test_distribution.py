"""The chains in Rust are distributed as they should be: by enumeration of all configurations, and beside NetKet's.

The seeds are fixed. A threshold of 1e-3 on the p-values of so many samples finds errors of a few per cent of any
configuration's probability.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
import scipy.stats

import ferroket as fk
from ferroket.sampler import chains
from support.comparisons import LEAST, p_value
from support.mpi import FULL
from support.other_frameworks import FRAMEWORKS
from support.transitions import CASES, WITH_MORE_STATES, Case, changes_of_one_site, numbers_of, run
from support.variational_states import MODELS, SPINS

pytestmark = pytest.mark.filterwarnings("ignore:(?s).*Defaulting to a slow:UserWarning")

# XLA evaluates its layers, since Rust doesn't know the function.
MLP = nk.models.MLP(hidden_dims=(5,), hidden_activations=jax.lax.erf, param_dtype=float)
LAYERS_IN_RUST = nk.models.MLP(hidden_dims=(5, 3), param_dtype=float)
COMPLEX_MLP = nk.models.MLP(hidden_dims=(4, 3), param_dtype=complex)
SINGLE_MLP = nk.models.MLP(hidden_dims=(5,), param_dtype=np.float32)
ALL_CASES = CASES | WITH_MORE_STATES
# An odd number of moves: where nearly all are accepted, an even one would lead back to the same magnetisation.
SWEEP = 101


def assert_in_rust(case: Case, model: Any, variables: Any, **options: Any) -> None:
    found = chains.plan(case.make(fk.sampler, **options), model, variables)
    assert found.path.startswith("chains in Rust"), found


def check_distribution(case: Case, model: Any, power: float = 2.0, **options: Any) -> None:
    found = run(case, model, length=600, sweep_size=SWEEP, machine_pow=power, **options)
    assert_in_rust(case, model, found.variables, machine_pow=power, **options)
    counts = np.bincount(numbers_of(case, found.samples).ravel(), minlength=len(case.states))
    probabilities = case.probabilities(model, found.variables, power)
    assert p_value(counts, probabilities * counts.sum()) > LEAST


LONG = ("RBM, no biases", "RBM, complex64", "RBMModPhase, no bias", "RBMSymm, no biases", "RBMMultiVal, no biases")


@pytest.mark.quick("RBMModPhase", "Jastrow")
@pytest.mark.parametrize("name", [name for name in MODELS if FULL or name not in LONG])
def test_every_model(name: str) -> None:
    # RBMMultiVal's classes are 0, 1, ... which qubits are.
    check_distribution(CASES["local, qubits" if name.startswith("RBMMultiVal") else "local"], MODELS[name])


@pytest.mark.quick("RBM-local", "RBM, complex-exchange, weighted", "Jastrow, real-fermions")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("model", ["RBM", "RBM, complex", "Jastrow, real"])
def test_every_rule(name: str, model: str) -> None:
    if FULL or model == "RBM" or not name.startswith(("local", "exchange, farther")):
        check_distribution(CASES[name], MODELS[model])


@pytest.mark.thorough
@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(("name", "model"), [("local", "RBM, complex"), ("exchange", "RBM"), ("Ising", "Jastrow")])
def test_every_power(name: str, model: str, power: float) -> None:
    check_distribution(CASES[name], MODELS[model], power)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32, np.float64])
def test_every_dtype(dtype: Any) -> None:
    check_distribution(CASES["exchange"], MODELS["RBM, float32"], dtype=dtype)


@pytest.mark.thorough
def test_large_parameters() -> None:
    """Where ratios are taken from ln cosh."""
    for model in (MODELS["RBM"], MODELS["RBM, complex"], MODELS["Jastrow"]):
        found = run(CASES["local"], model, length=100, sweep_size=301, scale=1.5, machine_pow=0.2)
        counts = np.bincount(numbers_of(CASES["local"], found.samples).ravel(), minlength=64)
        probabilities = CASES["local"].probabilities(model, found.variables, 0.2)
        assert p_value(counts, probabilities * counts.sum()) > LEAST


@pytest.mark.quick("exchange", "local, spins and bosons", "Ising")
@pytest.mark.parametrize("name", ALL_CASES)
def test_every_rule_around_a_network(name: str) -> None:
    check_distribution(ALL_CASES[name], MLP)


@pytest.mark.quick("exchange", "local, spins and bosons")
@pytest.mark.parametrize("name", ALL_CASES)
def test_every_rule_with_layers_in_rust(name: str) -> None:
    check_distribution(ALL_CASES[name], LAYERS_IN_RUST)


@pytest.mark.thorough
@pytest.mark.parametrize("model", [COMPLEX_MLP, SINGLE_MLP], ids=["complex", "float32"])
@pytest.mark.parametrize("power", [0.5, 2.0, 3.0])
def test_every_power_around_a_network(model: Any, power: float) -> None:
    check_distribution(CASES["exchange"], model, power)


@pytest.mark.quick("NNX")
@pytest.mark.parametrize("make", FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_networks_of_every_framework(make: Any) -> None:
    sampler = fk.sampler.MetropolisLocal(SPINS, n_chains=64, sweep_size=31)
    state = nk.vqs.MCState(sampler, make(6), n_samples=64 * 400, n_discard_per_chain=20, sampler_seed=1)
    found = fk.sampler.explain(state)
    assert found.path == "chains in Rust"
    states = SPINS.all_states()
    counts = np.bincount(SPINS.states_to_numbers(state.samples.reshape(-1, 6)), minlength=len(states))
    weights = np.exp(2 * np.asarray(state.log_value(states)))
    assert p_value(counts, weights / weights.sum() * counts.sum()) > LEAST


@pytest.mark.parametrize("s", [31.5, 40, 63.5, 100])
def test_large_spins(s: float) -> None:
    """Whose local states, or the differences of them, are no int8."""

    class Bell(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            y = x.astype(float) / s
            return -2 * (y**2).sum(axis=-1) + 0.1 * jnp.tanh(nn.Dense(3, param_dtype=float)(y)).sum(axis=-1)

    hilbert = nk.hilbert.Spin(s, 1)
    case = Case(
        hilbert, lambda library, **o: library.MetropolisLocal(hilbert, **o), changes_of_one_site(*hilbert.shape)
    )
    check_distribution(case, Bell())


CASES_AND_MODELS = [
    *((name, "RBM, complex") for name in CASES),
    *((name, "MLP") for name in ALL_CASES),
]


@pytest.mark.quick("Heisenberg-RBM, complex", "Pauli strings-RBM, complex", "fermions-MLP", "exchange, spins 1-MLP")
@pytest.mark.parametrize(("name", "of"), CASES_AND_MODELS)
def test_transitions(name: str, of: str) -> None:
    """Each single step: how often each move is made, against the transition matrix, and back as often as there."""
    case, model = ALL_CASES[name], MODELS.get(of, MLP)
    found = run(case, model, length=1500, n_chains=128, sweep_size=1)
    numbers = numbers_of(case, found.samples)
    n_states = len(case.states)
    steps = np.bincount((n_states * numbers[:, :-1] + numbers[:, 1:]).ravel(), minlength=n_states**2)
    steps = steps.reshape(n_states, n_states)
    probabilities = case.probabilities(model, found.variables, 2.0)
    accepted = case.accepted(probabilities)
    matrix = accepted + np.diag(1 - accepted.sum(axis=1))
    assert p_value(steps.ravel(), (steps.sum(axis=1)[:, None] * matrix).ravel()) > LEAST
    # Detailed balance.
    there, back = np.triu(steps, 1)[np.triu_indices(n_states, 1)], np.triu(steps.T, 1)[np.triu_indices(n_states, 1)]
    often = there + back >= 20
    assert often.any()
    statistic = ((there - back)[often] ** 2 / (there + back)[often]).sum()
    assert scipy.stats.chi2.sf(statistic, often.sum()) > LEAST
    # The acceptance, of which the deviation is that of chains as a whole.
    expected = (probabilities[:, None] * accepted).sum()
    of_chains = np.asarray(found.state.n_accepted_proc) / 1500
    error = of_chains.std() / np.sqrt(len(of_chains))
    assert abs(float(found.state.acceptance) - expected) < 4 * error


@pytest.mark.quick("Heisenberg-model2", "exchange, bosons-model4")
@pytest.mark.parametrize(
    ("name", "model"),
    [
        *((name, MODELS["RBM"]) for name in ("local", "exchange", "Heisenberg")),
        *((name, MLP) for name in ("local, spins 1", "exchange, bosons", "Ising")),
    ],
)
def test_as_netkets(name: str, model: Any) -> None:
    """Acceptance and autocorrelation are those of NetKet's samplers."""
    case = ALL_CASES[name]
    acceptance, correlation = [], []
    for library in (fk.sampler, nk.sampler):
        found = run(case, model, length=400, library=library, n_chains=128, sweep_size=2)
        acceptance.append(np.asarray(found.state.n_accepted_proc) / 800)
        log_psi = np.asarray(model.apply(found.variables, found.samples.reshape(-1, case.hilbert.size))).real
        log_psi = log_psi.reshape(128, 400) - log_psi.mean()
        correlation.append([(log_psi[:, lag:] * log_psi[:, :-lag]).mean(axis=1) for lag in (1, 2, 4)])
    for ours, theirs in [acceptance, *zip(*correlation, strict=True)]:
        error = np.hypot(ours.std(), theirs.std()) / np.sqrt(128)
        assert abs(ours.mean() - theirs.mean()) < 4 * error


@pytest.mark.quick("fermions")
@pytest.mark.parametrize("name", ["exchange", "fermions", "Heisenberg"])
def test_constraints_are_kept(name: str) -> None:
    """On many sites, where a chain is long enough to sum everything up anew."""
    graph = nk.graph.Square(6)
    heisenberg = nk.operator.Heisenberg(nk.hilbert.Spin(0.5, 36, total_sz=1), graph, cls=nk.operator.LocalOperatorJax)
    fermions = nk.hilbert.SpinOrbitalFermions(36, s=1 / 2, n_fermions_per_spin=(5, 20))
    sampler = {
        "exchange": lambda: fk.sampler.MetropolisExchange(heisenberg.hilbert, graph=graph, n_chains=4),
        "fermions": lambda: fk.sampler.MetropolisFermionHop(fermions, graph=graph, n_chains=4),
        "Heisenberg": lambda: fk.sampler.MetropolisHamiltonian(heisenberg.hilbert, heisenberg, n_chains=4),
    }[name]()
    state = nk.vqs.MCState(sampler, nk.models.RBM(alpha=1), n_samples=4000, n_discard_per_chain=0, seed=1)
    assert fk.sampler.explain(state).path == "chains in Rust"
    samples = np.asarray(state.samples)
    assert np.isin(samples, sampler.hilbert.local_states).all()
    conserved = [samples[..., :36].sum(-1), samples[..., 36:].sum(-1)]
    expected = {"fermions": [5, 20]}.get(name, [2, 0])
    assert [set(sums.ravel().tolist()) for sums in conserved] == [{total} for total in expected]
    assert 0.5 < state.sampler_state.acceptance <= 1
