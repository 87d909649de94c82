"""Spins ½ on a lattice, with Pauli's matrices."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reference.core import Configuration, Reference, Row, Sites, empty_row, on_sites, replaced
from reference.pauli import MATRICES


@dataclass(frozen=True, eq=False)
class Ising(Reference):
    """-h Σ σˣ_i + J Σ σᶻ_i σᶻ_j."""

    sites: Sites
    edges: Sequence[tuple[int, int]]
    h: complex
    J: complex

    def row(self, sample: Configuration) -> Row:
        row = empty_row()
        row[sample] += sum(self.J * (1 if _same(self.sites, sample, i, j) else -1) for i, j in self.edges)
        for i, (up, down) in enumerate(self.sites):
            row[replaced(sample, {i: down if sample[i] == up else up})] += -self.h
        return row

    def kronecker(self) -> np.ndarray:
        sizes = [2] * len(self.sites)
        total = np.zeros((2 ** len(sizes),) * 2, complex)
        for i in range(len(sizes)):
            total -= self.h * on_sites({i: MATRICES["X"]}, sizes)
        for i, j in self.edges:
            total += self.J * on_sites({i: MATRICES["Z"]}, sizes) @ on_sites({j: MATRICES["Z"]}, sizes)
        return total


@dataclass(frozen=True, eq=False)
class Heisenberg(Reference):
    """Σ_e J_e (σᶻσᶻ ± (σˣσˣ + σʸσʸ)), with a minus on the edges that have Marshall's sign."""

    sites: Sites
    edges: Sequence[tuple[int, int]]
    J: Sequence[complex]
    marshall: Sequence[bool]

    def row(self, sample: Configuration) -> Row:
        row = empty_row()
        for (i, j), coupling, marshall in zip(self.edges, self.J, self.marshall, strict=True):
            if _same(self.sites, sample, i, j):
                row[sample] += coupling
            else:
                row[sample] -= coupling
                row[replaced(sample, {i: sample[j], j: sample[i]})] += -2 * coupling if marshall else 2 * coupling
        return row

    def kronecker(self) -> np.ndarray:
        sizes = [2] * len(self.sites)
        total = np.zeros((2 ** len(sizes),) * 2, complex)
        for (i, j), coupling, marshall in zip(self.edges, self.J, self.marshall, strict=True):
            xx, yy, zz = (on_sites({i: MATRICES[letter], j: MATRICES[letter]}, sizes) for letter in "XYZ")
            total += coupling * (zz - xx - yy if marshall else zz + xx + yy)
        return total


def _same(sites: Sites, sample: Configuration, i: int, j: int) -> bool:
    return sites[i].index(sample[i]) == sites[j].index(sample[j])
