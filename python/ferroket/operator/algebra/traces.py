"""Traces of sums of non-branching terms, by counting configurations."""

import math
from typing import Any

from ferroket.operator.compiled.masks import sites_of
from ferroket.operator.constraints.hilbert import conserved_charges
from ferroket.operator.sums.term_list import TermList


def trace(terms: TermList, hilbert: Any) -> complex | None:
    """The trace in a space whose constraints are all known; None if they aren't."""
    conserved, complete = conserved_charges(hilbert)
    if not complete or len({site for s in conserved for site in s.sites}) < sum(len(s.sites) for s in conserved):
        return None
    terms = terms[~terms.flip.any(axis=1)].merged()
    in_charges = {site for charge in conserved for site in charge.sites}
    free = [site for site in range(terms.n_sites) if site not in in_charges]
    masks, patterns, signs = (sites_of(words, terms.n_sites) for words in (terms.mask, terms.pattern, terms.sign))
    total = 0j
    for value, mask, pattern, sign in zip(terms.values, masks, patterns, signs, strict=True):
        if sign[free].any():
            continue
        count = 1 << int((~mask[free]).sum())
        for charge in conserved:
            sites = list(charge.sites)
            left, n = int((~mask[sites]).sum()), charge.total - int(pattern[sites].sum())
            count *= _signed_count(left, n, int(sign[sites].sum()))
        total += complex(value) * count
    return total


def _signed_count(n_sites: int, n: int, n_signs: int) -> int:
    """The number of ways to put n particles on sites; an odd number on the first ``n_signs`` of them counts as -1."""
    return sum(
        (-1) ** j * math.comb(n_signs, j) * math.comb(n_sites - n_signs, n - j) for j in range(min(n_signs, n) + 1)
    )
