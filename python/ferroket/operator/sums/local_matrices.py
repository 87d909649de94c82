"""Local matrices on a few sites: their entries, and what they are as non-branching terms."""

import functools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse

from ferroket.operator.compiled import site_bits
from ferroket.operator.sums.term_list import NOISE, TermList, pattern_terms

_MOST_BASES = 7
"""On so many sites, each basis of patterns and signs is tried."""


def sparse_matrix(matrix: Any, dtype: Any) -> Any:
    """A matrix of an operator as a sparse one, which NetKet's operators on single sites have, too.

    NetKet adds up matrices of one kind alone. SciPy has no sparse matrices of float16 and bfloat16: those stay dense.
    """
    dtype = np.dtype(dtype)
    return scipy.sparse.coo_matrix(matrix) if dtype.isbuiltin == 1 and dtype != np.float16 else matrix


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of a square matrix: the one on the diagonal comes first in its row, the others ascend.

    Args:
        size: The number of its rows.
        row: The row of each entry.
        column: The column of each entry.
        values: The entries.
    """

    size: int
    row: np.ndarray
    column: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, matrix: Any, cutoff: float) -> Self:
        """The entries of a matrix, dense or sparse: off the diagonal those larger than ``cutoff``."""
        if scipy.sparse.issparse(matrix):
            coo = scipy.sparse.csr_array(matrix).tocoo()
            row, column, values = coo.row.astype(np.int64), coo.col.astype(np.int64), coo.data
        else:
            dense = np.asarray(matrix)
            row, column = np.nonzero(dense)
            values = dense[row, column]
        kept = (np.abs(values) > cutoff) | ((row == column) & (values != 0))
        row, column, values = row[kept], column[kept], values[kept]
        order = np.lexsort([column, column != row, row])
        return cls(matrix.shape[0], row[order], column[order], values[order])

    @functools.cached_property
    def key(self) -> tuple[Any, ...]:
        """What makes two matrices equal."""
        return (
            self.size,
            self.row.tobytes(),
            self.column.tobytes(),
            self.values.dtype.str,
            self.values.tobytes(),
        )

    @property
    def on_diagonal(self) -> np.ndarray:
        """Which entries are on the diagonal."""
        return self.row == self.column

    def select(self, kept: np.ndarray) -> "Entries":
        """Some of the entries."""
        return Entries(self.size, self.row[kept], self.column[kept], self.values[kept])


LocalTerms = Sequence[tuple[tuple[int, ...], Entries]]
"""Sites, most significant first, and the matrix that acts on them."""


# To non-branching terms


def to_terms(n_sites: int, local: LocalTerms, *, exact: bool = False) -> tuple[TermList, int]:
    """A sum of local matrices on sites with two local states as non-branching terms.

    Args:
        n_sites: N.
        local: Sites and matrices.
        exact: Whether the values must stay entries of the matrices: integers have no halves.

    Returns:
        The terms, and how many connected elements off the diagonal a sample has at most.
    """
    bits = site_bits(n_sites)
    places: dict[Any, list[tuple[int, ...]]] = defaultdict(list)
    matrices: dict[Any, Entries] = {}
    for sites, entries in local:
        if entries.values.size:
            matrices[entries.key] = entries
            places[entries.key].append(sites)
    parts, bound = [], 0
    for key, entries in matrices.items():
        flip, mask, pattern, sign, values, most = _terms_of(entries, exact=exact)
        bound += most * len(places[key])
        parts.append(pattern_terms(n_sites, np.array(places[key]), bits, flip, mask, pattern, sign, values))
    return TermList.total(n_sites, parts), bound


def _terms_of(entries: Entries, *, exact: bool) -> tuple[Any, ...]:
    """The fewest terms for a matrix, as numbers of as many bits as it has sites, and its elements in a row at most.

    For each flip the values are a function of the local indices. Each site is taken either in the basis of its two
    states, which gives a pattern, or in that of 1 and σᶻ, which gives a sign.
    """
    flips, which = np.unique(entries.row ^ entries.column, return_inverse=True)
    wide = np.complex128 if np.iscomplexobj(entries.values) else np.float64
    k = entries.size.bit_length() - 1
    functions = np.zeros((len(flips), entries.size), wide)
    functions[which, entries.row] = entries.values
    if exact:
        bases = [0]
    elif k <= _MOST_BASES:
        bases = list(range(entries.size))
    else:
        bases = sorted({0, entries.size - 1, *((entries.size - 1) & ~int(flip) for flip in flips)})

    numbers = np.arange(entries.size)
    best: list[tuple[Any, ...]] = [()] * len(flips)
    for basis, coefficients in _in_bases(functions, bases, k):
        threshold = NOISE * np.abs(functions).max(axis=1, keepdims=True)
        there = np.abs(coefficients) > threshold
        n_signs = basis.bit_count()
        for f, flip in enumerate(flips.tolist()):
            # Signs of equal sites are added up on the diagonal; elsewhere patterns tell what is connected.
            cost = (int(there[f].sum()), n_signs if flip else k - n_signs)
            if not best[f] or cost < best[f][0]:
                best[f] = (cost, basis, numbers[there[f]], coefficients[f, there[f]])

    flip = np.concatenate([np.full(len(chosen), flips[f]) for f, (_, _, chosen, _) in enumerate(best)]).astype(int)
    in_signs = np.concatenate([np.full(len(chosen), basis) for _, basis, chosen, _ in best]).astype(int)
    chosen = np.concatenate([chosen for _, _, chosen, _ in best]).astype(int)
    values = np.concatenate([values for _, _, _, values in best])
    mask = ~in_signs & (entries.size - 1)

    active = np.zeros((len(flips), entries.size), bool)
    for number, looks_at, of_flip in zip(chosen.tolist(), mask.tolist(), flip.tolist(), strict=True):
        active[np.searchsorted(flips, of_flip)] |= (numbers & looks_at) == (number & looks_at)
    most = int(active[flips != 0].sum(axis=0).max(initial=0))
    return flip, mask, chosen & mask, chosen & in_signs, values, most


def _in_bases(functions: np.ndarray, bases: Sequence[int], k: int) -> Iterable[tuple[int, np.ndarray]]:
    """Functions of k bits, ``(F, 2**k)``, with the bits of each basis transformed to signs."""
    for basis in bases:
        values = functions
        for bit in range(k):
            if basis >> bit & 1:
                pairs = values.reshape(len(values), -1, 2, 1 << bit)
                even, odd = pairs[:, :, 0], pairs[:, :, 1]
                values = np.stack([(even + odd) / 2, (even - odd) / 2], axis=2).reshape(values.shape)
        yield basis, values


# Configurations of a few sites


def digits(numbers: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The digits of mixed-radix numbers, ``(..., k)``, most significant first."""
    result = np.zeros((*np.shape(numbers), len(sizes)), np.int64)
    rest = np.asarray(numbers)
    for position in reversed(range(len(sizes))):
        rest, result[..., position] = np.divmod(rest, sizes[position])
    return result


