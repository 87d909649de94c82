"""Sums, products and conversions of operators of different families."""

from typing import Any

import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.local_matrices import sparse_matrix
from ferroket.operator.algebra.sectors import own_constraints
from ferroket.operator.algebra.term_list import TermList, as_dtype, equal_rows, popcount, sites_of
from ferroket.operator.algebra.validation import has_two_states
from ferroket.operator.compiled import site_bits
from ferroket.operator.ising import Ising
from ferroket.operator.term_sum import TermSum

_LARGEST_MATRIX = 10
"""So many sites, at most, may a local matrix act on that stands for terms."""


def terms_of(operator: Any) -> TermList | None:
    """One of our operators as a sum of non-branching terms; None if it can't be one."""
    return operator._terms() if isinstance(operator, Accelerated) and has_two_states(operator.hilbert) else None


def as_local(operator: Any) -> Any:
    """An operator as a local operator of ours if it is one by nature, else None."""
    from ferroket.operator.bose_hubbard import BoseHubbard
    from ferroket.operator.local_operator import LocalOperator

    if isinstance(operator, LocalOperator):
        return operator
    return operator.to_local_operator() if isinstance(operator, Ising | BoseHubbard) else None


def add(a: Any, b: Any) -> Any:
    """The sum of two operators on the same space, of different families."""
    local = as_local(a), as_local(b)
    if all(part is not None for part in local):
        return local[0] + local[1]
    terms = terms_of(a), terms_of(b)
    if terms[0] is not None and terms[1] is not None:
        return TermSum(a.hilbert, terms[0] + terms[1], jnp.promote_types(a.dtype, b.dtype))
    return nk.operator.SumOperator(a, b)


def multiply(a: Any, b: Any) -> Any:
    """The product of two operators on the same space, of different families.

    Raises:
        TypeError: If it isn't one operator, in a space with a constraint of the user's own.
    """
    local = as_local(a), as_local(b)
    if all(part is not None for part in local):
        return local[0] @ local[1]
    terms = terms_of(a), terms_of(b)
    if terms[0] is not None and terms[1] is not None:
        try:
            product = (terms[0] @ terms[1]).merged()
        except MemoryError as error:
            if own_constraints(a.hilbert):
                raise TypeError(
                    f"the product has too many terms for one operator on {a.hilbert!r}, and is another one if each "
                    "factor keeps to the constraint: take nk.operator.ProductOperator if that is what you want"
                ) from error
            return nk.operator.ProductOperator(a, b)
        return TermSum(a.hilbert, product, jnp.promote_types(a.dtype, b.dtype))
    return nk.operator.ProductOperator(a, b)


def to_pauli_strings(operator: Any) -> Any:
    """An operator on sites with two local states as Pauli strings.

    Raises:
        TypeError: If its sites don't have two local states, or if it is no sum of few strings.
    """
    from ferroket.operator.pauli_strings import PauliStrings

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
    return PauliStrings(operator.hilbert, strings, as_dtype(weights, dtype, "the operator"), dtype=dtype)


def to_local_operator(operator: Any) -> Any:
    """An operator on sites with two local states as a sum of local matrices, sparse as those of single spins.

    Raises:
        TypeError: If its sites don't have two local states, or if it is no sum of few terms.
        ValueError: If a term acts on too many sites.
    """
    from ferroket.operator.local_operator import LocalOperator

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
    for same in equal_rows(support):
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
    result = LocalOperator(
        operator.hilbert,
        [sparse_matrix(as_dtype(matrix, dtype, "the operator"), dtype) for matrix in matrices.values()],
        [list(sites) for sites in matrices],
        constant=as_dtype(np.asarray(constant), dtype, "the operator"),
        dtype=dtype,
    )
    return result
