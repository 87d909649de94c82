"""Sums and products of operators of different families on sites with two local states."""

from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from netket.operator import DiscreteJaxOperator
from netket.utils.numbers import dtype as dtype_of
from netket.utils.numbers import is_scalar

from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.compiling import compile_terms
from ferroket.operator.algebra.registry import register
from ferroket.operator.algebra.traces import trace
from ferroket.operator.sums.term_list import TermList
from ferroket.operator.validation import check_coefficient


@register()
class TermSum(Accelerated, DiscreteJaxOperator):
    """A sum of non-branching terms: what operators of different families on two-state sites are together.

    ``PauliStrings + LocalOperator``, ``FermionOperator2nd @ PauliStrings`` and the like give one: with one element for
    each set of flipped sites, instead of NetKet's sums and products that keep the elements of all parts.

    Args:
        hilbert: A Hilbert space whose sites have two local states.
        terms: The terms.
        dtype: The dtype of the matrix elements.
    """

    _definition = ("_list",)

    def __init__(self, hilbert: Any, terms: TermList, dtype: Any) -> None:
        super().__init__(hilbert)
        self._list = terms
        self._dtype = jnp.dtype(dtype)

    def _terms(self) -> TermList:
        return self._list

    def _compile(self) -> Any:
        return compile_terms(self._list, self.hilbert, self.dtype)

    def _find_hermitian(self) -> bool:
        return (self._list + self._list.transpose().conjugate() * -1).vanishes()

    def _trace(self) -> complex | None:
        return trace(self._list, self.hilbert)

    def copy(self, *, dtype: Any = None) -> Self:
        """The same operator, maybe of another dtype."""
        if dtype is not None and not np.can_cast(self.dtype, dtype, casting="same_kind"):
            raise ValueError(
                f"an operator of dtype {self.dtype} can't be one of dtype {np.dtype(dtype)}: take a wider one"
            )
        return type(self)(self.hilbert, self._list, self.dtype if dtype is None else dtype)

    def transpose(self, *, concrete: bool = True) -> "TermSum":
        """The transposed operator."""
        return TermSum(self.hilbert, self._list.transpose(), self.dtype)

    def conjugate(self, *, concrete: bool = True) -> "TermSum":
        """The operator with the complex conjugate matrix elements."""
        return TermSum(self.hilbert, self._list.conjugate(), self.dtype)

    def to_numba_operator(self) -> Any:
        """The operator as NetKet's in numba, which superoperators are made of: a sum of local matrices.

        Raises:
            ValueError: If a term acts on more sites than local matrices are good for.
        """
        return self.to_local_operator().to_numba_operator()

    def __add__(self, other: Any) -> Any:
        if is_scalar(other):
            check_coefficient("the constant", other)
            shift = TermList.identity(self.hilbert.size, other)
            return TermSum(self.hilbert, self._list + shift, jnp.promote_types(self.dtype, dtype_of(other)))
        return super().__add__(other)

    def __iadd__(self, other: Any) -> Any:
        return self + other

    def __mul__(self, other: Any) -> Any:
        scaled = self._scaled(other)
        if scaled is not None:
            return scaled
        if not is_scalar(other):
            return NotImplemented
        check_coefficient("the factor", other)
        dtype = jnp.promote_types(self.dtype, dtype_of(other))
        return TermSum(self.hilbert, self._list * np.asarray(other).item(), dtype)

    def __repr__(self) -> str:
        terms = "" if self._is_compiled_only else f", n_terms={len(self._list)}"
        return f"{type(self).__name__}(hilbert={self.hilbert}{terms}, dtype={self.dtype})"
