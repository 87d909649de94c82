"""NetKet's sums, products, embeddings and lazy wrappers: part by part, or as one operator where one holds them."""

from functools import reduce
from typing import Any

import netket as nk

from ferroket._compat.netket import EMBEDDINGS
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.combining import add, as_local, multiply, terms_of
from ferroket.operator.algebra.registry import accelerate, family, register_converter
from ferroket.operator.constraints.hilbert import constraint_functions
from ferroket.operator.validation import has_two_states


@register_converter(nk.operator.SumOperator)
def _sum(operator: Any) -> Any:
    parts = [_scaled(accelerate(part), c) for part, c in zip(operator.operators, operator.coefficients, strict=True)]
    total = reduce(_added, parts)
    if isinstance(total, nk.operator.SumOperator) or total.dtype == operator.dtype:
        return total
    return _in_dtype(total, operator.dtype)


def _scaled(part: Any, coefficient: Any) -> Any:
    number = complex(coefficient)
    if number == 1:
        return part
    return part * (number if number.imag else number.real)


def _added(a: Any, b: Any) -> Any:
    """The sum of two accelerated operators, of one family or of two."""
    return a + b if isinstance(a, Accelerated) else add(a, b)


def _in_dtype(operator: Any, dtype: Any) -> Any:
    """The operator in another dtype, if that holds it."""
    try:
        return operator.copy(dtype=dtype)
    except (TypeError, ValueError):
        return operator


@register_converter(nk.operator.ProductOperator)
def _product(operator: Any) -> Any:
    parts = [accelerate(part) for part in operator.operators]
    product = reduce(lambda a, b: a @ b if isinstance(a, Accelerated) else multiply(a, b), parts)
    return _scaled(product, operator.coefficient)


@register_converter(*EMBEDDINGS)
def _embedding(operator: Any) -> Any:
    part = accelerate(operator.operator)
    hilbert, subspace = operator.hilbert, operator.subspace
    first = sum(space.size for space in hilbert.subspaces[:subspace])
    local = as_local(part)
    if local is not None:
        return local._embedded(hilbert, first)
    terms = terms_of(part)
    if terms is not None and has_two_states(hilbert):
        return family("TermSum")(hilbert, terms.embedded(hilbert.size, first), part.dtype)
    return nk.operator.EmbedOperator(hilbert, part, subspace)


@register_converter(nk.operator.Transpose)
def _transposed(operator: Any) -> Any:
    return accelerate(operator.parent).transpose(concrete=True)


@register_converter(nk.operator.Adjoint)
def _adjoint(operator: Any) -> Any:
    part = accelerate(operator.parent)
    return part.H if isinstance(part, Accelerated) else nk.operator.Adjoint(part)


@register_converter(nk.operator.Squared)
def _squared(operator: Any) -> Any:
    part = accelerate(operator.parent)
    # Where O is projected on the space, P O P is what NetKet squares, and not O.
    merges = isinstance(part, Accelerated) and not constraint_functions(part.hilbert)
    return part.H @ part if merges else nk.operator.Squared(part)
