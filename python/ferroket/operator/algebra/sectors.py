"""What Hilbert spaces conserve: operators must not lead out of them, and may need fewer connected elements for it.

Sums of local states are known here. Constraints of a user's own are functions, to which operators are restricted.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from netket.hilbert import DiscreteHilbert, DoubledHilbert, TensorHilbert
from netket.hilbert.constraint import ExtraConstraint, SumConstraint, SumOnPartitionConstraint

from ferroket.operator.algebra.term_list import (
    TermList,
    equal_rows,
    group_of_rows,
    negated,
    popcount,
    runs,
    sites_of,
    words_of,
)
from ferroket.operator.compiled import Constraint, Constraints, Form, Restricted, site_bits

_LARGEST_SUPPORT = 10
"""On so many sites at most, all configurations are looked at to find how many elements there can be."""

_PROBES = 4


@dataclass(frozen=True)
class Sector:
    """A conserved number: in all configurations, the local indices of some sites have the same sum.

    Args:
        sites: These sites.
        total: The sum of their local indices. With two local states it is the number of sites in the second one.
        start: The first local state of these sites.
        step: The difference of neighbouring local states.
    """

    sites: tuple[int, ...]
    total: int
    start: float
    step: float

    @property
    def value(self) -> float:
        """The sum of the local states."""
        return self.start * len(self.sites) + self.step * self.total


def sectors(hilbert: Any) -> tuple[list[Sector], bool]:
    """The conserved numbers of a Hilbert space, and whether they are all of its constraints."""
    found, own = _constraints(hilbert)
    return found, not own


def _constraints(hilbert: Any) -> tuple[list[Sector], list[tuple[int, int, Any]]]:
    """The conserved numbers of a Hilbert space, and its other constraints: the first site, how many, and what it is."""
    if isinstance(hilbert, TensorHilbert):
        spaces = list(hilbert.subspaces)
    elif isinstance(hilbert, DoubledHilbert):
        spaces = [hilbert.physical] * 2
    else:
        constraint = getattr(hilbert, "constraint", None)
        if constraint is None:
            # A space may know by itself what it has, and doesn't say.
            return [], [(0, hilbert.size, None)] if getattr(hilbert, "constrained", False) else []
        return _of_constraint(constraint, hilbert)
    found, own, first = [], [], 0
    for space in spaces:
        parts, others = _constraints(space)
        found += [Sector(tuple(first + i for i in part.sites), part.total, part.start, part.step) for part in parts]
        own += [(first + start, size, constraint) for start, size, constraint in others]
        first += space.size
    return found, own


def _of_constraint(constraint: Any, hilbert: Any) -> tuple[list[Sector], list[tuple[int, int, Any]]]:
    def sector(first: int, size: int, value: float) -> Sector:
        states = hilbert._local_states
        total = round((value - states.start * size) / states.step)
        return Sector(tuple(range(first, first + size)), total, float(states.start), float(states.step))

    if isinstance(constraint, SumConstraint):
        return [sector(0, hilbert.size, constraint.sum_value)], []
    if isinstance(constraint, SumOnPartitionConstraint):
        ends = np.cumsum(constraint.sizes).tolist()
        parts = zip(ends, constraint.sizes, constraint.sum_values, strict=True)
        return [sector(end - size, size, value) for end, size, value in parts if value is not None], []
    if isinstance(constraint, ExtraConstraint):
        base, others = _of_constraint(constraint.base_constraint, hilbert)
        extra, more = _of_constraint(constraint.extra_constraint, hilbert)
        return base + extra, others + more
    return [], [(0, hilbert.size, constraint)]


@functools.lru_cache(maxsize=256)
def own_constraints(hilbert: Any) -> Constraints:
    """The constraints of a Hilbert space that are a user's own; none, if all are sums of local states.

    Raises:
        TypeError: If one can't be evaluated in JAX.
    """
    if not isinstance(hilbert, DiscreteHilbert):
        return ()
    _, own = _constraints(hilbert)
    for _, size, constraint in own:
        _check_constraint(constraint, size, hilbert)
    return tuple(Constraint(*each) for each in own)


def _check_constraint(constraint: Any, size: int, hilbert: Any) -> None:
    mend = (
        "give the space a subclass of nk.hilbert.constraint.DiscreteHilbertConstraint that says by jax.numpy, or by "
        "numpy in a jax.pure_callback, which of the configurations (n, N) are allowed, as n booleans"
    )
    name = type(constraint).__name__
    if constraint is None:
        raise TypeError(f"{hilbert!r} has a constraint, but no function that tells what it allows: {mend}")
    n = 2
    try:
        dtype = getattr(getattr(hilbert, "_local_states", None), "dtype", np.int8)
        states = jax.ShapeDtypeStruct((n, size), dtype)
        found = jax.eval_shape(constraint, states)
    except Exception as error:
        raise TypeError(
            f"the constraint {name} of {hilbert!r} can't be traced by JAX, which evaluates it on connected "
            f"configurations and proposed moves ({type(error).__name__}): {mend}"
        ) from error
    if getattr(found, "shape", None) != (n,):
        raise TypeError(
            f"the constraint {name} of {hilbert!r} gives {found} for {n} configurations of {size} sites: {mend}"
        )


def restricted(form: Form, hilbert: Any) -> Form:
    """A form without the elements that constraints of the user's own forbid; as it is, if there are none."""
    constraints = own_constraints(hilbert)
    return Restricted(form, constraints) if constraints else form


