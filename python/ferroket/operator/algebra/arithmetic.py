"""Sums, products and multiples of accelerated operators."""

from typing import Any, Self

import jax.numpy as jnp
import netket as nk
import numpy as np
from netket.utils.numbers import is_scalar

from ferroket.operator.algebra.base import Compiled
from ferroket.operator.algebra.combining import add, multiply
from ferroket.operator.algebra.registry import accelerate
from ferroket.operator.validation import check_coefficient, is_traced


class Arithmetic(Compiled):
    """Arithmetic with operators of the same family, which NetKet's classes know, and with all others."""

    def _adopt(self, other: Any) -> Any:
        """Another operator that can be added or multiplied to this one, accelerated if that is possible."""
        if self.hilbert != other.hilbert:
            raise ValueError(
                f"operators on {self.hilbert!r} and on {other.hilbert!r} can't be combined: they must act on one space"
            )
        if isinstance(other, self._netkets):
            return other
        try:
            return accelerate(other)
        except TypeError:
            return other

    def __add__(self, other: Any) -> Any:
        if is_scalar(other):
            check_coefficient("the constant", other)
            return super().__add__(other)
        if not isinstance(other, nk.operator.AbstractOperator):
            return NotImplemented
        other = self._adopt(other)
        return super().__add__(other) if isinstance(other, self._netkets) else add(self, other)

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __sub__(self, other: Any) -> Any:
        return self + (-other) if _combines(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if _combines(other) else NotImplemented

    def __iadd__(self, other: Any) -> Any:
        if is_scalar(other):
            check_coefficient("the constant", other)
            return super().__iadd__(other)
        if isinstance(other, self._netkets) and self.hilbert == other.hilbert:
            return super().__iadd__(other)
        return self + other

    def __isub__(self, other: Any) -> Any:
        if not _combines(other):
            return NotImplemented
        self += -other
        return self

    def _op__matmul__(self, other: Any) -> Any:
        other = self._adopt(other)
        return super()._op__matmul__(other) if isinstance(other, self._netkets) else multiply(self, other)

    def _op__rmatmul__(self, other: Any) -> Any:
        other = self._adopt(other)
        if isinstance(other, self._netkets):
            return type(self)._op__matmul__(self._own(other), self)
        return multiply(other, self)

    def _own(self, other: Any) -> Any:
        """An operator of NetKet's of this family as one of ours."""
        return accelerate(other)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, nk.operator.AbstractOperator):
            return self._op__matmul__(other)
        return super().__matmul__(other)

    def __rmatmul__(self, other: Any) -> Any:
        if isinstance(other, nk.operator.AbstractOperator):
            return self._op__rmatmul__(other)
        return super().__rmatmul__(other)

    def _scaled(self, factor: Any) -> Any:
        """A multiple of the operator by its form alone, where the definition isn't there or the factor is traced."""
        if not is_scalar(factor) or not (self._is_compiled_only or is_traced(factor)):
            return None
        values = jnp.asarray(self._form.values) * factor
        known = self.is_hermitian and not jnp.issubdtype(values.dtype, jnp.complexfloating)
        hermitian = known or (self.is_hermitian and not jnp.issubdtype(jnp.result_type(factor), jnp.complexfloating))
        metadata = (self.hilbert, jnp.dtype(values.dtype), hermitian)
        return type(self).tree_unflatten(metadata, (self._form.replace_values(values),))

    def __mul__(self, other: Any) -> Any:
        scaled = self._scaled(other)
        if scaled is not None:
            return scaled
        if is_scalar(other):
            check_coefficient("the factor", other)
        elif not isinstance(other, nk.operator.AbstractOperator):
            return NotImplemented
        return super().__mul__(other)

    def __rmul__(self, other: Any) -> Any:
        return self * other if is_scalar(other) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        if not is_scalar(other):
            return NotImplemented
        check_coefficient("the divisor", other)
        if not is_traced(other) and other == 0:
            raise ZeroDivisionError("an operator can't be divided by zero")
        return self._divided(other)

    def _divided(self, divisor: Any) -> Any:
        """The operator divided by a number that isn't zero."""
        return self * (1 / divisor)

    def __neg__(self) -> Any:
        return self * np.array(-1, self.dtype)

    def __pos__(self) -> Self:
        return self


def _combines(other: Any) -> bool:
    return is_scalar(other) or isinstance(other, nk.operator.AbstractOperator)
