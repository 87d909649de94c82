"""Sums of terms and of local matrices, without what leads out of their Hilbert space.

What changes a conserved charge must cancel. Limits on the occupation of sites project the operator: P O P.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferroket.operator.compiled.masks import Runs, popcount, site_bits, sites_of, words_of
from ferroket.operator.constraints.hilbert import (
    ConservedCharge,
    conserved_charges,
    masks_of_charges,
    masks_of_limits,
    site_limits,
    violation_error,
)
from ferroket.operator.sums.local_matrices import Entries, LocalTerms, digits
from ferroket.operator.sums.term_list import TermList, negated

_MANY_FLIPS = 10
"""Terms that flip more sites than this are tried on random configurations before they are written as patterns."""

_PROBES = 4
"""On so many configurations."""


_FEW_SPINS = 4
"""Terms that look at more spins aren't tried in signs: they are 2ⁿ terms there."""


# Non-branching terms


def conserving_terms(terms: TermList, hilbert: Any) -> TermList:
    """The terms of an operator, none of which leads out of its space.

    Raises:
        ValueError: If the operator itself leads out.
    """
    conserved, _ = conserved_charges(hilbert)
    if not conserved:
        return terms.merged()
    members = masks_of_charges(conserved, terms.n_sites)
    terms = _possible(terms.merged(), conserved, members)

    # Where half the sites of a charge are in the second state, flipping all of them keeps it so.
    stays = np.ones(len(terms), bool)
    for charge, member in zip(conserved, members, strict=True):
        flipped = terms.flip & member
        whole = (flipped == member).all(axis=1) & (2 * charge.total == len(charge.sites))
        stays &= whole | ~flipped.any(axis=1)
    staying, terms = terms[stays], terms[~stays]

    # Any other term that flips a site both ways is two terms, of which only one may be allowed.
    everywhere = np.bitwise_or.reduce(members)
    _try_random_configurations(terms, conserved, members, hilbert)
    terms = _possible(terms.looking_at(lambda terms: terms.flip & everywhere), conserved, members)

    changes = _changes(terms, members)
    leaks = changes.any(axis=1)
    if leaks.any():
        _check_cancelled(terms[leaks], conserved, hilbert)
    return staying + terms[~leaks]


def within_limits(terms: TermList, hilbert: Any) -> TermList:
    """The terms of P O P for an operator O, where P projects on the configurations within the limits of the sites.

    Whether the configuration that a term leads to is within the limits of a site depends on all modes there. So terms
    look at all modes of the sites where they flip some.

    Raises:
        MemoryError: If there are too many such terms.
    """
    limits = site_limits(hilbert)
    if not limits:
        return terms
    spins = _spins(hilbert)
    terms = _with_first_modes(terms, spins)
    others = [limit for limit in limits if not limit.is_spin]
    members = masks_of_limits(others, terms.n_sites)
    first_modes = _union(terms.n_sites, [first for first, _ in spins])

    def flipped_sites(terms: TermList) -> np.ndarray:
        union = terms.flip & first_modes
        for member in members:
            union |= np.where((terms.flip & member).any(axis=1)[:, None], member, np.uint32(0))
        return union

    terms = terms.looking_at(flipped_sites)
    stays = np.ones(len(terms), bool)
    after = terms.pattern ^ (terms.flip & terms.mask)
    for limit, member in zip(others, members, strict=True):
        (rows,) = np.nonzero((terms.mask & member).any(axis=1))
        for words in (terms.pattern, after):
            ones = popcount(words[rows] & member)
            zeros = popcount(terms.mask[rows] & ~words[rows] & member)
            stays[rows] &= (ones <= limit.maximum) & (len(limit.modes) - zeros >= limit.minimum)
    return _with_both_modes(terms[stays], spins)


def in_spins(terms: TermList, hilbert: Any) -> TermList:
    """The same operator within the limits of the sites, in fewer terms where sites have exactly one of two modes.

    Such a site is a spin: terms look at its first mode alone, and have signs, as Pauli's Z, where these are fewer.
    """
    spins = _spins(hilbert)
    if not spins:
        return terms
    terms = _with_first_modes(terms, spins)
    first_modes = _union(terms.n_sites, [first for first, _ in spins])
    tried = popcount(terms.mask & ~terms.flip & first_modes) <= _FEW_SPINS
    whole = terms[tried]
    try:
        signed = whole.in_signs(lambda terms: terms.mask & ~terms.flip & first_modes)
    except MemoryError:  # patterns say the same
        return terms
    groups = Runs.of(np.concatenate([whole.flip, signed.flip]))
    of_whole, of_signed = groups.run_of_row[: len(whole)], groups.run_of_row[len(whole) :]
    in_patterns, in_signs = (np.bincount(group, minlength=len(groups)) for group in (of_whole, of_signed))
    better = in_signs < in_patterns
    return TermList.total(terms.n_sites, [terms[~tried], whole[~better[of_whole]], signed[better[of_signed]]]).merged()


