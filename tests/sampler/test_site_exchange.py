"""Chains of fermions whose sites have limits, and exchanges of sites beside hops."""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.sampler.constrained import ConstrainedRule, constrained
from support.constrained_spaces import PlainConstraint
from support.limited_sites import EDGES, SPACES, TRIANGLE, space
from support.transitions import Case, Move, connected_moves, numbers_of, p_value_of_moves, run
from support.variational_states import MODELS

Rule = fk.sampler.rules.SiteExchangeRule
LEAST = 1e-3
T_J = SPACES["t-J"]
KONDO = SPACES["Kondo"]
KONDO_EDGES = [(0, 1), (0, 2), (1, 3), (2, 3)]
HUBBARD = nk.hilbert.SpinOrbitalFermions(3, s=0.5, n_fermions_per_spin=(2, 1))
FLIPPING = space(3, maximum=[1, 2, 1], n_fermions=3)
MLP = nk.models.MLP(hidden_dims=(5,), param_dtype=float)
RBM = nk.models.RBM(alpha=1, param_dtype=float)


def exchanges(hilbert: Any, swaps: list[list[tuple[int, int]]]) -> Callable[[np.ndarray], list[Move]]:
    """Exchanges of several modes at once that change a configuration and stay in the space."""
    allowed = {tuple(row) for row in np.asarray(hilbert.all_states()).tolist()}

    def moves(row: np.ndarray) -> list[Move]:
        found = []
        for swap in swaps:
            other = row.copy()
            for a, b in swap:
                other[[a, b]] = other[[b, a]]
            change = {int(site): int(other[site]) for site in np.flatnonzero(other != row)}
            if change and tuple(other.tolist()) in allowed:
                found.append((change, 1.0))
        return found

    return moves


def of_each_spin(hilbert: Any, edges: Any) -> list[list[tuple[int, int]]]:
    return [[(n + i, n + j)] for n in (0, hilbert.n_orbitals) for i, j in edges]


def of_all_spins(hilbert: Any, edges: Any) -> list[list[tuple[int, int]]]:
    return [[(n + i, n + j) for n in (0, hilbert.n_orbitals)] for i, j in edges]


@dataclasses.dataclass(frozen=True)
class Mixture(Case):
    """A case with moves of two kinds, each in detailed balance.

    Args:
        others: The moves of the second kind.
        probability: How likely a move is one of these.
    """

    others: Callable[[np.ndarray], list[Move]]
    probability: float

    @cached_property
    def kinds(self) -> list[tuple[float, Case]]:
        """Each kind alone, and how likely it is."""
        of_kinds = ((1 - self.probability, self.moves), (self.probability, self.others))
        return [(p, Case(self.hilbert, self.make, moves)) for p, moves in of_kinds]

    def accepted(self, probabilities: np.ndarray) -> np.ndarray:
        """How likely each move is proposed and accepted."""
        return np.sum([p * case.accepted(probabilities) for p, case in self.kinds], axis=0)


def site_exchange(hilbert: Any, edges: Any, probability: float) -> Mixture:
    def make(_: Any, **options: Any) -> Any:
        return fk.sampler.MetropolisSiteExchange(hilbert, clusters=edges, exchange=probability, **options)

    of_kinds = (exchanges(hilbert, of(hilbert, edges)) for of in (of_each_spin, of_all_spins))
    first, second = of_kinds
    return Mixture(hilbert, make, first, second, probability)


def make_cases() -> dict[str, Case]:
    t_j = fk.operator.TJ(T_J, TRIANGLE)
    flips = [(i, i + 3) for i in range(3)]
    return {
        "t-J, exchanges": site_exchange(T_J, EDGES, 1.0),
        "t-J": site_exchange(T_J, EDGES, 0.5),
        "Hubbard": site_exchange(HUBBARD, EDGES, 0.3),
        "Kondo": site_exchange(KONDO, KONDO_EDGES, 0.6),
        "t-J, hops": Case(
            T_J,
            lambda s, **o: s.MetropolisFermionHop(T_J, graph=TRIANGLE, **o),
            exchanges(T_J, of_each_spin(T_J, EDGES)),
        ),
        "flips of spins": Case(
            FLIPPING,
            lambda s, **o: s.MetropolisFermionHop(FLIPPING, clusters=[*EDGES, *flips], spin_symmetric=False, **o),
            exchanges(FLIPPING, [[pair] for pair in (*EDGES, *flips)]),
        ),
        "t-J, Hamiltonian": Case(T_J, lambda s, **o: s.MetropolisHamiltonian(T_J, t_j, **o), connected_moves(t_j)),
    }


