"""Traces of sums of non-branching terms, by counting configurations."""

import math
from typing import Any

from ferroket.operator.algebra.sectors import sectors
from ferroket.operator.algebra.term_list import TermList
from ferroket.operator.compiled.masks import sites_of


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
