"""What all references share."""

import itertools
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

Configuration = tuple[float, ...]
Row = dict[Configuration, complex]
Sites = tuple[tuple[float, ...], ...]
"""The local states of each site, by index."""


class Reference(ABC):
    """A matrix over configurations, given by its rows."""

    sites: Sites

    @abstractmethod
    def row(self, sample: Configuration) -> Row:
        """⟨sample|O|configuration⟩ by configuration; elements may be zero."""

    def elements(self, sample: Iterable[float]) -> Row:
        """The row without zeros."""
        return {configuration: mel for configuration, mel in self.row(as_configuration(sample)).items() if mel != 0}

    def matrix(self, basis: Iterable[Iterable[float]]) -> np.ndarray:
        """The matrix over the configurations of ``basis``. Elements that lead out of it are an error."""
        ordered = [as_configuration(sample) for sample in basis]
        number = {configuration: i for i, configuration in enumerate(ordered)}
        result = np.zeros((len(ordered), len(ordered)), complex)
        for i, sample in enumerate(ordered):
            for configuration, mel in self.elements(sample).items():
                result[i, number[configuration]] += mel
        return result


def as_configuration(sample: Iterable[float]) -> Configuration:
    """A hashable sample, the same for all dtypes; -0.0 is 0.0."""
    return tuple(float(np.real(value)) + 0.0 for value in np.asarray(sample).tolist())


def configurations(sites: Sites) -> list[Configuration]:
    """All configurations, in the order of a Kronecker product: the first site is the most significant."""
    return list(itertools.product(*sites))


def replaced(sample: Configuration, changes: dict[int, float]) -> Configuration:
    """The sample with other values at some sites."""
    return tuple(changes.get(site, value) for site, value in enumerate(sample))


def empty_row() -> defaultdict[Configuration, complex]:
    return defaultdict(complex)


def on_sites(matrices: dict[int, np.ndarray], sizes: Sequence[int]) -> np.ndarray:
    """The Kronecker product with these matrices at their sites, and identities elsewhere."""
    result = np.eye(1, dtype=complex)
    for site, size in enumerate(sizes):
        result = np.kron(result, matrices.get(site, np.eye(size)))
    return result