def leaving(hilbert: Any, sector: Sector, before: str, after: str, change: int) -> ValueError:
    """The error for an operator that leads out of its Hilbert space.

    Args:
        hilbert: The space.
        sector: Which of its conserved numbers changes.
        before: The local states of some sites, in words.
        after: The local states of the same sites that they go to.
        change: How much the sum of the local indices changes.
    """
    which = "all sites" if len(sector.sites) == hilbert.size else f"the sites {sector.sites[0]} to {sector.sites[-1]}"
    return ValueError(
        f"the operator leads out of {hilbert!r}: it has a term that takes {before} to {after}, which changes the sum "
        f"of the local states of {which} by {change * sector.step:+g}, while the space fixes it to {sector.value:g}. "
        "Add the terms that cancel this one, or take a space without the constraint"
    )


# Non-branching terms


def confined(terms: TermList, hilbert: Any) -> TermList:
    """The terms of an operator, none of which leads out of the conserved sectors of the space.

    Raises:
        ValueError: If the operator itself leads out.
    """
    conserved, _ = sectors(hilbert)
    if not conserved:
        return terms.merged()
    bits = site_bits(terms.n_sites)
    members = [words_of(np.array([sector.sites]), bits)[0] for sector in conserved]
    terms = _possible(terms.merged(), conserved, members)

    # Where half the sites of a sector are in the second state, flipping all of them keeps it so.
    stays = np.ones(len(terms), bool)
    for sector, member in zip(conserved, members, strict=True):
        flipped = terms.flip & member
        whole = (flipped == member).all(axis=1) & (2 * sector.total == len(sector.sites))
        stays &= whole | ~flipped.any(axis=1)
    staying, terms = terms[stays], terms[~stays]

    # Any other term that flips a site both ways is two terms, of which only one may be allowed.
    everywhere = np.bitwise_or.reduce(members)
    _probe(terms, everywhere, conserved, members, hilbert)
    terms = _possible(terms.looking_at(lambda terms: terms.flip & everywhere), conserved, members)

    changes = _changes(terms, members)
    leaks = changes.any(axis=1)
    if leaks.any():
        _check_cancelled(terms[leaks], conserved, hilbert)
    return staying + terms[~leaks]


def _possible(terms: TermList, conserved: Sequence[Sector], members: Sequence[np.ndarray]) -> TermList:
    """The terms without those that want more, or fewer, particles than there are."""
    possible = np.ones(len(terms), bool)
    for sector, member in zip(conserved, members, strict=True):
        ones = popcount(terms.pattern & member)
        zeros = popcount(terms.mask & ~terms.pattern & member)
        possible &= (ones <= sector.total) & (zeros <= len(sector.sites) - sector.total)
    return terms[possible]


def _changes(terms: TermList, members: Sequence[np.ndarray]) -> np.ndarray:
    """By how much each term changes each conserved number, ``(T, n_sectors)``, if it looks at all that it flips."""
    up = terms.flip & ~terms.pattern
    down = terms.flip & terms.pattern
    return np.stack([popcount(up & member) - popcount(down & member) for member in members], axis=1)


def _check_cancelled(terms: TermList, conserved: Sequence[Sector], hilbert: Any) -> None:
    """Raises the error if terms that lead out aren't zero together."""
    # With all but the flipped sites in signs, what isn't zero has terms.
    left = terms.in_signs(lambda terms: terms.mask & ~terms.flip)
    if not len(left):
        return
    scale = np.abs(terms.values).max()
    which = int(np.abs(left.values).argmax())
    if np.abs(left.values[which]) <= 1e-12 * scale:
        return
    bits = site_bits(terms.n_sites)
    change = _changes(left[which : which + 1], [words_of(np.array([s.sites]), bits)[0] for s in conserved])[0]
    index = int(np.flatnonzero(change)[0])
    raise _leaving(hilbert, conserved[index], left.flip[which], left.pattern[which], int(change[index]))


