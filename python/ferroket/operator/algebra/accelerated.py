"""What all accelerated operators have in common: NetKet's contract, on top of a compiled form."""

from typing import Any, Self

from ferroket.operator.algebra import conversions
from ferroket.operator.algebra.arithmetic import Arithmetic
from ferroket.operator.algebra.connected_elements import ConnectedElements
from ferroket.operator.algebra.full_matrices import FullMatrices
from ferroket.operator.algebra.identity import Identity


class Accelerated(ConnectedElements, FullMatrices, Arithmetic, Identity):
    """Connected elements from a compiled form, which is made from the operator's definition when it is first needed.

    An operator is a pytree whose leaves are the arrays of its form, the coefficients among them. Inside of
    :func:`jax.jit` it has only these: what needs the definition (its terms, sums, conversions) is an error there.

    A family inherits from this class first and from NetKet's class second, says what it is made from by
    :func:`ferroket.operator.algebra.registry.register`, and gives :meth:`_compile`, :meth:`_find_hermitian` and, where
    its sites have two local states, :meth:`_terms`.
    """

    @property
    def H(self) -> Any:
        """The hermitian conjugate, as an operator of its own and not as a wrapper around this one."""
        return self if self.is_hermitian else self.transpose().conjugate()

    def collect(self) -> Self:
        """The operator itself: there is no faster one."""
        return self

    def to_jax_operator(self) -> Self:
        """The operator itself, which is one in JAX."""
        return self

    def to_local_operator(self) -> Any:
        """The operator as a :class:`ferroket.operator.LocalOperator`.

        Raises:
            ValueError: If a term acts on more sites than local matrices are good for.
        """
        return conversions.to_local_operator(self)

    def to_pauli_strings(self) -> Any:
        """The operator as a :class:`ferroket.operator.PauliStrings`.

        Raises:
            TypeError: If its sites don't have two local states.
        """
        return conversions.to_pauli_strings(self)