def cluster_parts(
    sites: tuple[int, ...], matrix: np.ndarray, sizes: Sequence[int]
) -> dict[tuple[int, ...], np.ndarray]:
    """A matrix as a sum of parts on subsets of its sites, each without a trace over any of its sites.

    Such a sum is unique: sums of matrices on overlapping sites are equal if and only if their parts are.
    """
    k = len(sites)
    parts: dict[tuple[int, ...], np.ndarray] = {}
    tensor = np.asarray(matrix).reshape([*sizes, *sizes])
    pending = {tuple(range(k)): tensor}
    for position in range(k):
        following: dict[tuple[int, ...], np.ndarray] = {}
        for kept, part in pending.items():
            place, n = kept.index(position), len(kept)
            mean = np.trace(part, axis1=place, axis2=n + place) / sizes[position]
            identity = np.eye(sizes[position]).reshape(
                [sizes[position] if axis in (place, n + place) else 1 for axis in range(2 * n)]
            )
            spread = np.expand_dims(np.expand_dims(mean, place), n + place)
            following[kept] = part - spread * identity
            following[tuple(i for i in kept if i != position)] = mean
        pending = following
    for kept, part in pending.items():
        order = sorted(range(len(kept)), key=lambda i: sites[kept[i]])
        axes = [*order, *(len(kept) + i for i in order)]
        size = int(np.prod([sizes[i] for i in kept], dtype=np.int64))
        where = tuple(sorted(sites[i] for i in kept))
        parts[where] = part.transpose(axes).reshape(size, size)
    return parts
