"""How many connected elements a sample can have at most, as far as can be said without looking at all samples."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ferroket.operator.compiled.masks import Runs, popcount, site_bits, sites_of
from ferroket.operator.constraints.hilbert import (
    ConservedCharge,
    SiteLimit,
    conserved_charges,
    masks_of_charges,
    masks_of_limits,
    site_limits,
)
from ferroket.operator.sums.local_matrices import Entries, LocalTerms, digits
from ferroket.operator.sums.term_list import TermList

_FEW_SITES = 10
"""All configurations of so many sites, at most, are looked at."""

_FEW_TERMS = 512
"""Among so many terms of a flip, at most, each pair is looked at."""


def _n_choices(numbers: Sequence[int], chosen: Iterable[int]) -> int:
    """In how many ways one can choose so many out of so many, for each charge."""
    return math.prod(math.comb(number, int(m)) for number, m in zip(numbers, chosen, strict=True))


def _sum_of_largest(counts: Iterable[int], n: int) -> int:
    """The sum of the n largest numbers."""
    return sum(sorted(map(int, counts), reverse=True)[:n])


# Non-branching terms


def most_elements(terms: TermList, hilbert: Any) -> int:
    """How many connected elements off the diagonal a sample can have, or a little more.

    Each set of flipped sites, a flip for short, is one element if any of its terms is active: if the sample has what
    this term wants. The result is the least of the number of flips, of a sum over small sets of sites of the most that
    any configuration there has, and of a count of how often the conserved particles and holes can be where the terms
    want them.
    """
    terms = terms[terms.flip.any(axis=1)]
    if not len(terms):
        return 0
    flips = Runs.of(terms.flip)
    bounds = [len(flips), _most_by_configurations(terms, flips, site_limits(hilbert))]
    conserved, _ = conserved_charges(hilbert)
    if conserved:
        bounds.append(_most_by_particles(terms, flips, conserved))
    return min(bounds)


def _most_by_configurations(terms: TermList, flips: Runs, limits: Sequence[SiteLimit]) -> int:
    """The sum, over sets of a few sites, of the most flips that a configuration of these sites activates.

    Configurations are within the ``limits`` of sites. A flip belongs to the sites that its terms look at. Those that
    look at many sites, or at none, count one each.
    """
    rows_of_flip = flips.rows_of_runs()
    members = masks_of_limits(limits, terms.n_sites) if limits else np.zeros((0, terms.flip.shape[1]), np.uint32)
    looked_at = flips.unions(terms.mask)
    few = np.flatnonzero((popcount(looked_at) <= _FEW_SITES) & looked_at.any(axis=1))
    total = len(flips) - few.size
    for same in Runs.of(looked_at[few]).rows_of_runs():
        groups = [rows_of_flip[flip] for flip in few[same]]
        total += 1 if len(groups) == 1 else _most_active(terms, groups, looked_at[few[same[0]]], limits, members)
    return total


def _most_active(
    terms: TermList,
    flips: Sequence[np.ndarray],
    support: np.ndarray,
    limits: Sequence[SiteLimit],
    members: np.ndarray,
) -> int:
    """How many of some flips, given by the rows of their terms, one configuration of the ``support`` activates."""
    bits = site_bits(terms.n_sites)[sites_of(support, terms.n_sites)]
    occupied = (np.arange(1 << len(bits))[:, None] >> np.arange(len(bits))) & 1
    configurations = np.bitwise_or.reduce(np.where(occupied[..., None] == 1, bits, np.uint32(0)), axis=1)
    for which in np.flatnonzero((members & support).any(axis=1)).tolist():
        limit, member = limits[which], members[which]
        n_elsewhere = len(limit.modes) - int(popcount((member & support)[None])[0])
        ones = popcount(configurations & member)
        configurations = configurations[(ones <= limit.maximum) & (ones + n_elsewhere >= limit.minimum)]
    n_active = np.zeros(len(configurations), np.int64)
    for rows in flips:
        fits = ~((configurations[:, None] ^ terms.pattern[rows]) & terms.mask[rows]).any(axis=2)
        n_active += fits.any(axis=1)
    return int(n_active.max(initial=0))


def _most_by_particles(terms: TermList, flips: Runs, conserved: Sequence[ConservedCharge]) -> int:
    """A count of where the particles and holes of each charge can be.

    A term wants particles on some sites, A, and holes on others, B. With n particles, at most C(n, m) sets A of m sites
    are full, so at most the flips of the C(n, m) sets that are wanted by most of them are active; likewise for holes,
    and for pairs of A and B. The terms are counted by the numbers of particles and of holes, and by either alone.
    """
    members = masks_of_charges(conserved, terms.n_sites)
    n_particles = [charge.total for charge in conserved]
    n_holes = [len(charge.sites) - charge.total for charge in conserved]
    flip, wanted, avoided = _demands(terms, flips, np.bitwise_or.reduce(members))
    particles = np.stack([popcount(wanted & member) for member in members], axis=1).astype(np.uint32)
    holes = np.stack([popcount(avoided & member) for member in members], axis=1).astype(np.uint32)

    # Each of these takes the rows of demands for as many particles, or holes, or both, for each charge.

    def by_particles(rows: np.ndarray) -> int:
        return _in_fullest_sets(wanted[rows], flip[rows], _n_choices(n_particles, particles[rows[0]]))

    def by_holes(rows: np.ndarray) -> int:
        return _in_fullest_sets(avoided[rows], flip[rows], _n_choices(n_holes, holes[rows[0]]))

    def by_both(rows: np.ndarray) -> int:
        pairs = np.concatenate([wanted[rows], avoided[rows]], axis=1)
        n_pairs = _n_choices(n_particles, particles[rows[0]]) * _n_choices(n_holes, holes[rows[0]])
        n_flips = np.unique(flip[rows]).size
        return min(n_flips, by_particles(rows), by_holes(rows), _in_fullest_sets(pairs, flip[rows], n_pairs))

    return min(
        sum(map(by_particles, Runs.of(particles).rows_of_runs())),
        sum(map(by_holes, Runs.of(holes).rows_of_runs())),
        sum(map(by_both, Runs.of(np.concatenate([particles, holes], axis=1)).rows_of_runs())),
    )


def _demands(terms: TermList, flips: Runs, everywhere: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the terms want on the sites ``everywhere``: the number of their flip, where particles, and where holes.

    Each demand occurs once, and those that imply another one of the same flip are left out: their flip is active
    without them.
    """
    flip = flips.run_of_row
    wanted = terms.pattern & everywhere
    avoided = terms.mask & ~terms.pattern & everywhere
    distinct = Runs.of(np.concatenate([flip[:, None].astype(np.uint32), wanted, avoided], axis=1)).first
    flip, wanted, avoided = flip[distinct], wanted[distinct], avoided[distinct]

    needed = np.ones(len(flip), bool)
    for rows in Runs.of(flip[:, None].astype(np.uint32)).rows_of_runs():
        if 1 < rows.size <= _FEW_TERMS:  # among more, the pairs would be too many, and the count is right without
            demand = np.concatenate([wanted[rows], avoided[rows]], axis=1)
            implies = ~(demand[None, :, :] & ~demand[:, None, :]).any(axis=2)  # [a, b]: a wants all that b wants
            np.fill_diagonal(implies, val=False)
            needed[rows] = ~implies.any(axis=1)
    return flip[needed], wanted[needed], avoided[needed]


