"""Bosons on a lattice."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from reference.core import Configuration, Reference, Row, Sites, empty_row, on_sites, replaced


@dataclass(frozen=True, eq=False)
class BoseHubbard(Reference):
    """-J Σ (b†_i b_j + h.c.) + Σ U/2 n_i (n_i - 1) - μ n_i + V Σ n_i n_j, with at most n_max bosons on a site."""

    sites: Sites
    edges: Sequence[tuple[int, int]]
    U: complex
    V: complex
    J: complex
    mu: complex

    def row(self, sample: Configuration) -> Row:
        row = empty_row()
        n = sample
        row[n] += sum(self.U / 2 * n_i * (n_i - 1) - self.mu * n_i for n_i in n)
        for i, j in self.edges:
            row[n] += self.V * n[i] * n[j]
            for source, target in ((i, j), (j, i)):
                # A boson hops; on one and the same site, as on an edge (i, i), it comes back to where it was.
                if n[source] > 0:
                    left = replaced(n, {source: n[source] - 1})
                    if left[target] < self.sites[target][-1]:
                        arrived = replaced(left, {target: left[target] + 1})
                        row[arrived] += -self.J * sqrt(n[source]) * sqrt(left[target] + 1)
        return row

    def kronecker(self) -> np.ndarray:
        sizes = [len(states) for states in self.sites]
        lower = [np.diag(np.sqrt(np.arange(1, size)), 1) for size in sizes]
        number = [np.diag(np.arange(size)) for size in sizes]
        total = np.zeros((int(np.prod(sizes)),) * 2, complex)
        for i, n_i in enumerate(number):
            total += on_sites({i: self.U / 2 * n_i @ (n_i - np.eye(sizes[i])) - self.mu * n_i}, sizes)
        for i, j in self.edges:
            total += self.V * on_sites({i: number[i]}, sizes) @ on_sites({j: number[j]}, sizes)
            hop = on_sites({i: lower[i].T}, sizes) @ on_sites({j: lower[j]}, sizes)
            total -= self.J * (hop + hop.T)
        return total
