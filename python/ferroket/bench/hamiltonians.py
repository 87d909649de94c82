"""The operators of the benchmarks, as NetKet's."""

from collections.abc import Callable
from typing import Any

import netket as nk
import numpy as np

from ferroket._compat import netket as compat

SPINS = (10, 10)
KAGOME = (5, 5)
PAULI_SITES = 40


def ising(sites: int = 128, coupling: float = 0.5) -> Any:
    """The transverse-field Ising chain, periodic, in a field of 1."""
    return nk.operator.IsingJax(nk.hilbert.Spin(0.5, sites), nk.graph.Chain(sites), h=1.0, J=coupling)


def heisenberg(shape: tuple[int, ...] = SPINS, total_sz: float | None = None) -> Any:
    """The Heisenberg model on a periodic chain or square lattice."""
    lattice = nk.graph.Grid(shape, pbc=True)
    hilbert = nk.hilbert.Spin(0.5, lattice.n_nodes, total_sz=total_sz)
    return nk.operator.Heisenberg(hilbert, lattice, cls=nk.operator.LocalOperatorJax)


def kagome(extent: tuple[int, int] = KAGOME) -> Any:
    """The Heisenberg model on a periodic kagome lattice of so many cells of three sites, at the smallest |Sᶻ|."""
    lattice = nk.graph.Kagome(extent, pbc=True)
    hilbert = nk.hilbert.Spin(0.5, lattice.n_nodes, total_sz=lattice.n_nodes % 2 / 2)
    return nk.operator.Heisenberg(hilbert, lattice, cls=nk.operator.LocalOperatorJax)


def j1_j2(shape: tuple[int, int] = SPINS) -> Any:
    """The Heisenberg model with couplings 1 and 0.5 of nearest and next-nearest neighbours."""
    lattice = nk.graph.Lattice(np.eye(2), extent=shape, pbc=True, max_neighbor_order=2)
    hilbert = nk.hilbert.Spin(0.5, lattice.n_nodes)
    return nk.operator.Heisenberg(hilbert, lattice, J=[1.0, 0.5], cls=nk.operator.LocalOperatorJax)


def fermi_hubbard(shape: tuple[int, int] = (8, 8)) -> Any:
    """The Fermi-Hubbard model on a periodic square lattice, seven eighths filled, conserving particles and spin."""
    lattice = nk.graph.Grid(shape, pbc=True)
    each = lattice.n_nodes * 7 // 16
    hilbert = nk.hilbert.SpinOrbitalFermions(lattice.n_nodes, s=1 / 2, n_fermions_per_spin=(each, each))
    return compat.FermiHubbard(hilbert, lattice, t=1.0, U=4.0)


def t_v(shape: tuple[int, int] = (8, 8)) -> Any:
    """Spinless fermions on a periodic square lattice, 7/16 filled, that hop with t = 1; neighbours repel with V = 2."""
    lattice = nk.graph.Grid(shape, pbc=True)
    hilbert = nk.hilbert.SpinOrbitalFermions(lattice.n_nodes, n_fermions=lattice.n_nodes * 7 // 16)
    hops = [((i, 1), (j, 0)) for a, b in lattice.edges() for i, j in ((a, b), (b, a))]
    repulsion = [((i, 1), (i, 0), (j, 1), (j, 0)) for i, j in lattice.edges()]
    weights = [-1.0] * len(hops) + [2.0] * len(repulsion)
    return nk.operator.FermionOperator2ndJax(hilbert, [*hops, *repulsion], weights)


def bose_hubbard(shape: tuple[int, int] = (6, 6)) -> Any:
    """The Bose-Hubbard model on a periodic square lattice, one particle a site on average, at most three."""
    lattice = nk.graph.Grid(shape, pbc=True)
    hilbert = nk.hilbert.Fock(n_max=3, N=lattice.n_nodes, n_particles=lattice.n_nodes)
    return nk.operator.BoseHubbardJax(hilbert, lattice, U=4.0, J=1.0)


def pauli_strings(strings: int, flip_masks: int, sites: int = PAULI_SITES) -> Any:
    """Random Pauli strings with so many different sets of flipped sites. Each has an even number of Y: it is real."""
    rng = np.random.default_rng(0)
    flips = rng.integers(0, 2, (flip_masks, sites), dtype=bool)
    found: dict[str, None] = {}
    while len(found) < strings:
        flip = flips[len(found) % flip_masks]
        sign = rng.integers(0, 2, sites, dtype=bool)
        if (flip & sign).sum() % 2 == 0:
            found["".join("IZXY"[2 * f + s] for f, s in zip(flip, sign, strict=True))] = None
    return nk.operator.PauliStringsJax(nk.hilbert.Qubit(sites), list(found), rng.normal(size=strings))


def random_local(sites: int = 60, connections: int = 4) -> Any:
    """A random symmetric matrix on each three neighbours of a ring of spins 1."""
    rng = np.random.default_rng(0)
    matrices, places = [], []
    for site in range(sites):
        matrix = np.where(rng.random((27, 27)) < connections / 27, rng.normal(size=(27, 27)), 0.0)
        matrices.append(np.triu(matrix) + np.triu(matrix, 1).T)
        places.append([site, (site + 1) % sites, (site + 2) % sites])
    return nk.operator.LocalOperatorJax(nk.hilbert.Spin(1, sites), matrices, places)


# By name: the operator, and how many times faster than NetKet's fastest it has to be, padded and compact.
CASES: dict[str, tuple[Callable[[], Any], float, float]] = {
    "Ising chain 128": (ising, 1.2, 1.2),
    "Heisenberg 10×10": (heisenberg, 4, 12),
    "J1-J2 10×10": (j1_j2, 4, 12),
    "Fermi-Hubbard 8×8": (fermi_hubbard, 4, 20),
    "4000 Pauli strings, 200 flips": (lambda: pauli_strings(4000, 200), 20, 30),
    "1000 Pauli strings": (lambda: pauli_strings(1000, 1000), 3, 3),
    "Bose-Hubbard 6×6": (bose_hubbard, 2, 3),
    "random, 3 spins 1 of 60": (random_local, 5, 10),
}
