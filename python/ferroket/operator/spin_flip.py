"""Spin flips."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from netket.hilbert import Spin, SpinOrbitalFermions
from netket.operator import DiscreteJaxOperator

from ferroket._compat.netket import SPIN_FLIPS, SpinFlipBase
from ferroket.operator.algebra.rearranging import Rearranging, check_conserved_charges
from ferroket.operator.algebra.registry import register
from ferroket.operator.compiled import Form, site_bits
from ferroket.operator.compiled.rearrangement import rearrangement
from ferroket.operator.constraints.hilbert import conserved_charges, violation_error
from ferroket.operator.sums.term_list import TermList


@register(*SPIN_FLIPS)
class SpinFlipOperator(Rearranging, SpinFlipBase):
    """The operator that reverses all spins, or exchanges the two spins of fermions.

    It takes the place of NetKet's ``SpinFlipOperator``: the same constructor. Where it differs: samples that aren't of
    the Hilbert space are errors, and ``is_hermitian`` is true.

    Args:
        hilbert: A :class:`netket.hilbert.Spin` space, with total_sz = 0 if it is fixed, or a
            :class:`netket.hilbert.SpinOrbitalFermions` of spin ½ with as many fermions of one spin as of the other.
        dtype: The dtype of the matrix elements.

    Raises:
        TypeError: If the Hilbert space is another one.
        ValueError: If its constraints don't allow it.
    """

    def __init__(self, hilbert: Any, *, dtype: Any = float) -> None:
        DiscreteJaxOperator.__init__(self, hilbert)
        self._dtype = jnp.dtype(dtype)
        if isinstance(hilbert, Spin):
            for charge in conserved_charges(hilbert)[0]:
                change = len(charge.sites) * (hilbert.local_size - 1) - 2 * charge.total
                if change:
                    raise violation_error(hilbert, charge, "the local states of all sites", "their opposites", change)
        elif not isinstance(hilbert, SpinOrbitalFermions):
            raise TypeError(
                f"SpinFlipOperator acts on spins or on fermions with spin, not on {hilbert!r}: take nk.hilbert.Spin or "
                "nk.hilbert.SpinOrbitalFermions"
            )
        elif hilbert.n_spin_subsectors != 2 or hilbert.n_fermions_per_spin[0] is None:  # noqa: PLR2004
            raise ValueError(
                f"SpinFlipOperator needs fermions of spin 1/2 with a fixed number of each spin, which {hilbert!r} "
                "hasn't: give it s=1/2 and n_fermions_per_spin"
            )
        else:
            check_conserved_charges(hilbert, self._parts[0])

    @property
    def _parts(self) -> tuple[np.ndarray, float, bool]:
        """The order of the sites, the matrix element, and whether local states are reversed."""
        n_sites = self.hilbert.size
        if isinstance(self.hilbert, SpinOrbitalFermions):
            n_fermions = self.hilbert.n_fermions_per_spin[0]
            return np.roll(np.arange(n_sites), n_sites // 2), -1.0 if n_fermions % 2 else 1.0, False
        return np.arange(n_sites), 1.0, True

    def _compile(self) -> Form:
        order, value, reflected = self._parts
        return rearrangement(self.hilbert, order, value, self.dtype, fermions=False, reflected=reflected)

    def _terms(self) -> TermList | None:
        if isinstance(self.hilbert, SpinOrbitalFermions):
            return None
        identity = TermList.identity(self.hilbert.size)
        return dataclasses.replace(identity, flip=np.bitwise_or.reduce(site_bits(self.hilbert.size), keepdims=True))

    def _find_hermitian(self) -> bool:
        return True

    def _trace(self) -> complex | None:
        order, value, reflected = self._parts
        return self._traced_over(order, value, fermions=False, reflected=reflected)

    def transpose(self, *, concrete: bool = True) -> Any:
        """The operator itself: its matrix is symmetric."""
        return self

    def conjugate(self, *, concrete: bool = True) -> Any:
        """The operator itself, which is real."""
        return self

    def _metadata(self) -> tuple[Any, ...]:
        return (self.hilbert, jnp.dtype(self.dtype))

    @classmethod
    def tree_unflatten(cls, metadata: tuple[Any, ...], data: tuple[Any, ...]) -> Any:
        """The operator."""
        del data
        operator = object.__new__(cls)
        operator._hilbert, operator._dtype = metadata
        return operator

    @classmethod
    def from_netket(cls, operator: Any) -> Any:
        """The operator that equals one of NetKet's, of the same dtype."""
        return cls(operator.hilbert, dtype=operator.dtype)
