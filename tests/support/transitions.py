"""Samplers to test, and the transition matrices that their rules have by definition."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import scipy.stats
from netket.hilbert.constraint import DiscreteHilbertConstraint
from netket.utils import struct

import ferroket as fk
from support.variational_states import CHAIN, SPINS, random_like

SECTOR = nk.hilbert.Spin(0.5, 6, total_sz=0)
QUBITS = nk.hilbert.Qubit(6)
FERMIONS = nk.hilbert.SpinOrbitalFermions(3, s=1 / 2, n_fermions_per_spin=(1, 2))
TRIANGLE = nk.graph.Chain(3)
WEIGHTED = {
    "clusters": [(0, 1), (1, 2), (0, 3), (2, 5), (4, 5), (3, 5)],
    "probabilities": [1.0, 2.0, 0.5, 4.0, 1.0, 3.0],
}
ISING = nk.operator.IsingJax(SPINS, CHAIN, h=0.7)
HEISENBERG = nk.operator.Heisenberg(SECTOR, CHAIN, cls=nk.operator.LocalOperatorJax)
PAULI = nk.operator.PauliStringsJax(
    QUBITS, ["XXIIII", "YIYZII", "IYXYXI", "ZZIIII", "IIIIIX", "IZIIXI", "IIXIII"], np.arange(1.0, 8.0)
)


Move = tuple[dict[int, int], float]
"""The new local indices of the sites that change, and how likely the move is, compared with others."""


@dataclass(frozen=True)
class Case:
    """A rule on a Hilbert space.

    Args:
        hilbert: The space.
        make: Makes its sampler with the functions of ``nk.sampler`` or ``fk.sampler``.
        moves: The moves from a configuration, which is given as a row of local indices: what becomes of which sites,
            and the weight.
    """

    hilbert: Any
    make: Callable[..., Any]
    moves: Callable[[np.ndarray], list[Move]]

    @cached_property
    def states(self) -> np.ndarray:
        """All configurations."""
        return np.asarray(self.hilbert.all_states())

    @cached_property
    def proposals(self) -> np.ndarray:
        """How likely each configuration is proposed at each; the rest leads out of the space."""
        indices = local_indices(self.states)
        number = {tuple(row): i for i, row in enumerate(indices)}
        matrix, total = np.zeros((len(indices),) * 2), np.zeros((len(indices), 1))
        for i, row in enumerate(indices):
            for change, weight in self.moves(row):
                other = row.copy()
                other[list(change)] = list(change.values())
                total[i] += weight
                if tuple(other) in number:
                    matrix[i, number[tuple(other)]] += weight
        return np.divide(matrix, total, out=np.zeros_like(matrix), where=total > 0)

    def probabilities(self, model: Any, variables: Any, power: float) -> np.ndarray:
        """|ψ|^p of all configurations, normalised."""
        log = power * np.asarray(model.apply(variables, self.states)).real.astype(float)
        weights = np.exp(log - log.max())
        return weights / weights.sum()

    def accepted(self, probabilities: np.ndarray) -> np.ndarray:
        """How likely each move is proposed and accepted, by Metropolis and Hastings."""
        there, back = self.proposals, self.proposals.T
        odds = np.divide(
            probabilities * back, probabilities[:, None] * there, out=np.zeros_like(there), where=there > 0
        )
        return there * np.minimum(1, odds)


def local_indices(states: np.ndarray) -> np.ndarray:
    """All configurations ``(n, N)`` as local indices."""
    return np.stack([np.unique(column, return_inverse=True)[1] for column in states.T], axis=1)


def local_moves(row: np.ndarray) -> list[Move]:
    return [({site: 1 - int(index)}, 1.0) for site, index in enumerate(row)]


def changes_of_one_site(*sizes: int) -> Callable[[np.ndarray], list[Move]]:
    def moves(row: np.ndarray) -> list[Move]:
        others = [[to for to in range(size) if to != row[site]] for site, size in enumerate(sizes)]
        return [({site: to}, 1.0 / len(states)) for site, states in enumerate(others) for to in states]

    return moves


def exchange_moves(clusters: Any, weights: Any = None) -> Callable[[np.ndarray], list[Move]]:
    def moves(row: np.ndarray) -> list[Move]:
        of_each = zip(clusters, np.ones(len(clusters)) if weights is None else weights, strict=True)
        return [({a: int(row[b]), b: int(row[a])}, float(weight)) for (a, b), weight in of_each if row[a] != row[b]]

    return moves


def connected_moves(operator: Any) -> Callable[[np.ndarray], list[Move]]:
    @cache  # and not where a module is imported
    def elements() -> tuple[np.ndarray, dict[tuple[int, ...], int], np.ndarray]:
        indices = local_indices(np.asarray(operator.hilbert.all_states()))
        return indices, {tuple(row): i for i, row in enumerate(indices)}, np.asarray(operator.to_dense())

    def moves(row: np.ndarray) -> list[Move]:
        indices, number, dense = elements()
        others = indices[dense[number[tuple(row)]] != 0]
        return [({int(site): int(other[site]) for site in np.flatnonzero(other != row)}, 1.0) for other in others]

    return moves


def _pairs_within(distance: int) -> list[tuple[int, int]]:
    far = np.asarray(CHAIN.distances())
    return [(a, b) for a in range(6) for b in range(a) if far[a, b] <= distance]


CASES = {
    "local": Case(SPINS, lambda s, **o: s.MetropolisLocal(SPINS, **o), local_moves),
    "local, qubits": Case(QUBITS, lambda s, **o: s.MetropolisLocal(QUBITS, **o), local_moves),
    "exchange": Case(
        SECTOR, lambda s, **o: s.MetropolisExchange(SECTOR, graph=CHAIN, **o), exchange_moves(_pairs_within(1))
    ),
    "exchange, farther": Case(
        SECTOR,
        lambda s, **o: s.MetropolisExchange(SECTOR, graph=CHAIN, d_max=2, probabilities=[1.0, 0.2], **o),
        exchange_moves(_pairs_within(2), [1.0 if abs(a - b) in (1, 5) else 0.2 for a, b in _pairs_within(2)]),
    ),
    "exchange, weighted": Case(
        SECTOR,
        lambda s, **o: s.MetropolisExchange(SECTOR, **WEIGHTED, **o),
        exchange_moves(WEIGHTED["clusters"], WEIGHTED["probabilities"]),
    ),
    "fermions": Case(
        FERMIONS,
        lambda s, **o: s.MetropolisFermionHop(FERMIONS, graph=TRIANGLE, **o),
        exchange_moves([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)]),
    ),
    "Ising": Case(SPINS, lambda s, **o: s.MetropolisHamiltonian(SPINS, ISING, **o), connected_moves(ISING)),
    "Heisenberg": Case(
        SECTOR, lambda s, **o: s.MetropolisHamiltonian(SECTOR, HEISENBERG, **o), connected_moves(HEISENBERG)
    ),
    "Pauli strings": Case(QUBITS, lambda s, **o: s.MetropolisHamiltonian(QUBITS, PAULI, **o), connected_moves(PAULI)),
}


class Permutations(DiscreteHilbertConstraint):
    """Some local states, in any order: what exchanges of sites lead to."""

    states: tuple[int, ...] = struct.field(pytree_node=False)

    def __init__(self, *states: int) -> None:
        self.states = states

    def __call__(self, x: jax.Array) -> jax.Array:
        return (jnp.sort(x, axis=-1) == jnp.array(self.states)).all(axis=-1)

    def __hash__(self) -> int:
        return hash(self.states)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Permutations) and other.states == self.states


SPINS_1 = nk.hilbert.Spin(1, 3)
SECTOR_1 = nk.hilbert.Spin(1, 4, constraint=Permutations(-2, 0, 0, 2))
BOSONS = nk.hilbert.Fock(3, 4, constraint=Permutations(0, 1, 2, 3))
MIXED = nk.hilbert.Spin(0.5, 2) * nk.hilbert.Fock(3, 2)
SQUARE = nk.graph.Chain(4)
FEW_BOSONS = nk.hilbert.Fock(3, 3, n_particles=4)
BOSE_HUBBARD = nk.operator.BoseHubbardJax(FEW_BOSONS, TRIANGLE, U=1.0, J=0.7)
SPINS_AND_BOSONS = nk.operator.LocalOperator(
    MIXED, [np.ones((2, 2)), np.ones((8, 8)), np.eye(4) - np.ones((4, 4))], [[0], [1, 2], [3]]
)
WITH_MORE_STATES = {
    "local, spins 1": Case(
        SPINS_1, lambda s, **o: s.MetropolisLocal(SPINS_1, **o), changes_of_one_site(*SPINS_1.shape)
    ),
    "local, spins and bosons": Case(
        MIXED, lambda s, **o: s.MetropolisLocal(MIXED, **o), changes_of_one_site(*MIXED.shape)
    ),
    "exchange, spins 1": Case(
        SECTOR_1, lambda s, **o: s.MetropolisExchange(SECTOR_1, graph=SQUARE, **o), exchange_moves(SQUARE.edges())
    ),
    "exchange, bosons": Case(
        BOSONS, lambda s, **o: s.MetropolisExchange(BOSONS, graph=SQUARE, **o), exchange_moves(SQUARE.edges())
    ),
    "Bose-Hubbard": Case(
        FEW_BOSONS,
        lambda s, **o: s.MetropolisHamiltonian(FEW_BOSONS, BOSE_HUBBARD, **o),
        connected_moves(BOSE_HUBBARD),
    ),
    "matrices": Case(
        MIXED,
        lambda s, **o: s.MetropolisHamiltonian(MIXED, SPINS_AND_BOSONS.to_jax_operator(), **o),
        connected_moves(SPINS_AND_BOSONS),
    ),
}
"""Cases whose sites don't have two local states."""