def _leaving(hilbert: Any, sector: Sector, flip: np.ndarray, pattern: np.ndarray, change: int) -> ValueError:
    sites = np.flatnonzero(sites_of(flip, hilbert.size))
    before = sites_of(pattern, hilbert.size)[sites]
    states = [hilbert.states_at_index(int(site)) for site in sites]

    def words(indices: np.ndarray) -> str:
        local = ", ".join(f"{float(of_site[int(i)]):g}" for of_site, i in zip(states, indices, strict=True))
        return f"the local states ({local})"

    return leaving(hilbert, sector, f"{words(before)} of the sites {tuple(sites.tolist())}", words(~before), change)


def _probe(
    terms: TermList, everywhere: np.ndarray, conserved: Sequence[Sector], members: Sequence[np.ndarray], hilbert: Any
) -> None:
    """Raises the error for terms that flip many sites if, from random configurations, they lead out.

    An operator that leads out does so for almost all of them, and then it needn't be written as the very many terms
    that look at all the sites that they flip.
    """
    rng, bits = np.random.default_rng(0), site_bits(terms.n_sites)
    many = popcount(terms.flip & ~terms.mask & everywhere) > _LARGEST_SUPPORT
    if not many.any():
        return
    for same in equal_rows(terms.flip):
        if not many[same].any():
            continue
        group = terms[same]
        flip = group.flip
        for _ in range(_PROBES):
            state = rng.integers(0, 1 << 32, size=flip.shape[1], dtype=np.uint32) & ~everywhere
            for sector in conserved:  # a configuration that the space has
                state |= words_of(rng.permutation(sector.sites)[None, : sector.total], bits)[0]
            state &= flip[0]
            fixed = TermList(
                group.n_sites,
                flip,
                group.mask | flip,
                (group.pattern & ~flip) | state,
                group.sign & ~flip,
                negated(group.values, group.sign & flip & state),
            )[~((group.pattern ^ state) & group.mask & flip).any(axis=1)]
            fixed = _possible(fixed.merged(), conserved, members)
            changes = _changes(fixed, members)
            leaks = changes.any(axis=1)
            if leaks.any():
                _check_cancelled(fixed[leaks], conserved, hilbert)


def most_elements(terms: TermList, hilbert: Any) -> int:
    """How many connected elements off the diagonal a sample can have, or a little more.

    It is the least of the number of flips, of a sum over small sets of sites of the most that any configuration there
    has, and of a count of how often the conserved particles and holes can be where the terms want them.
    """
    terms = terms[terms.flip.any(axis=1)]
    if not len(terms):
        return 0
    group, n_groups = group_of_rows(terms.flip)
    bounds = [n_groups, _most_by_supports(terms, group)]
    conserved, _ = sectors(hilbert)
    if conserved:
        bounds.append(_most_by_particles(terms, group, conserved))
    return min(bounds)


def _most_by_supports(terms: TermList, group: np.ndarray) -> int:
    """The groups of terms that look at the same few sites, at most so many of which can be active together."""
    n_groups = int(group.max()) + 1
    support = np.zeros((n_groups, terms.mask.shape[1]), np.uint32)
    np.bitwise_or.at(support, group, terms.mask)
    by_group = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[by_group], np.arange(n_groups + 1))
    small = (popcount(support) <= _LARGEST_SUPPORT) & support.any(axis=1)
    total = int((~small).sum())
    candidates = np.flatnonzero(small)
    for same in equal_rows(support[candidates]):
        together = candidates[same]
        if together.size == 1:
            total += 1
            continue
        sites = np.flatnonzero(sites_of(support[together[0]], terms.n_sites))
        bits = site_bits(terms.n_sites)[sites]
        configurations = (np.arange(1 << sites.size)[:, None] >> np.arange(sites.size)) & 1
        words = np.bitwise_or.reduce(np.where(configurations[..., None] == 1, bits, np.uint32(0)), axis=1)
        active = np.zeros(len(words), np.int64)
        for g in together:
            of_group = by_group[bounds[g] : bounds[g + 1]]
            fits = ~((words[:, None] ^ terms.pattern[of_group]) & terms.mask[of_group]).any(axis=2)
            active += fits.any(axis=1)
        total += int(active.max())
    return total