def _in_fullest_sets(sets: np.ndarray, flip: np.ndarray, n: int) -> int:
    """How many flips belong to the ``n`` sets that most flips belong to, of pairs of a set and a flip."""
    distinct = Runs.of(np.concatenate([sets, flip[:, None].astype(np.uint32)], axis=1)).first
    return _sum_of_largest(Runs.of(sets[distinct]).lengths, n)


# Local matrices


def most_elements_of_matrices(local: LocalTerms, hilbert: Any, sizes: np.ndarray) -> int:
    """How many connected elements off the diagonal a sample can have, or a little more.

    Each matrix has at most those of its fullest row. With n conserved particles, which are on n sites at most, at most
    C(n, m) sets of m sites can all lose some, so the entries of those sets with most entries are an upper bound as
    well.

    Args:
        local: Sites and matrices.
        hilbert: The Hilbert space.
        sizes: The number of local states of each site.
    """
    conserved, _ = conserved_charges(hilbert)
    member = [set(charge.sites) for charge in conserved]
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
            by_set[tuple(where[i] for i in positions if any(where[i] in of_charge for of_charge in member))] += count
    if not conserved:
        return total
    by_numbers: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for places, count in by_set.items():
        by_numbers[tuple(sum(site in of_charge for site in places) for of_charge in member)].append(count)
    at_most = [min(charge.total, len(charge.sites)) for charge in conserved]  # sites with particles
    bound = sum(_sum_of_largest(counts, _n_choices(at_most, chosen)) for chosen, counts in by_numbers.items())
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
