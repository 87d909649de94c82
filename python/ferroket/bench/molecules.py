"""Chains of hydrogen atoms in the STO-3G basis, in hartree and bohr.

The integrals over s-type Gaussians are those of A. Szabo and N. S. Ostlund, Modern Quantum Chemistry, appendix A.
"""

from itertools import combinations, product
from typing import Any, NamedTuple

import netket as nk
import numpy as np
from scipy.special import erf

# An atom's orbital: the exponents a of three Gaussians exp(-a r²), for ζ = 1.24, and the weights of these, normalised.
EXPONENTS = np.array([3.42525091, 0.62391373, 0.16885540])
WEIGHTS = np.array([0.15432897, 0.53532814, 0.44463454])


class Integrals(NamedTuple):
    """The integrals over n orbitals p, q, r, s, in hartree; overlaps have no unit.

    Attributes:
        overlap: (p|q), of shape (n, n).
        kinetic: (p|-∇²/2|q), of shape (n, n).
        attraction: The potential of all of the nuclei, of shape (n, n).
        repulsion: That of two electrons, (pq|rs) in chemists' notation, of shape (n, n, n, n).
        nuclear_repulsion: The energy of the nuclei, a number.
    """

    overlap: np.ndarray
    kinetic: np.ndarray
    attraction: np.ndarray
    repulsion: np.ndarray
    nuclear_repulsion: float


def _boys(t: np.ndarray) -> np.ndarray:
    """The Boys function F0(t), the integral of exp(-t u²) over u from 0 to 1."""
    t = np.maximum(t, 1e-20)  # 0 / 0 at t = 0; there, F0(t) = 1 - t/3
    return np.sqrt(np.pi / t) / 2 * erf(np.sqrt(t))


def atomic_integrals(positions: np.ndarray) -> Integrals:
    """The integrals over one orbital of each hydrogen atom on a line (Szabo and Ostlund, appendix A).

    Args:
        positions: Where the atoms are, in bohr, of shape (n,).
    """
    n = len(positions)
    exponents, centers = np.tile(EXPONENTS, n), np.repeat(positions, len(EXPONENTS))
    # The orbitals as sums of Gaussians, of shape (n, 3n).
    orbitals = np.kron(np.eye(n), WEIGHTS * (2 * EXPONENTS / np.pi) ** 0.75)

    # The product of two Gaussians is a Gaussian in between them. Each of these has shape (3n, 3n).
    total = exponents[:, None] + exponents
    reduced = exponents[:, None] * exponents / total
    squares = (centers[:, None] - centers) ** 2
    middles = np.add.outer(exponents * centers, exponents * centers) / total
    heights = np.exp(-reduced * squares)

    overlap = (np.pi / total) ** 1.5 * heights
    kinetic = reduced * (3 - 2 * reduced * squares) * overlap
    to_nuclei = total[..., None] * (middles[..., None] - positions) ** 2
    attraction = -2 * np.pi / total * heights * _boys(to_nuclei).sum(axis=-1)

    a, b = total[:, :, None, None], total
    to_pairs = a * b / (a + b) * (middles[:, :, None, None] - middles) ** 2
    repulsion = 2 * np.pi**2.5 / (a * b * np.sqrt(a + b)) * heights[:, :, None, None] * heights * _boys(to_pairs)

    i, j = np.triu_indices(n, 1)
    return Integrals(
        _transform(overlap, orbitals),
        _transform(kinetic, orbitals),
        _transform(attraction, orbitals),
        _transform(repulsion, orbitals),
        float((1 / np.abs(positions[i] - positions[j])).sum()),
    )


def _transform(integrals: np.ndarray, orbitals: np.ndarray) -> np.ndarray:
    """Integrals over m orbitals, one axis each, as those over n sums of the orbitals: `orbitals`, of shape (n, m)."""
    for _ in range(integrals.ndim):
        integrals = np.tensordot(integrals, orbitals, axes=(0, 1))  # the new axis is the last one
    return integrals


def hydrogen_chain(atoms: int = 6, distance: float = 1.8) -> Any:
    """The Hamiltonian of the electrons of a neutral chain of hydrogen atoms, in hartree, with the nuclear repulsion.

    The orbitals are the atomic ones made orthogonal by Löwdin's S^-1/2 (Szabo and Ostlund, section 3.4.5).

    Args:
        atoms: How many atoms there are. If that is odd, there is one electron more of spin 1/2 than of spin -1/2.
        distance: How far two neighbours are apart, in bohr.
    """
    integrals = atomic_integrals(distance * np.arange(atoms))
    overlaps, vectors = np.linalg.eigh(integrals.overlap)
    orbitals = vectors / np.sqrt(overlaps) @ vectors.T
    one = _transform(integrals.kinetic + integrals.attraction, orbitals)
    two = _transform(integrals.repulsion, orbitals)

    # The modes of one spin, then those of the other. Neither kind of integral turns a spin.
    modes, spins = 2 * atoms, np.eye(2)
    one = np.kron(spins, one)
    two = np.einsum("ab,cd,pqrs->apbqcrds", spins, spins, two).reshape((modes,) * 4)
    # c†_p c†_r c_s c_q changes its sign with p and r exchanged, or q and s. So one term, p < r and q < s, is four: of
    # these, two and two have the same weight, which does away with the factor of 1/2.
    two = two - two.transpose(0, 3, 2, 1)
    pairs = list(combinations(range(modes), 2))
    weights = {((p, 1), (q, 0)): one[p, q] for p, q in product(range(modes), repeat=2)} | {
        ((p, 1), (r, 1), (s, 0), (q, 0)): two[p, q, r, s] for (p, r), (q, s) in product(pairs, repeat=2)
    }
    hilbert = nk.hilbert.SpinOrbitalFermions(atoms, s=1 / 2, n_fermions_per_spin=(atoms // 2, atoms - atoms // 2))
    return nk.operator.FermionOperator2ndJax(
        hilbert, list(weights), list(weights.values()), constant=integrals.nuclear_repulsion, cutoff=1e-12
    )