def _most_by_particles(terms: TermList, group: np.ndarray, conserved: Sequence[Sector]) -> int:
    """A count of where the particles and holes of each sector can be.

    A term wants particles on some sites, A, and holes on others, B. With n particles, at most C(n, m) sets A of m sites
    are full, so at most the groups of the C(n, m) sets that are wanted by most of them are active; likewise for holes,
    and for pairs of A and B. The terms are counted by the numbers of particles and of holes, and by either alone.
    """
    bits = site_bits(terms.n_sites)
    members = np.stack([words_of(np.array([sector.sites]), bits)[0] for sector in conserved])
    everywhere = np.bitwise_or.reduce(members)
    wanted = terms.pattern & everywhere
    avoided = terms.mask & ~terms.pattern & everywhere
    rows = np.concatenate([group[:, None].astype(np.uint32), wanted, avoided], axis=1)
    order, starts = runs(rows)
    chosen = order[starts]
    group, wanted, avoided = group[chosen], wanted[chosen], avoided[chosen]
    minimal = _minimal(group, wanted, avoided)
    group, wanted, avoided = group[minimal], wanted[minimal], avoided[minimal]

    particles = np.stack([popcount(wanted & member) for member in members], axis=1).astype(np.uint32)
    holes = np.stack([popcount(avoided & member) for member in members], axis=1).astype(np.uint32)
    n_particles = [sector.total for sector in conserved]
    n_holes = [len(sector.sites) - sector.total for sector in conserved]

    def by_particles(same: np.ndarray) -> int:
        return _largest(wanted[same], group[same], _choices(n_particles, particles[same[0]]))

    def by_holes(same: np.ndarray) -> int:
        return _largest(avoided[same], group[same], _choices(n_holes, holes[same[0]]))

    def by_both(same: np.ndarray) -> int:
        choices = _choices(n_particles, particles[same[0]]) * _choices(n_holes, holes[same[0]])
        pairs = np.concatenate([wanted[same], avoided[same]], axis=1)
        at_most = _largest(pairs, group[same], choices)
        return min(np.unique(group[same]).size, by_particles(same), by_holes(same), at_most)

    return min(
        sum(map(by_particles, equal_rows(particles))),
        sum(map(by_holes, equal_rows(holes))),
        sum(map(by_both, equal_rows(np.concatenate([particles, holes], axis=1)))),
    )


def _choices(numbers: Sequence[int], chosen: np.ndarray) -> int:
    """In how many ways one can choose so many out of so many, in each sector."""
    return math.prod(math.comb(number, int(m)) for number, m in zip(numbers, chosen, strict=True))


def _largest(sets: np.ndarray, group: np.ndarray, n: int) -> int:
    """How many groups the ``n`` sets have that have most of them."""
    rows = np.concatenate([sets, group[:, None].astype(np.uint32)], axis=1)
    order, starts = runs(rows)
    kept = sets[order[starts]]
    _, firsts = runs(kept)
    counts = np.diff([*firsts, len(kept)])
    return int(np.sort(counts)[::-1][: min(n, counts.size)].sum())


def _minimal(group: np.ndarray, wanted: np.ndarray, avoided: np.ndarray) -> np.ndarray:
    """Which terms aren't active only where another of their group is active as well."""
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(int(group.max()) + 2))
    minimal = np.ones(len(group), bool)
    for g in np.flatnonzero(np.diff(bounds) > 1):
        of_group = order[bounds[g] : bounds[g + 1]]
        if of_group.size > 512:  # noqa: PLR2004
            continue  # the pairs would be too many, and the count is right without
        more = np.concatenate([wanted[of_group], avoided[of_group]], axis=1)
        contains = ~(more[None, :, :] & ~more[:, None, :]).any(axis=2)  # [a, b]: a has all that b has
        np.fill_diagonal(contains, val=False)
        minimal[of_group] = ~contains.any(axis=1)
    return minimal


def trace(terms: TermList, hilbert: Any) -> complex | None:
    """The trace in a space whose constraints are all known; None if they aren't."""
    conserved, complete = sectors(hilbert)
    if not complete or len({site for s in conserved for site in s.sites}) < sum(len(s.sites) for s in conserved):
        return None
    terms = terms[~terms.flip.any(axis=1)].merged()
    in_sectors = {site for sector in conserved for site in sector.sites}
    free = [site for site in range(terms.n_sites) if site not in in_sectors]
    masks, patterns, signs = (sites_of(words, terms.n_sites) for words in (terms.mask, terms.pattern, terms.sign))
    total = 0j
    for value, mask, pattern, sign in zip(terms.values, masks, patterns, signs, strict=True):
        if sign[free].any():
            continue
        count = 1 << int((~mask[free]).sum())
        for sector in conserved:
            sites = list(sector.sites)
            left, n = int((~mask[sites]).sum()), sector.total - int(pattern[sites].sum())
            count *= _signed_count(left, n, int(sign[sites].sum()))
        total += complex(value) * count
    return total


def _signed_count(n_sites: int, n: int, n_signs: int) -> int:
    """The number of ways to put n particles on sites; an odd number on the first ``n_signs`` of them counts as -1."""
    return sum(
        (-1) ** j * math.comb(n_signs, j) * math.comb(n_sites - n_signs, n - j) for j in range(min(n_signs, n) + 1)
    )
