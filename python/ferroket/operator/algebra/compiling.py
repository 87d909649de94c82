"""From a sum of non-branching terms to the compiled form."""

from typing import Any

import numpy as np

from ferroket.operator.algebra.sectors import confined, most_elements
from ferroket.operator.algebra.term_list import TermList, as_dtype, group_of_rows, popcount
from ferroket.operator.compiled import Terms, local_states

_MOST_FLIPS = 8
"""Terms that flip more sites aren't tried as terms that look at them."""


def compile_terms(terms: TermList, hilbert: Any, dtype: Any, *, cutoff: float = 0.0, most: int | None = None) -> Terms:
    """The compiled form of an operator on sites with two local states.

    Args:
        terms: The operator.
        hilbert: Its Hilbert space.
        dtype: The dtype of the matrix elements.
        cutoff: The diagonal is left out if all its terms are smaller.
        most: How many connected elements off the diagonal a sample has at most, if something is known.

    Raises:
        ValueError: If the operator leads out of the Hilbert space, or if the dtype can't hold its matrix elements.
    """
    terms = in_fewer_terms(confined(terms, hilbert))
    on_diagonal = ~terms.flip.any(axis=1)
    if on_diagonal.any() and np.abs(terms.values[on_diagonal]).max() < cutoff:
        terms = terms[~on_diagonal]
        on_diagonal = np.zeros(len(terms), bool)
    diagonal = bool(on_diagonal.any()) or not len(terms)
    elements = most_elements(terms, hilbert)
    elements = elements if most is None else min(elements, most)
    return Terms.from_masks(
        local_states(hilbert),
        terms.mask,
        terms.pattern,
        terms.flip,
        terms.sign,
        as_dtype(terms.values, dtype, "the operator"),
        max_conn_size=elements + diagonal,
    )


def in_fewer_terms(terms: TermList, cutoff: float = 0.0) -> TermList:
    """The same operator with patterns instead of signs at flipped sites, where these aren't more terms.

    XX + YY is two terms either way, but in patterns it is clear which configurations it doesn't connect.

    Args:
        terms: The operator.
        cutoff: Patterns whose values aren't larger are left out, as those of XX + (1 + ε) YY that have the value -ε.
    """
    terms = terms.merged()
    if not len(terms):
        return terms
    group, n_groups = group_of_rows(terms.flip)
    signed = np.zeros(n_groups, bool)
    np.logical_or.at(signed, group, (terms.flip & terms.sign).any(axis=1))
    counts = np.bincount(group, minlength=n_groups)
    tried = (signed & (counts > 1))[group] & (popcount(terms.flip) <= _MOST_FLIPS)
    if not tried.any():
        return terms
    # In a group, only the terms that have signs at flipped sites and those that they may cancel with are split.
    split = terms[tried].looking_at(lambda terms: terms.flip)
    whole = terms[tried]
    group, n_groups = group_of_rows(np.concatenate([whole.flip, split.flip]))
    of_whole, of_split = group[: len(whole)], group[len(whole) :]
    kept = np.abs(split.values) > cutoff
    better = np.bincount(of_split, minlength=n_groups) <= np.bincount(of_whole, minlength=n_groups)
    better[of_split[~kept]] = True
    parts = [terms[~tried], whole[~better[of_whole]], split[kept & better[of_split]]]
    return TermList.total(terms.n_sites, parts).merged()