CASES = make_cases()
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*Defaulting to a slow:UserWarning")


def check_transitions(case: Case, model: Any, library: Any = None) -> None:
    """Each single step: how often each move is made, against the transition matrix."""
    found = run(case, model, length=200, n_chains=256, sweep_size=1, library=library)
    numbers = numbers_of(case, found.samples)  # an error if one is outside
    n_states = len(case.states)
    steps = np.bincount((n_states * numbers[:, :-1] + numbers[:, 1:]).ravel(), minlength=n_states**2)
    steps = steps.reshape(n_states, n_states)
    accepted = case.accepted(case.probabilities(model, found.variables, 2.0))
    matrix = accepted + np.diag(1 - accepted.sum(axis=1))
    assert p_value_of_moves(steps.ravel(), (steps.sum(axis=1)[:, None] * matrix).ravel()) > LEAST


def check_distribution(case: Case, model: Any, library: Any = None) -> None:
    """Of single samples of many chains, so that they are independent."""
    found = run(case, model, length=2, library=library, n_chains=4096, sweep_size=61)
    numbers = numbers_of(case, found.samples)
    counts = np.bincount(numbers[:, -1], minlength=len(case.states))
    assert p_value_of_moves(counts, case.probabilities(model, found.variables, 2.0) * 4096) > LEAST


@pytest.mark.quick("t-J", "Kondo", "t-J, hops")
@pytest.mark.parametrize("name", CASES)
def test_transitions(name: str) -> None:
    check_transitions(CASES[name], RBM)
    state = nk.vqs.MCState(CASES[name].make(fk.sampler), RBM, n_samples=64)
    assert fk.sampler.explain(state).path == "chains in Rust"


@pytest.mark.quick("Hubbard")
@pytest.mark.parametrize("name", CASES)
def test_transitions_around_networks(name: str) -> None:
    check_transitions(CASES[name], MLP)


@pytest.mark.quick("t-J, hops")
@pytest.mark.parametrize("name", [name for name in CASES if name != "t-J, Hamiltonian"])
def test_distribution(name: str) -> None:
    check_distribution(CASES[name], RBM)


class OfNetket:
    """NetKet's own sampler with the rule of one of ours, as chains run on GPUs."""

    def __init__(self, name: str) -> None:
        self.case = CASES[name]

    def make(self, _: Any, **options: Any) -> Any:
        return nk.sampler.MetropolisSampler(self.case.hilbert, self.case.make(fk.sampler).rule, **options)


@pytest.mark.quick("Hubbard")
@pytest.mark.parametrize("name", ["t-J, exchanges", "t-J", "Hubbard", "Kondo"])
def test_transitions_in_netkets_sampler(name: str) -> None:
    check_transitions(dataclasses.replace(CASES[name], make=OfNetket(name).make), RBM)


def test_no_move_is_possible() -> None:
    """A full t-J lattice has no hop, and one of equal spins no exchange: chains stay."""
    for fermions, exchange in (((2, 1), 0.0), ((3, 0), 1.0)):
        full = space(3, maximum=1, n_fermions_per_spin=fermions)
        for sampler in (
            fk.sampler.MetropolisSiteExchange(full, graph=TRIANGLE, exchange=exchange, n_chains=8),
            nk.sampler.MetropolisSampler(full, Rule(full, graph=TRIANGLE, exchange=exchange)),
        ):
            state = nk.vqs.MCState(sampler, RBM, n_samples=64, sampler_seed=1)
            samples = np.asarray(state.samples)
            assert full.constraint(samples).all()
            assert (samples == samples[:, :1]).all()


def test_enabling() -> None:
    """NetKet's sampler with our rule never leaves the space, and is ours after fk.enable()."""
    sampler = OfNetket("t-J").make(None)
    state = nk.vqs.MCState(sampler, RBM, n_samples=64)
    assert fk.sampler.explain(state).reasons == [
        "the sampler is NetKet's: call fk.enable(), or take the one of fk.sampler"
    ]
    fk.enable()
    try:
        assert fk.sampler.explain(state).path == "chains in Rust"
    finally:
        fk.disable()


