"""How many connected elements there can be, counted one by one, with sets of sites."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import comb, prod

Sites = frozenset[int]
Sector = tuple[Sites, int]
"""Some sites, and how many of them are in the second state."""


@dataclass(frozen=True)
class Term:
    """A term that flips some sites of a sample if that has particles on some, and holes on others."""

    flip: Sites
    particles: Sites
    holes: Sites


def n_active(terms: Iterable[Term], occupied: Sites) -> int:
    """How many flips, each of some terms, a configuration has."""
    return len({term.flip for term in terms if term.particles <= occupied and not term.holes & occupied})


def most_by_particles(terms: Iterable[Term], sectors: Sequence[Sector]) -> int:
    """How many flips there can be, since so many particles and holes are on so few of the sets that terms want."""
    everywhere = frozenset().union(*(sites for sites, _ in sectors))
    demands = {Term(term.flip, term.particles & everywhere, term.holes & everywhere) for term in terms}
    needed = [demand for demand in demands if not any(_implies(demand, other) for other in demands)]

    def numbers(sites: Sites) -> tuple[int, ...]:
        return tuple(len(sites & of_sector) for of_sector, _ in sectors)

    def n_full(term: Term) -> int:
        return prod(comb(total, m) for (_, total), m in zip(sectors, numbers(term.particles), strict=True))

    def n_empty(term: Term) -> int:
        return prod(comb(len(s) - total, m) for (s, total), m in zip(sectors, numbers(term.holes), strict=True))

    def by_particles(alike: list[Term]) -> int:
        return _flips_of_fullest([(term.particles, term.flip) for term in alike], n_full(alike[0]))

    def by_holes(alike: list[Term]) -> int:
        return _flips_of_fullest([(term.holes, term.flip) for term in alike], n_empty(alike[0]))

    def by_both(alike: list[Term]) -> int:
        pairs = [((term.particles, term.holes), term.flip) for term in alike]
        of_pairs = _flips_of_fullest(pairs, n_full(alike[0]) * n_empty(alike[0]))
        return min(len({term.flip for term in alike}), by_particles(alike), by_holes(alike), of_pairs)

    return min(
        sum(by_particles(alike) for alike in _alike(needed, lambda term: numbers(term.particles))),
        sum(by_holes(alike) for alike in _alike(needed, lambda term: numbers(term.holes))),
        sum(by_both(alike) for alike in _alike(needed, lambda term: (numbers(term.particles), numbers(term.holes)))),
    )


def _implies(demand: Term, other: Term) -> bool:
    less = other.particles <= demand.particles and other.holes <= demand.holes
    return demand != other and demand.flip == other.flip and less


def _alike(terms, key) -> list[list[Term]]:
    by_key = defaultdict(list)
    for term in terms:
        by_key[key(term)].append(term)
    return list(by_key.values())


def _flips_of_fullest(pairs: Iterable[tuple[Hashable, Sites]], n: int) -> int:
    """How many flips go with those ``n`` sets with which most do."""
    flips = defaultdict(set)
    for where, flip in pairs:
        flips[where].add(flip)
    return sum(sorted(map(len, flips.values()), reverse=True)[:n])
