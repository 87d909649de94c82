"""From sums of non-branching terms and of local matrices to the compiled forms."""

from typing import Any

import numpy as np

from ferroket.operator.algebra.bounds import most_elements, most_elements_of_matrices
from ferroket.operator.compiled import LocalStates, Matrices, Terms, local_states
from ferroket.operator.compiled.masks import Runs, popcount
from ferroket.operator.compiled.matrices import offsets
from ferroket.operator.constraints.projection import conserving_matrices, conserving_terms, in_spins, within_limits
from ferroket.operator.sums.local_matrices import Entries, LocalTerms
from ferroket.operator.sums.term_list import TermList, as_dtype

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
    terms = in_spins(in_fewer_terms(conserving_terms(within_limits(terms, hilbert), hilbert)), hilbert)
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
    groups = Runs.of(terms.flip)
    group, n_groups = groups.run_of_row, len(groups)
    signed = np.zeros(n_groups, bool)
    np.logical_or.at(signed, group, (terms.flip & terms.sign).any(axis=1))
    counts = np.bincount(group, minlength=n_groups)
    tried = (signed & (counts > 1))[group] & (popcount(terms.flip) <= _MOST_FLIPS)
    if not tried.any():
        return terms
    # In a group, only the terms that have signs at flipped sites and those that they may cancel with are split.
    split = terms[tried].looking_at(lambda terms: terms.flip)
    whole = terms[tried]
    groups = Runs.of(np.concatenate([whole.flip, split.flip]))
    group, n_groups = groups.run_of_row, len(groups)
    of_whole, of_split = group[: len(whole)], group[len(whole) :]
    kept = np.abs(split.values) > cutoff
    better = np.bincount(of_split, minlength=n_groups) <= np.bincount(of_whole, minlength=n_groups)
    better[of_split[~kept]] = True
    parts = [terms[~tried], whole[~better[of_whole]], split[kept & better[of_split]]]
    return TermList.total(terms.n_sites, parts).merged()


def compile_matrices(local: LocalTerms, constant: Any, hilbert: Any, dtype: Any, *, cutoff: float) -> Matrices:
    """The compiled form of a sum of local matrices and a multiple of the identity.

    Raises:
        ValueError: If the operator leads out of its Hilbert space.
    """
    sites = local_states(hilbert)
    sizes = sites.sizes_of_sites
    local = [*conserving_matrices(local, hilbert, sizes)]
    if constant:
        local.append(((), Entries(1, np.zeros(1, int), np.zeros(1, int), np.asarray([constant]))))
    diagonal = any((np.abs(entries.values[entries.on_diagonal]) >= cutoff).any() for _, entries in local)
    if not diagonal:
        local = [(where, entries.select(~entries.on_diagonal)) for where, entries in local]
    local = [(where, entries) for where, entries in local if entries.values.size]
    most = most_elements_of_matrices(local, hilbert, sizes)
    return form_of_matrices(sites, local, diagonal=diagonal or not local, most=most, dtype=dtype)


def form_of_matrices(
    sites: LocalStates, local: LocalTerms, *, dtype: Any, diagonal: bool | None = None, most: int | None = None
) -> Matrices:
    """Local matrices as tables, in which equal ones are stored once.

    Args:
        sites: The local states of the sites.
        local: The matrices, and the sites that they act on.
        dtype: The dtype of the coefficients.
        diagonal: Whether the first connected element is the diagonal; by default, if there are entries on it or none
            anywhere.
        most: How many elements a sample has at most, but for the diagonal, which has to be given with it; by default
            what the matrices have, each by itself.
    """
    numbers: dict[Any, int] = {}
    matrices: list[Entries] = []
    table = []
    for _, entries in local:
        number = numbers.setdefault(entries.key, len(matrices))
        if number == len(matrices):
            matrices.append(entries)
        table.append(number)
    counts = [np.bincount(entries.row, minlength=entries.size) for entries in matrices]
    return Matrices.from_arrays(
        sites,
        offsets([len(where) for where, _ in local]),
        np.array([site for where, _ in local for site in where], np.int64),
        np.array(table, np.int64),
        offsets([entries.size for entries in matrices]),
        offsets(np.concatenate([np.zeros(0, np.int64), *counts])),
        np.concatenate([np.zeros(0, np.int64), *(entries.column for entries in matrices)]),
        np.concatenate([np.zeros(0, dtype), *(entries.values.astype(dtype) for entries in matrices)]),
        diagonal=diagonal,
        max_conn_size=None if most is None else most + bool(diagonal),
    )
