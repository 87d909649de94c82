"""Spaces of fermions whose sites have limits, and matrices of fermions that know nothing of the library."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import netket as nk
import numpy as np
import scipy.sparse

import ferroket as fk

TRIANGLE = nk.graph.Chain(3)
EDGES = [tuple(edge) for edge in TRIANGLE.edges()]


def space(
    n: int, minimum: Any = 0, maximum: Any = None, constraint: Any = None, s: float = 0.5, **fermions: Any
) -> Any:
    """Fermions on n sites that hold so many at least and at most."""
    limits: Any = fk.hilbert.SiteOccupations(n, minimum, maximum)
    if constraint is not None:
        limits = nk.hilbert.constraint.ExtraConstraint(limits, constraint)
    return nk.hilbert.SpinOrbitalFermions(n, s=s, constraint=limits, **fermions)


KONDO = {"minimum": [0, 0, 1, 1], "maximum": [2, 2, 1, 1]}
SPACES = {
    "t-J": space(3, maximum=1, n_fermions_per_spin=(1, 1)),
    "t-J, spin flips": space(3, maximum=1, n_fermions=2),
    "t-J, any number": space(3, maximum=1),
    "Kondo": space(4, **KONDO, n_fermions_per_spin=(2, 2)),
    "no holes": space(3, minimum=1, n_fermions_per_spin=(2, 2)),
    "all kinds of sites": space(4, minimum=[0, 1, 1, 0], maximum=[2, 2, 1, 0], n_fermions_per_spin=(2, 1)),
    "no spins": space(4, minimum=[0, 1, 0, 0], s=None, n_fermions=2),
    "spins 1": space(3, minimum=[0, 1, 2], maximum=[1, 2, 2], s=1, n_fermions=4),
}


@cache
def annihilators(n_orbitals: int) -> list[Any]:
    """The sparse matrix of each annihilation operator, by the transformation of Jordan and Wigner."""
    sign, lower, one = np.diag([1.0, -1.0]), np.array([[0.0, 1.0], [0.0, 0.0]]), np.eye(2)
    matrices = []
    for orbital in range(n_orbitals):
        matrix = np.eye(1)
        for other in range(n_orbitals):
            matrix = scipy.sparse.kron(matrix, sign if other < orbital else lower if other == orbital else one)
        matrices.append(scipy.sparse.csr_array(matrix))
    return matrices


@dataclass(frozen=True)
class Matrices:
    """Sparse matrices of fermions on all configurations of the orbitals of a space."""

    hilbert: Any

    def c(self, site: int, spin: int = 0) -> Any:
        """The annihilation operator of a site: spin 0 is down, and spin 1 up."""
        return annihilators(self.hilbert.size)[spin * self.hilbert.n_orbitals + site]

    def n(self, site: int, spin: int = 0) -> Any:
        """The number of fermions of a spin on a site."""
        return self.c(site, spin).T @ self.c(site, spin)

    def total(self, site: int) -> Any:
        """The number of fermions on a site."""
        return self.n(site, 0) + self.n(site, 1)

    def coupling(self, i: int, j: int) -> Any:
        """The product of two spins."""
        raising = [self.c(site, 1).T @ self.c(site, 0) for site in (i, j)]
        z = [(self.n(site, 1) - self.n(site, 0)) / 2 for site in (i, j)]
        flips = raising[0] @ raising[1].T
        return z[0] @ z[1] + (flips + flips.T) / 2

    @cached_property
    def numbers(self) -> np.ndarray:
        """Which of all configurations of the orbitals those of the space are."""
        states = np.asarray(self.hilbert.all_states()).astype(int)
        numbers: np.ndarray = states @ (1 << np.arange(self.hilbert.size)[::-1])
        return numbers

    def projected(self, matrix: Any) -> np.ndarray:
        """P O P, dense."""
        rows = scipy.sparse.csr_array(matrix)[self.numbers]
        projected: np.ndarray = rows[:, self.numbers].toarray()
        return projected


def random_operator(hilbert: Any, n_terms: int = 12, seed: int = 0) -> tuple[Any, np.ndarray]:
    """A hermitian operator of products of up to three bodies that keeps what the space conserves, and P O P."""
    rng = np.random.default_rng(seed)
    n_orbitals, n_spins = hilbert.n_orbitals, hilbert.n_spin_subsectors
    keeps_spins = None not in hilbert.n_fermions_per_spin
    c = annihilators(hilbert.size)
    terms, weights = [], []
    matrix = scipy.sparse.csr_array((1 << hilbert.size,) * 2, dtype=complex)
    for _ in range(n_terms):
        bodies = int(rng.integers(1, 4))
        spins = rng.integers(0, n_spins, bodies)
        others = rng.permutation(spins) if keeps_spins else rng.integers(0, n_spins, bodies)
        created = spins * n_orbitals + rng.integers(0, n_orbitals, bodies)
        annihilated = others * n_orbitals + rng.integers(0, n_orbitals, bodies)
        factors = [*((int(i), 1) for i in created), *((int(i), 0) for i in annihilated)]
        term = tuple(factors[i] for i in rng.permutation(len(factors)))
        weight = rng.normal() + 1j * rng.normal()
        terms += [term, tuple((i, 1 - dagger) for i, dagger in reversed(term))]
        weights += [weight, weight.conjugate()]
        product = weight * scipy.sparse.eye_array(1 << hilbert.size)
        for orbital, dagger in term:
            product = product @ (c[orbital].T if dagger else c[orbital])
        matrix = matrix + product + product.conj().T
    return fk.operator.FermionOperator2nd(hilbert, terms, weights), Matrices(hilbert).projected(matrix)
