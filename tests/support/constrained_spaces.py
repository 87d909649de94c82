"""Hilbert spaces with constraints of a user's own, and operators that lead out of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

Constraint = nk.hilbert.constraint.DiscreteHilbertConstraint


class PlainConstraint(Constraint):
    """A constraint without parameters: equal to others of its class."""

    def __hash__(self) -> int:
        return hash(type(self).__name__)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)


class Blockade(PlainConstraint):
    """No two neighbours of a ring are both in their last local states, as atoms in Rydberg states."""

    def __call__(self, x: jax.Array) -> jax.Array:
        excited = x > 0
        return ~(excited & jnp.roll(excited, 1, axis=-1)).any(axis=-1)


class NoPairs(PlainConstraint):
    """No two fermions of different spins are in one orbital."""

    def __call__(self, x: jax.Array) -> jax.Array:
        n_orbitals = x.shape[-1] // 2
        return (x[..., :n_orbitals] + x[..., n_orbitals:] < 2).all(axis=-1)


class Ascending(PlainConstraint):
    """The local states don't descend: a constraint that permutations don't keep to, in NumPy."""

    def __call__(self, x: jax.Array) -> jax.Array:
        def of_numpy(x: Any) -> np.ndarray:
            return (np.diff(np.asarray(x), axis=-1) >= 0).all(axis=-1)

        shape = jax.ShapeDtypeStruct(x.shape[:-1], bool)
        return jax.pure_callback(of_numpy, shape, x, vmap_method="expand_dims")


class Untraceable(PlainConstraint):
    """What NumPy alone can evaluate."""

    def __call__(self, x: Any) -> Any:
        return np.asarray(x).sum(axis=-1) % 2 == 0


RING = nk.graph.Chain(6)
X = np.array([[0.0, 1.0], [1.0, 0.0]])
RYDBERG = nk.hilbert.Fock(1, 6, constraint=Blockade())
SPINS = nk.hilbert.Spin(0.5, 6, constraint=Blockade())
BOSONS = nk.hilbert.Fock(2, 4, constraint=Blockade())
DESCENDING = nk.hilbert.Fock(2, 3, constraint=Ascending())
ELECTRONS = nk.hilbert.SpinOrbitalFermions(3, s=0.5, n_fermions_per_spin=(1, 1), constraint=NoPairs())
MIXED = nk.hilbert.Spin(0.5, 3, constraint=Blockade()) * nk.hilbert.Fock(2, 2)
LADDER = np.array([[0.5, 1, 0], [2, 0, 1j], [0, 3, -1]])


@dataclass(frozen=True)
class Case:
    """An operator on a space with a constraint.

    Args:
        hilbert: The space.
        free: The space without the constraint.
        make: Builds the operator on a space with the classes of a namespace, ``nk.operator`` or ``fk.operator``.
    """

    hilbert: Any
    free: Any
    make: Callable[[Any, Any], Any]

    @cached_property
    def states(self) -> np.ndarray:
        """The configurations of the space."""
        return np.asarray(self.hilbert.all_states())

    @cached_property
    def numbers(self) -> np.ndarray:
        """Which of all configurations these are."""
        number = {tuple(row): i for i, row in enumerate(np.asarray(self.free.all_states()).tolist())}
        return np.array([number[tuple(row)] for row in self.states.tolist()])

    def projected(self, matrix: Any) -> np.ndarray:
        """P O P for the matrix of an operator O on the free space."""
        return np.asarray(matrix)[np.ix_(self.numbers, self.numbers)]

    @cached_property
    def free_matrix(self) -> np.ndarray:
        """O, by NetKet."""
        return np.asarray(self.make(nk.operator, self.free).to_dense())

    @cached_property
    def matrix(self) -> np.ndarray:
        """P O P."""
        return self.projected(self.free_matrix)


def rydberg(op: Any, hilbert: Any) -> Any:
    """Flips and a detuning of each site: the PXP model with a chemical potential."""
    cls = getattr(op, "LocalOperatorJax", op.LocalOperator)
    on_site = X + np.diag([0.0, -0.7])
    return cls(hilbert, [on_site] * 6, [[i] for i in range(6)], constant=0.25)


def _ising(op: Any, hilbert: Any) -> Any:
    return getattr(op, "IsingJax", op.Ising)(hilbert, RING, h=1.3, J=0.7)


def _strings(op: Any, hilbert: Any) -> Any:
    cls = getattr(op, "PauliStringsJax", op.PauliStrings)
    return cls(hilbert, ["XXIIII", "YIIZII", "IYXYXI", "ZZIIII", "IIIZYX"], [0.3, 0.5, -1.2, 0.7, 1.1])


def _matrices(op: Any, hilbert: Any) -> Any:
    cls = getattr(op, "LocalOperatorJax", op.LocalOperator)
    return cls(hilbert, [LADDER, np.kron(LADDER, LADDER.T)], [[0], [2, 1]], constant=0.5)


def _bosons(op: Any, hilbert: Any) -> Any:
    return getattr(op, "BoseHubbardJax", op.BoseHubbard)(hilbert, nk.graph.Chain(4), U=1.5, V=0.25, J=0.75, mu=0.5)


def _fermions(op: Any, hilbert: Any) -> Any:
    cls = getattr(op, "FermionOperator2ndJax", op.FermionOperator2nd)
    hops = [(3 * spin + i, 3 * spin + j) for spin in range(2) for i in range(3) for j in range(3) if i != j]
    terms = [*(((i, 1), (j, 0)) for i, j in hops), ((0, 1), (0, 0), (4, 1), (4, 0))]
    return cls(hilbert, terms, [-1.0] * len(hops) + [2.0])


def _mixed(op: Any, hilbert: Any) -> Any:
    cls = getattr(op, "LocalOperatorJax", op.LocalOperator)
    return cls(hilbert, [np.kron(X, LADDER), X, X], [[1, 3], [0], [2]])


def _permuted(op: Any, hilbert: Any) -> Any:
    permutation = nk.utils.group.Permutation(permutation_array=np.array([1, 2, 0]))
    cls = getattr(op, "PermutationOperator", None) or op.permutation.PermutationOperator
    return cls(hilbert, permutation)


CASES = {
    "Rydberg atoms": Case(RYDBERG, nk.hilbert.Fock(1, 6), rydberg),
    "Ising": Case(SPINS, nk.hilbert.Spin(0.5, 6), _ising),
    "Pauli strings": Case(SPINS, nk.hilbert.Spin(0.5, 6), _strings),
    "matrices": Case(BOSONS, nk.hilbert.Fock(2, 4), _matrices),
    "Bose-Hubbard": Case(BOSONS, nk.hilbert.Fock(2, 4), _bosons),
    "fermions": Case(ELECTRONS, nk.hilbert.SpinOrbitalFermions(3, s=0.5, n_fermions_per_spin=(1, 1)), _fermions),
    "a product of spaces": Case(MIXED, nk.hilbert.Spin(0.5, 3) * nk.hilbert.Fock(2, 2), _mixed),
    "a permutation": Case(DESCENDING, nk.hilbert.Fock(2, 3), _permuted),
}
