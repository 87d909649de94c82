"""From operators on sites with two local states, whatever their family, to Pauli strings and to local matrices."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ferroket.operator.algebra.combining import terms_of
from ferroket.operator.algebra.registry import family
from ferroket.operator.compiled.masks import Runs, popcount, site_bits, sites_of
from ferroket.operator.sums.local_matrices import sparse_matrix
from ferroket.operator.sums.term_list import as_dtype
from ferroket.operator.validation import has_two_states

_LARGEST_MATRIX = 10
"""So many sites, at most, may a local matrix act on that stands for terms."""


def to_pauli_strings(operator: Any) -> Any:
    """An operator on sites with two local states as Pauli strings.

    Raises:
        TypeError: If its sites don't have two local states, or if it is no sum of few strings.
    """
    if not has_two_states(operator.hilbert):
        raise TypeError(
            f"Pauli strings act on sites with two local states, but those of {operator.hilbert!r} have "
            f"{sorted(set(operator.hilbert.shape))}: keep the operator as it is"
        )
    terms = terms_of(operator)
    if terms is None:
        raise TypeError(f"a {type(operator).__name__} is no sum of a few Pauli strings: keep it as it is")
    strings, weights = terms.strings()
    needs_complex = np.iscomplexobj(weights) or any(string.count("Y") % 2 for string in strings)
    dtype = jnp.promote_types(operator.dtype, jnp.complex64) if needs_complex else operator.dtype
    if not jnp.issubdtype(dtype, jnp.inexact):
        dtype = jnp.promote_types(dtype, float)
    return family("PauliStrings")(operator.hilbert, strings, as_dtype(weights, dtype, "the operator"), dtype=dtype)


def to_local_operator(operator: Any) -> Any:
    """An operator on sites with two local states as a sum of local matrices, sparse as those of single spins.

    Raises:
        TypeError: If its sites don't have two local states, or if it is no sum of few terms.
        ValueError: If a term acts on too many sites.
    """
    terms = terms_of(operator)
    if terms is None:
        raise TypeError(
            f"a {type(operator).__name__} on {operator.hilbert!r} can't be a LocalOperator: keep it as it is"
        )
    terms = terms.merged()
    support = terms.flip | terms.mask | terms.sign
    sizes = popcount(support)
    if len(terms) and sizes.max() > _LARGEST_MATRIX:
        raise ValueError(
            f"the operator has a term on {int(sizes.max())} sites, whose matrix would have {1 << int(sizes.max())} "
            f"rows, but a LocalOperator holds matrices on {_LARGEST_MATRIX} sites at most: keep the operator as it "
            "is, or take to_pauli_strings"
        )
    matrices: dict[tuple[int, ...], np.ndarray] = {}
    constant: Any = 0
    bits = site_bits(terms.n_sites)
    for same in Runs.of(support).rows_of_runs():
        of_support = terms[same]
        sites = np.flatnonzero(sites_of(support[same[0]], terms.n_sites))
        if not sites.size:
            constant = of_support.values.sum()
            continue
        k = sites.size
        rows = np.arange(1 << k)
        place = (1 << np.arange(k)[::-1]).astype(np.int64)
        matrix = np.zeros((1 << k, 1 << k), of_support.values.dtype)
        local = {
            name: ((getattr(of_support, name)[:, None, :] & bits[sites]).any(axis=2) * place).sum(axis=1)
            for name in ("flip", "mask", "pattern", "sign")
        }
        for t, value in enumerate(of_support.values):
            active = rows[(rows & local["mask"][t]) == local["pattern"][t]]
            parity = np.array([(int(row) & int(local["sign"][t])).bit_count() & 1 for row in active], bool)
            matrix[active, active ^ local["flip"][t]] += np.where(parity, -value, value)
        matrices[tuple(sites.tolist())] = matrix
    dtype = operator.dtype
    return family("LocalOperator")(
        operator.hilbert,
        [sparse_matrix(as_dtype(matrix, dtype, "the operator"), dtype) for matrix in matrices.values()],
        [list(sites) for sites in matrices],
        constant=as_dtype(np.asarray(constant), dtype, "the operator"),
        dtype=dtype,
    )
