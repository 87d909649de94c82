"""Sums of Pauli strings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reference.core import Configuration, Reference, Row, Sites, empty_row, on_sites

MATRICES = {
    "I": np.eye(2),
    "X": np.array([[0, 1], [1, 0]]),
    "Y": np.array([[0, -1j], [1j, 0]]),
    "Z": np.array([[1, 0], [0, -1]]),
}


@dataclass(frozen=True, eq=False)
class Pauli(Reference):
    """Σ_t weight_t string_t, where the local state of index 0 is the one with σᶻ = +1."""

    sites: Sites
    strings: Sequence[str]
    weights: Sequence[complex]

    def row(self, sample: Configuration) -> Row:
        row = empty_row()
        for string, weight in zip(self.strings, self.weights, strict=True):
            configuration = list(sample)
            mel = complex(weight)
            for site, letter in enumerate(string):
                up = sample[site] == self.sites[site][0]
                if letter in "XY":
                    configuration[site] = self.sites[site][1] if up else self.sites[site][0]
                if letter == "Z":
                    mel *= 1 if up else -1
                if letter == "Y":
                    mel *= -1j if up else 1j  # ⟨↑|σʸ|↓⟩ and ⟨↓|σʸ|↑⟩
            row[tuple(configuration)] += mel
        return row

    def kronecker(self) -> np.ndarray:
        sizes = [2] * len(self.sites)
        return sum(
            (
                weight * on_sites({site: MATRICES[letter] for site, letter in enumerate(string)}, sizes)
                for string, weight in zip(self.strings, self.weights, strict=True)
            ),
            np.zeros((2 ** len(sizes),) * 2, complex),
        )