HAS_PROBABILITIES = "probabilities" in inspect.signature(nk.sampler.MetropolisExchange).parameters
"""Whether this NetKet has them."""
if not HAS_PROBABILITIES:
    del CASES["exchange, farther"], CASES["exchange, weighted"]


@dataclass(frozen=True)
class Run:
    """Samples of a case, ``(C, L, N)``, with the model's variables and the sampler's last state."""

    samples: np.ndarray
    variables: Any
    state: Any


def run(case: Case, model: Any, *, length: int, library: Any = None, scale: float = 0.2, **options: Any) -> Run:
    """Samples of a case by the samplers of ``fk.sampler`` or of another library, with random parameters.

    Before them come as many samples, so that chains have forgotten where they began.
    """
    sampler = case.make(library or fk.sampler, **{"n_chains": 64, **options})
    sample = jax.ShapeDtypeStruct((1, case.hilbert.size), np.int8)
    variables = random_like(jax.eval_shape(model.init, jax.random.key(0), sample), scale)
    state = sampler.reset(model, variables, sampler.init_state(model, variables, seed=3))
    _, state = sampler.sample(model, variables, state=state, chain_length=length)
    state = state.replace(n_accepted_proc=0 * state.n_accepted_proc, n_steps_proc=0 * state.n_steps_proc)
    samples, state = sampler.sample(model, variables, state=state, chain_length=length)
    return Run(np.asarray(samples), variables, state)


def numbers_of(case: Case, samples: np.ndarray) -> np.ndarray:
    """Which of all configurations each sample is, ``(C, L)``; an error if one is none."""
    number = {tuple(row): i for i, row in enumerate(case.states.tolist())}
    flat = samples.reshape(-1, samples.shape[-1]).tolist()
    return np.array([number[tuple(row)] for row in flat]).reshape(samples.shape[:-1])


def p_value_of_moves(counts: np.ndarray, expected: np.ndarray) -> float:
    """That of Pearson's test, of moves expected at least five times; impossible ones must not have been made."""
    often = expected >= 5
    assert counts[expected == 0].sum() == 0
    chosen = expected[often] * counts[often].sum() / expected[often].sum()
    return float(scipy.stats.chisquare(counts[often], chosen).pvalue)