def _spins(hilbert: Any) -> list[tuple[int, int]]:
    """The two modes of each site that has exactly one of them."""
    return [(limit.modes[0], limit.modes[1]) for limit in site_limits(hilbert) if limit.is_spin]


def _union(n_sites: int, modes: Sequence[int]) -> np.ndarray:
    """The word of some modes, ``(W,)``."""
    bits = site_bits(n_sites)
    return np.bitwise_or.reduce(bits[np.asarray(modes, np.intp)], axis=0, initial=np.uint32(0))


def _with_first_modes(terms: TermList, spins: Sequence[tuple[int, int]]) -> TermList:
    """The terms that keep one of two modes, looking at the first of them alone."""
    terms = terms.merged()
    mask, pattern, sign, values = terms.mask.copy(), terms.pattern.copy(), terms.sign.copy(), terms.values.copy()
    stays = np.ones(len(terms), bool)
    for first, second in spins:
        stays &= _has(terms.flip, first) == _has(terms.flip, second)
        # Where the second mode is full, the first one is empty.
        sees, wants = _has(mask, second), _has(pattern, second)
        stays &= ~(sees & _has(mask, first) & (_has(pattern, first) == wants))
        _set(mask, first, _has(mask, first) | sees)
        _set(pattern, first, np.where(sees, ~wants, _has(pattern, first)))
        has_sign = _has(sign, second)
        _set(sign, first, _has(sign, first) ^ has_sign)
        values[has_sign] *= -1
        for words in (mask, pattern, sign):
            _set(words, second, np.zeros(len(words), bool))
    return TermList(terms.n_sites, terms.flip, mask, pattern, sign, values)[stays].merged()


def _with_both_modes(terms: TermList, spins: Sequence[tuple[int, int]]) -> TermList:
    """Terms that look at the first mode of a site that they flip, looking at its second one, too."""
    mask, pattern = terms.mask.copy(), terms.pattern.copy()
    for first, second in spins:
        flips = _has(terms.flip, second)
        _set(mask, second, _has(mask, second) | flips)
        _set(pattern, second, np.where(flips, ~_has(pattern, first), _has(pattern, second)))
    return TermList(terms.n_sites, terms.flip, mask, pattern, terms.sign, terms.values)


