"""From local matrices on a few sites to the two compiled forms."""

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse

from ferroket.operator.algebra.sectors import Sector, leaving, sectors
from ferroket.operator.algebra.term_list import NOISE, TermList, pattern_terms
from ferroket.operator.compiled import LocalStates, Tables, local_states, site_bits

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


# To tables


def to_tables(hilbert: Any, local: LocalTerms, constant: Any, cutoff: float, dtype: Any) -> Tables:
    """A sum of local matrices and a multiple of the identity as tables.

    Raises:
        ValueError: If the operator leads out of its Hilbert space.
    """
    sites = local_states(hilbert)
    sizes = sites.sizes_of_sites
    local = [*_confined(hilbert, local, sizes)]
    if constant:
        local.append(((), Entries(1, np.zeros(1, int), np.zeros(1, int), np.asarray([constant]))))
    diagonal = any((np.abs(entries.values[entries.on_diagonal]) >= cutoff).any() for _, entries in local)
    if not diagonal:
        local = [(where, entries.select(~entries.on_diagonal)) for where, entries in local]
    local = [(where, entries) for where, entries in local if entries.values.size]
    return tables(sites, local, diagonal=diagonal or not local, most=most_elements(hilbert, local, sizes), dtype=dtype)


def tables(sites: LocalStates, local: LocalTerms, *, diagonal: bool, most: int, dtype: Any) -> Tables:
    """Local matrices as tables, in which equal ones are stored once; ``most`` elements are off the diagonal."""
    numbers: dict[Any, int] = {}
    matrices: list[Entries] = []
    table = []
    for _, entries in local:
        number = numbers.setdefault(entries.key, len(matrices))
        if number == len(matrices):
            matrices.append(entries)
        table.append(number)
    counts = [np.bincount(entries.row, minlength=entries.size) for entries in matrices]
    return Tables.from_arrays(
        sites,
        _offsets([len(where) for where, _ in local]),
        np.array([site for where, _ in local for site in where], np.int64),
        np.array(table, np.int64),
        _offsets([entries.size for entries in matrices]),
        _offsets(np.concatenate([np.zeros(0, np.int64), *counts])),
        np.concatenate([np.zeros(0, np.int64), *(entries.column for entries in matrices)]),
        np.concatenate([np.zeros(0, dtype), *(entries.values.astype(dtype) for entries in matrices)]),
        diagonal=diagonal,
        max_conn_size=most + diagonal,
    )


def _offsets(lengths: Any) -> np.ndarray:
    """Where the runs of these lengths start, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))])


def digits(numbers: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The digits of mixed-radix numbers, ``(..., k)``, most significant first."""
    result = np.zeros((*np.shape(numbers), len(sizes)), np.int64)
    rest = np.asarray(numbers)
    for position in reversed(range(len(sizes))):
        rest, result[..., position] = np.divmod(rest, sizes[position])
    return result


def _confined(hilbert: Any, local: LocalTerms, sizes: np.ndarray) -> LocalTerms:
    """Local matrices without the entries that lead out of the conserved sectors of a space.

    Raises:
        ValueError: If these don't cancel.
    """
    conserved, _ = sectors(hilbert)
    if not conserved:
        return local
    member = [set(sector.sites) for sector in conserved]
    result, leaks = [], []
    judged: dict[Any, tuple[np.ndarray, np.ndarray]] = {}
    for where, entries in local:
        key = (entries.key, tuple(tuple(site in of_sector for site in where) for of_sector in member))
        if key not in judged:
            judged[key] = _judge(where, entries, sizes, conserved, member)
        leaves, possible = judged[key]
        if (leaves & possible).any():
            leaks.append((where, entries.select(leaves & possible)))
        result.append((where, entries.select(~leaves & possible) if (leaves | ~possible).any() else entries))
    if leaks:
        _check_cancelled(hilbert, leaks, sizes, conserved, member)
    return result


