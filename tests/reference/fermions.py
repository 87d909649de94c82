"""Fermions in second quantisation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reference.core import Configuration, Reference, Row, Sites, empty_row, on_sites

Term = tuple[tuple[int, int], ...]
"""Operators from left to right: (orbital, 1) creates a fermion, (orbital, 0) destroys one."""


@dataclass(frozen=True, eq=False)
class Fermions(Reference):
    """Σ_t weight_t c†… c…; each operator has the sign of the fermions in the orbitals before its own."""

    sites: Sites
    terms: Mapping[Term, complex]

    def row(self, sample: Configuration) -> Row:
        row = empty_row()
        for term, weight in self.terms.items():
            # ⟨σ|A B C|σ'⟩ is the conjugate of ⟨σ'|C† B† A†|σ⟩: the leftmost operator acts on σ first, as its adjoint.
            occupied = list(sample)
            sign = 1
            for orbital, dagger in term:
                if occupied[orbital] != dagger:
                    break
                occupied[orbital] = 1.0 - dagger
                sign *= (-1) ** int(sum(occupied[:orbital]))
            else:
                row[tuple(occupied)] += sign * weight
        return row

    def kronecker(self) -> np.ndarray:
        """By Jordan and Wigner: c_j has a σᶻ on each orbital before j."""
        n = len(self.sites)
        sign, lower = np.diag([1, -1]), np.array([[0, 1], [0, 0]])
        destroy = [on_sites({**dict.fromkeys(range(j), sign), j: lower}, [2] * n) for j in range(n)]
        total = np.zeros((2**n, 2**n), complex)
        for term, weight in self.terms.items():
            product = np.eye(2**n, dtype=complex)
            for orbital, dagger in term:
                product = product @ (destroy[orbital].T if dagger else destroy[orbital])
            total += weight * product
        return total


def fermi_hubbard(sites: Sites, edges: Sequence[tuple[int, int]], t: Sequence[float], U: Sequence[float]) -> Fermions:
    """-Σ_{e=(i,j),s} t_e (c†_{is} c_{js} + h.c.) + Σ_i U_i n_{i↑} n_{i↓}; the orbitals of the second spin come last."""
    n = len(sites) // 2
    terms: dict[Term, complex] = {}
    for (i, j), hopping in zip(edges, t, strict=True):
        for first in (0, n):
            for a, b in ((first + i, first + j), (first + j, first + i)):
                terms[(a, 1), (b, 0)] = terms.get(((a, 1), (b, 0)), 0) - hopping
    for i, repulsion in enumerate(U):
        terms[(i, 1), (i, 0), (n + i, 1), (n + i, 0)] = repulsion
    return Fermions(sites, terms)