def _has(words: np.ndarray, mode: int) -> np.ndarray:
    """Which rows ``(T, W)`` have the bit of a mode."""
    return (words[:, mode // 32] >> np.uint32(mode % 32)) & np.uint32(1) == 1


def _set(words: np.ndarray, mode: int, bits: np.ndarray) -> None:
    """Sets the bit of a mode in each row ``(T, W)``."""
    word, bit = words[:, mode // 32], np.uint32(1 << (mode % 32))
    words[:, mode // 32] = np.where(bits, word | bit, word & ~bit)


def _possible(terms: TermList, conserved: Sequence[ConservedCharge], members: np.ndarray) -> TermList:
    """The terms without those that want more, or fewer, particles than there are."""
    possible = np.ones(len(terms), bool)
    for charge, member in zip(conserved, members, strict=True):
        ones = popcount(terms.pattern & member)
        zeros = popcount(terms.mask & ~terms.pattern & member)
        possible &= (ones <= charge.total) & (zeros <= len(charge.sites) - charge.total)
    return terms[possible]


def _changes(terms: TermList, members: np.ndarray) -> np.ndarray:
    """By how much each term changes each conserved number, ``(T, n_charges)``, if it looks at all that it flips."""
    up = terms.flip & ~terms.pattern
    down = terms.flip & terms.pattern
    return np.stack([popcount(up & member) - popcount(down & member) for member in members], axis=1)


def _check_cancelled(terms: TermList, conserved: Sequence[ConservedCharge], hilbert: Any) -> None:
    """Raises the error if terms that lead out aren't zero together."""
    # With all but the flipped sites in signs, what isn't zero has terms.
    left = terms.in_signs(lambda terms: terms.mask & ~terms.flip)
    if not len(left):
        return
    scale = np.abs(terms.values).max()
    which = int(np.abs(left.values).argmax())
    if np.abs(left.values[which]) <= 1e-12 * scale:
        return
    change = _changes(left[which : which + 1], masks_of_charges(conserved, terms.n_sites))[0]
    index = int(np.flatnonzero(change)[0])
    raise _error(hilbert, conserved[index], left.flip[which], left.pattern[which], int(change[index]))


def _error(hilbert: Any, charge: ConservedCharge, flip: np.ndarray, pattern: np.ndarray, change: int) -> ValueError:
    sites = np.flatnonzero(sites_of(flip, hilbert.size))
    before = sites_of(pattern, hilbert.size)[sites]
    states = [hilbert.states_at_index(int(site)) for site in sites]

    def words(indices: np.ndarray) -> str:
        local = ", ".join(f"{float(of_site[int(i)]):g}" for of_site, i in zip(states, indices, strict=True))
        return f"the local states ({local})"

    return violation_error(
        hilbert, charge, f"{words(before)} of the sites {tuple(sites.tolist())}", words(~before), change
    )


def _try_random_configurations(
    terms: TermList, conserved: Sequence[ConservedCharge], members: np.ndarray, hilbert: Any
) -> None:
    """Raises the error for terms that flip many sites if, from random configurations, they lead out.

    An operator that leads out does so for almost all of them, and then it needn't be written as the very many terms
    that look at all the sites that they flip.
    """
    rng, bits = np.random.default_rng(0), site_bits(terms.n_sites)
    everywhere = np.bitwise_or.reduce(members)
    flips_many = popcount(terms.flip & ~terms.mask & everywhere) > _MANY_FLIPS
    if not flips_many.any():
        return
    for rows in Runs.of(terms.flip).rows_of_runs():
        if not flips_many[rows].any():
            continue
        for _ in range(_PROBES):
            fixed = _fixed(terms[rows], _random_configuration(rng, conserved, bits, everywhere))
            fixed = _possible(fixed.merged(), conserved, members)
            leaks = _changes(fixed, members).any(axis=1)
            if leaks.any():
                _check_cancelled(fixed[leaks], conserved, hilbert)


def _random_configuration(
    rng: np.random.Generator, conserved: Sequence[ConservedCharge], bits: np.ndarray, everywhere: np.ndarray
) -> np.ndarray:
    """A configuration that the space has, as a mask of the sites in the second state, ``(W,)``."""
    state = rng.integers(0, 1 << 32, size=bits.shape[1], dtype=np.uint32) & ~everywhere
    for charge in conserved:
        state |= words_of(rng.permutation(charge.sites)[None, : charge.total], bits)[0]
    return state


def _fixed(terms: TermList, state: np.ndarray) -> TermList:
    """Terms that flip the same sites, for configurations that have there what ``state`` has: without signs there."""
    flip = terms.flip
    state = state & flip[0]
    agree = ~((terms.pattern ^ state) & terms.mask & flip).any(axis=1)
    return TermList(
        terms.n_sites,
        flip,
        terms.mask | flip,
        (terms.pattern & ~flip) | state,
        terms.sign & ~flip,
        negated(terms.values, terms.sign & flip & state),
    )[agree]


# Local matrices


def conserving_matrices(local: LocalTerms, hilbert: Any, sizes: np.ndarray) -> LocalTerms:
    """Local matrices without the entries that lead out of a space.

    Raises:
        ValueError: If these don't cancel.
    """
    conserved, _ = conserved_charges(hilbert)
    if not conserved:
        return local
    member = [set(charge.sites) for charge in conserved]
    result, leaks = [], []
    judged: dict[Any, tuple[np.ndarray, np.ndarray]] = {}
    for where, entries in local:
        key = (entries.key, tuple(tuple(site in of_charge for site in where) for of_charge in member))
        if key not in judged:
            judged[key] = _leaving_and_possible(where, entries, sizes, conserved, member)
        leaves, possible = judged[key]
        if (leaves & possible).any():
            leaks.append((where, entries.select(leaves & possible)))
        result.append((where, entries.select(~leaves & possible) if (leaves | ~possible).any() else entries))
    if leaks:
        _check_matrices_cancelled(hilbert, leaks, sizes, conserved, member)
    return result


def _leaving_and_possible(
    where: tuple[int, ...],
    entries: Entries,
    sizes: np.ndarray,
    conserved: Sequence[ConservedCharge],
    member: Sequence[set[int]],
) -> tuple[np.ndarray, np.ndarray]:
    """Which entries change a conserved number, and which have rows that a configuration of the space can have."""
    of_sites = sizes[list(where)].tolist()
    before, after = digits(entries.row, of_sites), digits(entries.column, of_sites)
    leaves = np.zeros(len(entries.values), bool)
    possible = np.ones(len(entries.values), bool)
    for charge, of_charge in zip(conserved, member, strict=True):
        inside = np.array([site in of_charge for site in where], bool)
        total = before[:, inside].sum(axis=1)
        leaves |= after[:, inside].sum(axis=1) != total
        elsewhere = int((sizes[list(charge.sites)] - 1).sum()) - int((sizes[list(where)] - 1)[inside].sum())
        possible &= (total <= charge.total) & (charge.total - total <= elsewhere)
    return leaves, possible


def _check_matrices_cancelled(
    hilbert: Any,
    leaks: LocalTerms,
    sizes: np.ndarray,
    conserved: Sequence[ConservedCharge],
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
        for charge, of_charge in zip(conserved, member, strict=True):
            change = sum(int(b) - int(a) for site, a, b in zip(sites, before, after, strict=True) if site in of_charge)
            if change:
                where = tuple(int(site) for site in sites)
                raise violation_error(
                    hilbert,
                    charge,
                    f"the local states {_states(hilbert, where, before)} of the sites {where}",
                    f"the local states {_states(hilbert, where, after)}",
                    change,
                )


def _states(hilbert: Any, sites: Sequence[int], indices: Sequence[int]) -> str:
    values = [float(hilbert.states_at_index(site)[int(i)]) for site, i in zip(sites, indices, strict=True)]
    return f"({', '.join(f'{value:g}' for value in values)})"
