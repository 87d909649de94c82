"""Sums and products of operators of different families."""

from functools import reduce
from operator import matmul
from typing import Any

import jax.numpy as jnp
import netket as nk

from ferroket.operator.algebra.base import Compiled
from ferroket.operator.algebra.registry import family
from ferroket.operator.constraints.hilbert import constraint_functions, user_constraints
from ferroket.operator.constraints.projection import in_spins, within_limits
from ferroket.operator.sums.term_list import TermList
from ferroket.operator.validation import has_two_states


def terms_of(operator: Any) -> TermList | None:
    """One of our operators as a sum of non-branching terms; None if it can't be one."""
    return operator._terms() if isinstance(operator, Compiled) and has_two_states(operator.hilbert) else None


def as_local(operator: Any) -> Any:
    """An operator as a local operator of ours if it is one by nature, else None."""
    return operator.to_local_operator() if isinstance(operator, Compiled) and operator._is_local else None


def add(a: Any, b: Any) -> Any:
    """The sum of two operators on the same space, of different families."""
    local = as_local(a), as_local(b)
    if all(part is not None for part in local):
        return local[0] + local[1]
    terms = terms_of(a), terms_of(b)
    if terms[0] is not None and terms[1] is not None:
        return family("TermSum")(a.hilbert, terms[0] + terms[1], jnp.promote_types(a.dtype, b.dtype))
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
            if constraint_functions(a.hilbert):
                raise TypeError(
                    f"the product has too many terms for one operator on {a.hilbert!r}, and is another one if each "
                    "factor keeps to the constraint: take nk.operator.ProductOperator if that is what you want"
                ) from error
            return nk.operator.ProductOperator(a, b)
        return family("TermSum")(a.hilbert, product, jnp.promote_types(a.dtype, b.dtype))
    return nk.operator.ProductOperator(a, b)


def power(operator: Any, exponent: int) -> Any:
    """A power of one of our operators, as a matrix on its space, as one operator.

    Where the space restricts it, P O P is raised to the power, and not O.

    Raises:
        TypeError: It isn't one operator.
    """
    terms = terms_of(operator)
    if terms is None or user_constraints(operator.hilbert):
        if constraint_functions(operator.hilbert):
            raise TypeError(
                f"powers of {type(operator).__name__} aren't single operators on {operator.hilbert!r}, whose "
                "constraint applies between the factors, too"
            )
        return reduce(matmul, [operator] * exponent)
    terms = in_spins(within_limits(terms, operator.hilbert), operator.hilbert)
    product = terms
    for _ in range(exponent - 1):
        product = (product @ terms).merged()
    return family("TermSum")(operator.hilbert, product, operator.dtype)
