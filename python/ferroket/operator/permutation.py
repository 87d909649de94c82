"""Permutations of sites, and of fermionic orbitals."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from netket.hilbert import Fock, Qubit, Spin, SpinOrbitalFermions
from netket.operator import permutation as netkets_permutation
from netket.utils.group import Permutation

from ferroket.operator.algebra.combining import multiply
from ferroket.operator.algebra.rearranging import Rearranging, check_conserved_charges
from ferroket.operator.algebra.registry import register
from ferroket.operator.compiled import Form, local_states
from ferroket.operator.compiled.rearrangement import rearrangement

_NETKETS = (netkets_permutation.PermutationOperator, netkets_permutation.PermutationOperatorFermion)


class _Permutation(Rearranging):
    """What both kinds of permutations have in common."""

    _netkets = _NETKETS
    _fermions: ClassVar[bool]

    @property
    def _order(self) -> np.ndarray:
        return np.asarray(self.permutation.permutation_array)

    def _compile(self) -> Form:
        return rearrangement(self.hilbert, self._order, 1.0, self.dtype, fermions=self._fermions, reflected=False)

    def _find_hermitian(self) -> bool:
        return bool((self._order[self._order] == np.arange(self._order.size)).all())

    def _trace(self) -> complex | None:
        return self._traced_over(self._order, 1.0, fermions=self._fermions)

    def transpose(self, *, concrete: bool = True) -> Any:
        """The transposed operator: the inverse permutation."""
        inverse = Permutation(permutation_array=np.argsort(self._order), validate=False)
        return type(self)(self.hilbert, inverse, dtype=self.dtype)

    def conjugate(self, *, concrete: bool = True) -> Any:
        """The operator itself, which is real."""
        return self

    def _op__matmul__(self, other: Any) -> Any:
        other = self._adopt(other)
        if isinstance(other, _NETKETS) and self.hilbert == other.hilbert:
            dtype = jnp.promote_types(self.dtype, other.dtype)
            return type(self)(self.hilbert, self.permutation @ other.permutation, dtype=dtype)
        return multiply(self, other)

    def _metadata(self) -> tuple[Any, ...]:
        return (self.hilbert, self.permutation, jnp.dtype(self.dtype))

    @classmethod
    def tree_unflatten(cls, metadata: tuple[Any, ...], data: tuple[Any, ...]) -> Any:
        """The operator."""
        del data
        operator = object.__new__(cls)
        operator._hilbert, operator.permutation, operator._dtype = metadata
        return operator

    @classmethod
    def from_netket(cls, operator: Any) -> Any:
        """The operator that equals one of NetKet's, of the same dtype."""
        return cls(operator.hilbert, operator.permutation, dtype=operator.dtype)


@register(netkets_permutation.PermutationOperator)
class PermutationOperator(_Permutation, netkets_permutation.PermutationOperator):
    """A permutation of the sites of spins or bosons.

    It takes the place of :class:`netket.operator.permutation.PermutationOperator`: the same constructor, and
    ⟨σ|P|σ'⟩ = 1 for the σ' that has at site i what σ has at the image of i. Where it differs: samples that aren't of
    the Hilbert space are errors, ``is_hermitian`` knows of permutations that are their own inverse, and there are
    ``transpose`` and ``H``.

    Args:
        hilbert: The Hilbert space.
        permutation: A permutation of its sites.
        dtype: The dtype of the matrix elements.

    Raises:
        TypeError: If it is no permutation.
        ValueError: If it is one of more or fewer sites, or of sites with other local states.
    """

    _fermions = False

    def __init__(self, hilbert: Any, permutation: Any, *, dtype: Any = float) -> None:
        super().__init__(hilbert, permutation, dtype=dtype)
        sites = local_states(hilbert)
        kind = np.asarray(sites.kind)
        if kind.size and (kind != kind[self._order]).any():
            site = int(np.flatnonzero(kind != kind[self._order])[0])
            raise ValueError(
                f"the permutation takes site {site} to site {int(self._order[site])}, which has other local states: "
                "only sites that are alike can be exchanged"
            )
        check_conserved_charges(hilbert, self._order)


@register(netkets_permutation.PermutationOperatorFermion)
class PermutationOperatorFermion(_Permutation, netkets_permutation.PermutationOperatorFermion):
    """A permutation of the orbitals of fermions, with the sign of putting them in order again.

    It takes the place of :class:`netket.operator.permutation.PermutationOperatorFermion`: the same constructor. See
    :class:`PermutationOperator`.

    Args:
        hilbert: A Hilbert space with a fixed number of fermions.
        permutation: A permutation of its orbitals.
        dtype: The dtype of the matrix elements.

    Raises:
        TypeError: If the Hilbert space is another one, or if it is no permutation.
        ValueError: If the permutation is one of more or fewer orbitals, or takes fermions from one spin to another that
            has another number of them.
    """

    _fermions = True

    def __init__(self, hilbert: Any, permutation: Any, dtype: Any = float) -> None:
        if not isinstance(hilbert, SpinOrbitalFermions):
            raise TypeError(
                f"PermutationOperatorFermion acts on fermions, not on {hilbert!r}: take a PermutationOperator, or "
                "nk.hilbert.SpinOrbitalFermions"
            )
        if isinstance(permutation, Permutation) and permutation.permutation_array.size == hilbert.size:
            check_conserved_charges(hilbert, np.asarray(permutation.permutation_array))
        super().__init__(hilbert, permutation, dtype=dtype)


def construct_permutation_operator(hilbert_space: Any, permutation: Any) -> Any:
    """The permutation of the sites of spins or bosons, or of the orbitals of fermions.

    Raises:
        TypeError: If the Hilbert space is none of these.
    """
    if isinstance(hilbert_space, SpinOrbitalFermions):
        return PermutationOperatorFermion(hilbert_space, permutation)
    if isinstance(hilbert_space, Qubit | Spin | Fock):
        return PermutationOperator(hilbert_space, permutation)
    raise TypeError(
        f"there is no permutation operator for {hilbert_space!r} by itself: take a PermutationOperator, or "
        "nk.hilbert.Spin, Qubit, Fock or SpinOrbitalFermions"
    )