class _FirstModeIsFull(PlainConstraint):
    def __call__(self, x: Any) -> Any:
        return x[..., 0] == 1


def test_limits_are_checked_once() -> None:
    """The rule keeps to limits of sites by itself; a user's own constraint is beside it."""
    sampler = fk.sampler.MetropolisSiteExchange(T_J, clusters=[(0, 1)])
    assert constrained(sampler) is sampler
    own = nk.hilbert.constraint.ExtraConstraint(T_J.constraint, _FirstModeIsFull())
    hilbert = nk.hilbert.SpinOrbitalFermions(T_J.n_orbitals, s=1 / 2, n_fermions_per_spin=(1, 1), constraint=own)
    assert isinstance(constrained(fk.sampler.MetropolisSiteExchange(hilbert, clusters=[(0, 1)])).rule, ConstrainedRule)


def test_what_the_kernels_do_not_take() -> None:
    weighted = {"clusters": [(0, 1), (4, 5)], "probabilities": [1.0, 2.0]}
    makers = {"clusters with probabilities": lambda: fk.sampler.MetropolisExchange(KONDO, **weighted)}
    free = space(3, maximum=1)
    makers["a change of one site breaks"] = lambda: fk.sampler.MetropolisLocal(free)
    for reason, make in makers.items():
        sampler = make()
        state = nk.vqs.MCState(sampler, RBM, n_samples=128, sampler_seed=1)
        found = fk.sampler.explain(state)
        assert found.path == "NetKet"
        assert reason in found.reasons[0]
        assert sampler.hilbert.constraint(state.samples).all()
        assert state.sampler_state.acceptance > 0


@pytest.mark.thorough
@pytest.mark.parametrize("model", ["RBM", "Jastrow"])
def test_local_rule(model: str) -> None:
    hilbert = space(3, maximum=1)
    case = Case(
        hilbert,
        lambda s, **o: s.MetropolisLocal(hilbert, **o),
        lambda row: [({site: 1 - int(index)}, 1.0) for site, index in enumerate(row)],
    )
    check_transitions(case, MODELS[model])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda rule: rule(nk.hilbert.Qubit(3), graph=TRIANGLE), TypeError, "take nk.hilbert.SpinOrbitalFermions"),
        (lambda rule: rule(T_J), ValueError, "give either clusters or a graph"),
        (lambda rule: rule(T_J, graph=TRIANGLE, clusters=EDGES), ValueError, "give either clusters or a graph"),
        (lambda rule: rule(T_J, clusters=[]), ValueError, "no pairs of sites to exchange"),
        (lambda rule: rule(T_J, clusters=[(0, 1), (0, 3)]), ValueError, r"edge 1 joins the sites 0 and 3"),
        (lambda rule: rule(T_J, clusters=[(0, 1, 2)]), ValueError, r"the edges have shape \(1, 3\)"),
        (lambda rule: rule(T_J, clusters=[(0.7, 1.2)]), TypeError, "the edges are of dtype float64"),
        (lambda rule: rule(T_J, graph=nk.graph.Chain(2)), ValueError, "the graph has 2 nodes, but"),
        (lambda rule: rule(T_J, graph=[(0, 1)]), TypeError, "must be a netket.graph: give pairs of sites as clusters"),
        (lambda rule: rule(T_J, clusters=[(1, 1)]), ValueError, r"cluster 0 is \(1, 1\)"),
        (lambda rule: rule(T_J, graph=TRIANGLE, exchange=1.5), ValueError, "exchange is 1.5"),
        (
            lambda rule: fk.sampler.MetropolisSampler(KONDO, rule(T_J, graph=TRIANGLE)),
            ValueError,
            "exchanges 3 sites with 2 spins, which aren't those of",
        ),
        (
            lambda rule: fk.sampler.MetropolisSampler(nk.hilbert.Qubit(6), rule(T_J, graph=TRIANGLE)),
            ValueError,
            "exchanges 3 sites with 2 spins",
        ),
    ],
)
def test_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(Rule)


def test_farther_sites() -> None:
    hilbert = space(5, maximum=1, n_fermions_per_spin=(1, 1))
    chain = nk.graph.Chain(5, pbc=False)
    rule = Rule(hilbert, graph=chain, d_max=2)
    assert rule.clusters == tuple((i, j) for i in range(5) for j in range(i + 1, min(i + 3, 5)))
    assert "7" in repr(rule)
