"""Hamiltonians of a few coefficients on the edges of a graph."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from netket.utils.numbers import StaticZero, is_scalar

from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.identity import contents
from ferroket.operator.sums.term_list import TermList
from ferroket.operator.validation import check_coefficient, is_traced


class GraphHamiltonian(Accelerated):
    """A Hamiltonian that is linear in a few coefficients, the same on all edges of a graph, with a symmetric matrix.

    The coefficients are leaves of the pytree, and may be traced: derivatives by them work. Multiples, and sums with
    such Hamiltonians on the same edges, are Hamiltonians of the same family; others are local operators. Operators are
    immutable.

    A family gives :attr:`_coefficients`, :attr:`_made_from`, :meth:`_compile` and :meth:`to_local_operator`.
    """

    _definition = ()
    _is_local = True

    _made_from: ClassVar[tuple[Any, ...]]
    """The classes of NetKet that it takes the place of."""

    _coefficients: ClassVar[tuple[str, ...]]
    """The names of the coefficients. One that isn't there, not even as an array of zero, is a ``StaticZero``."""

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f"_{name}") for name in self._coefficients)

    def _with(self, values: Sequence[Any]) -> Self:
        """The operator with other coefficients, which may be traced."""
        there = {name: value for name, value in zip(self._coefficients, values, strict=True) if not _is_absent(value)}
        for name, value in there.items():
            check_coefficient(name, value)
        dtype = functools.reduce(jnp.promote_types, [value.dtype for value in there.values()])
        leaves, metadata = self.tree_flatten()
        new = [value if _is_absent(value) else value.astype(dtype) for value in values]
        return self.tree_unflatten(metadata, (*new, *leaves[len(new) :]))

    def _map(self, function: Callable[[Any], Any]) -> Self:
        return self._with([value if _is_absent(value) else function(value) for value in self._values()])

    @property
    def dtype(self) -> Any:
        """The dtype of the matrix elements."""
        return self._values()[-1].dtype

    @property
    def is_hermitian(self) -> bool:
        """Whether the operator is hermitian: whether its coefficients are real.

        Complex coefficients whose values aren't known, in a traced function, are taken not to be.
        """
        if not jnp.issubdtype(self.dtype, jnp.complexfloating):
            return True
        values = [value for value in self._values() if not _is_absent(value)]
        return not is_traced(*values) and all(complex(value).imag == 0 for value in values)

    def _terms(self) -> TermList | None:
        return self.to_local_operator()._terms()

    def _trace(self) -> complex | None:
        return self.to_local_operator()._trace()

    # Algebra

    def transpose(self, *, concrete: bool = True) -> Self:
        """The operator itself: its matrix is symmetric."""
        return self

    def conjugate(self, *, concrete: bool = True) -> Self:
        """The operator with the complex conjugate matrix elements."""
        return self._map(jnp.conj) if jnp.issubdtype(self.dtype, jnp.complexfloating) else self

    def _combine(self, other: Any, sign: int) -> Any:
        """``self + sign * other``, or NotImplemented if the other is no such Hamiltonian on the same edges."""
        if type(other) not in (type(self), *self._made_from):
            return NotImplemented
        if self.hilbert != other.hilbert:
            raise ValueError(
                f"operators on {self.hilbert!r} and on {other.hilbert!r} can't be added: they must act on one space"
            )
        # The same array needs no look, and may be traced.
        if self.edges is not other.edges and not np.array_equal(_undirected(self.edges), _undirected(other.edges)):
            return NotImplemented
        others = [getattr(other, name) for name in self._coefficients]
        return self._with([_sum(a, b, sign) for a, b in zip(self._values(), others, strict=True)])

    def __add__(self, other: Any) -> Any:
        result = self._combine(other, 1)
        return super().__add__(other) if result is NotImplemented else result

    def __sub__(self, other: Any) -> Any:
        result = self._combine(other, -1)
        return super().__sub__(other) if result is NotImplemented else result

    def __iadd__(self, other: Any) -> Any:
        return self + other

    def __isub__(self, other: Any) -> Any:
        return self - other

    def __mul__(self, other: Any) -> Any:
        if not is_scalar(other):
            return NotImplemented
        check_coefficient("the factor", other)
        return self._map(lambda value: value * other)

    def _divided(self, divisor: Any) -> Any:
        return self._map(lambda value: value / divisor)

    # Identity

    def _key(self) -> Any:
        arrays = contents((self._values(), self._edges))
        return None if arrays is None else (self.hilbert, arrays)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The coefficients and the edges as leaves, so that new coefficients don't recompile anything."""
        return (*self._values(), self._edges), (self.hilbert,)

    @classmethod
    def tree_unflatten(cls, metadata: tuple[Any, ...], data: tuple[Any, ...]) -> Self:
        """The operator with these leaves, whatever they are: JAX also puts placeholders there."""
        operator = object.__new__(cls)
        (operator._hilbert,) = metadata
        for name, leaf in zip((*cls._coefficients, "edges"), data, strict=True):
            setattr(operator, f"_{name}", leaf)
        return operator


def _is_absent(value: Any) -> bool:
    return isinstance(value, StaticZero)


def _sum(a: Any, b: Any, sign: int) -> Any:
    """``a + sign * b``, where either may be absent."""
    if _is_absent(b):
        return a
    b = jnp.asarray(b)
    return sign * b if _is_absent(a) else a + sign * b


def _undirected(edges: Any) -> np.ndarray:
    """The edges in an order of their own, so that equal sets of edges are equal arrays."""
    ordered = np.sort(np.asarray(edges), axis=1)
    return ordered[np.lexsort(ordered.T)]