def _judge(
    where: tuple[int, ...], entries: Entries, sizes: np.ndarray, conserved: Sequence[Sector], member: Sequence[set[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Which entries change a conserved number, and which have rows that a configuration of the space can have."""
    of_sites = sizes[list(where)].tolist()
    before, after = digits(entries.row, of_sites), digits(entries.column, of_sites)
    leaves = np.zeros(len(entries.values), bool)
    possible = np.ones(len(entries.values), bool)
    for sector, of_sector in zip(conserved, member, strict=True):
        inside = np.array([site in of_sector for site in where], bool)
        total = before[:, inside].sum(axis=1)
        leaves |= after[:, inside].sum(axis=1) != total
        elsewhere = int((sizes[list(sector.sites)] - 1).sum()) - int((sizes[list(where)] - 1)[inside].sum())
        possible &= (total <= sector.total) & (sector.total - total <= elsewhere)
    return leaves, possible


def _check_cancelled(
    hilbert: Any,
    leaks: LocalTerms,
    sizes: np.ndarray,
    conserved: Sequence[Sector],
    member: Sequence[set[int]],
) -> None:
    """Raises the error if entries that lead out aren't zero together.

    The entries that take some sites from the same indices to the same others are functions of the other sites that
    their matrices act on. These are zero if they are so on all these sites together.
    """
    moves: dict[tuple[Any, ...], list[tuple[tuple[int, ...], np.ndarray, complex]]] = defaultdict(list)
    for where, entries in leaks:
        of_sites = sizes[list(where)].tolist()
        before, after = digits(entries.row, of_sites), digits(entries.column, of_sites)
        for row, column, value in zip(before, after, entries.values, strict=True):
            moved = row != column
            sites = np.array(where)
            order = np.argsort(sites[moved])
            move = (tuple(sites[moved][order]), tuple(row[moved][order]), tuple(column[moved][order]))
            moves[move].append((tuple(sites[~moved]), row[~moved], complex(value)))
    for (sites, before, after), spectators in moves.items():
        others = sorted({int(site) for where, _, _ in spectators for site in where})
        shape = sizes[others].tolist()
        total = np.zeros(shape, complex)
        scale = 0.0
        for where, states, value in spectators:
            index: list[Any] = [slice(None)] * len(others)
            for site, state in zip(where, states, strict=True):
                index[others.index(int(site))] = int(state)
            total[tuple(index)] += value
            scale = max(scale, abs(value))
        if np.abs(total).max() <= 1e-12 * scale:
            continue
        for sector, of_sector in zip(conserved, member, strict=True):
            change = sum(int(b) - int(a) for site, a, b in zip(sites, before, after, strict=True) if site in of_sector)
            if change:
                where = tuple(int(site) for site in sites)
                raise leaving(
                    hilbert,
                    sector,
                    f"the local states {_states(hilbert, where, before)} of the sites {where}",
                    f"the local states {_states(hilbert, where, after)}",
                    change,
                )


def _states(hilbert: Any, sites: Sequence[int], indices: Sequence[int]) -> str:
    values = [float(hilbert.states_at_index(site)[int(i)]) for site, i in zip(sites, indices, strict=True)]
    return f"({', '.join(f'{value:g}' for value in values)})"


def most_elements(hilbert: Any, local: LocalTerms, sizes: np.ndarray) -> int:
    """How many connected elements off the diagonal a sample can have, or a little more.

    Each term has at most those of its fullest row. With n conserved particles, which are on n sites at most, at most
    C(n, m) sets of m sites can all lose some, so the entries of those sets with most entries are an upper bound as
    well.
    """
    conserved, _ = sectors(hilbert)
    member = [set(sector.sites) for sector in conserved]
    fullest: dict[Any, int] = {}
    losing: dict[Any, dict[tuple[int, ...], int]] = {}
    total = 0
    by_set: dict[tuple[int, ...], int] = defaultdict(int)
    for where, entries in local:
        if entries.key not in fullest:
            off = entries.select(~entries.on_diagonal)
            counts = np.bincount(off.row, minlength=entries.size)
            fullest[entries.key] = int(counts.max(initial=0))
            losing[entries.key] = _losing(off, sizes[list(where)].tolist()) if conserved else {}
        total += fullest[entries.key]
        for positions, count in losing[entries.key].items():
            by_set[tuple(where[i] for i in positions if any(where[i] in of_sector for of_sector in member))] += count
    if not conserved:
        return total
    by_signature: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for places, count in by_set.items():
        by_signature[tuple(sum(site in of_sector for site in places) for of_sector in member)].append(count)
    bound = 0
    for signature, found in by_signature.items():
        n_sets = 1
        for sector, m in zip(conserved, signature, strict=True):
            n_sets *= math.comb(min(sector.total, len(sector.sites)), m)
        bound += sum(sorted(found, reverse=True)[:n_sets])
    return min(total, bound)


def _losing(off: Entries, sizes: list[int]) -> dict[tuple[int, ...], int]:
    """For each set of sites that lose particles, how many entries of a row it has at most."""
    before, after = digits(off.row, sizes), digits(off.column, sizes)
    counts: dict[tuple[tuple[int, ...], int], int] = defaultdict(int)
    for row, lost in zip(off.row.tolist(), after < before, strict=True):
        counts[tuple(np.flatnonzero(lost).tolist()), row] += 1
    result: dict[tuple[int, ...], int] = defaultdict(int)
    for (positions, _), count in counts.items():
        result[positions] = max(result[positions], count)
    return dict(result)


# Hermiticity and traces


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
