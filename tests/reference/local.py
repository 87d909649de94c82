"""Sums of local matrices."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reference.core import Configuration, Reference, Row, Sites, empty_row, on_sites, replaced


@dataclass(frozen=True, eq=False)
class Local(Reference):
    """constant + Σ_t matrix_t on sites_t; of the sites of a term the first is the most significant."""

    sites: Sites
    terms: Sequence[tuple[np.ndarray, Sequence[int]]]
    constant: complex = 0

    def _labels(self, acting_on: Sequence[int]) -> list[tuple[int, ...]]:
        """The local indices of a term's sites, by the number of the row or column."""
        return list(itertools.product(*(range(len(self.sites[site])) for site in acting_on)))

    def row(self, sample: Configuration) -> Row:
        row = empty_row()
        row[sample] += self.constant
        for matrix, acting_on in self.terms:
            labels = self._labels(acting_on)
            number = labels.index(tuple(self.sites[site].index(sample[site]) for site in acting_on))
            for label, mel in zip(labels, matrix[number], strict=True):
                changes = {site: self.sites[site][index] for site, index in zip(acting_on, label, strict=True)}
                row[replaced(sample, changes)] += mel
        return row

    def kronecker(self) -> np.ndarray:
        sizes = [len(states) for states in self.sites]
        total = self.constant * np.eye(int(np.prod(sizes)), dtype=complex)
        for matrix, acting_on in self.terms:
            labels = self._labels(acting_on)
            for (r, row), (c, column) in itertools.product(enumerate(labels), repeat=2):
                # |row⟩⟨column| of each site; their product is |r⟩⟨c|.
                units = {
                    site: np.outer(np.eye(sizes[site])[i], np.eye(sizes[site])[j])
                    for site, i, j in zip(acting_on, row, column, strict=True)
                }
                if matrix[r, c]:
                    total += matrix[r, c] * on_sites(units, sizes)
        return total
