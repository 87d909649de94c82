"""Fermionic operators that conserve particle numbers."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import jax.numpy as jnp
import netket as nk
import numpy as np
from netket.hilbert import SpinOrbitalFermions
from netket.utils.numbers import is_scalar

from ferroket._compat import netket
from ferroket.operator.algebra.registry import register
from ferroket.operator.fermion_operator import NETKETS, FermionOperator2nd, Term
from ferroket.operator.validation import check_coefficient, check_dtype, is_traced


@register(netket.ParticleNumberConserving)
class ParticleNumberConservingFermioperator2nd(FermionOperator2nd):
    """A fermionic operator all of whose terms conserve the number of fermions, on a space where it is fixed.

    It takes the place of :class:`netket.experimental.operator.ParticleNumberConservingFermioperator2nd`, with its
    ``from_...`` constructors, and is a :class:`FermionOperator2nd` besides, with the arithmetic of one. Compiled, both
    are the same: a :class:`FermionOperator2nd` needs no conversion to be as fast.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions` with a fixed number of fermions.
        terms: As for :class:`FermionOperator2nd`, as all that follow.
        weights: Their weights.
        constant: A multiple of the identity that is added.
        cutoff: Weights that aren't larger than this are left out.
        dtype: The dtype of the matrix elements.

    Raises:
        TypeError: If the Hilbert space is another one.
        ValueError: If the number of fermions isn't fixed, or if a term changes it.
    """

    def __init__(
        self,
        hilbert: Any,
        terms: Any = None,
        weights: Any = None,
        constant: Any = 0,
        cutoff: float = 1e-10,
        dtype: Any = None,
        _mode: str = "scan",
    ) -> None:
        self._check_space(hilbert)
        super().__init__(hilbert, terms, weights, constant, cutoff, dtype, _mode)
        self._check_terms()

    def _check_space(self, hilbert: Any) -> None:
        name = type(self).__name__
        if not isinstance(hilbert, SpinOrbitalFermions):
            raise TypeError(
                f"{name} acts on fermions, not on {hilbert!r}: take nk.hilbert.SpinOrbitalFermions, or a "
                "FermionOperator2nd"
            )
        if hilbert.n_fermions is None:
            raise ValueError(
                f"{name} needs a fixed number of fermions, which {hilbert!r} hasn't: give it n_fermions or "
                "n_fermions_per_spin, or take a FermionOperator2nd"
            )

    def _check_terms(self) -> None:
        for term in self._operators:
            created = sum(dagger for _, dagger in term)
            if 2 * created != len(term):
                raise ValueError(
                    f"the term {_word(term)!r} creates {created} fermions and annihilates {len(term) - created}, but "
                    f"{type(self).__name__} conserves their number: leave it out, or take a FermionOperator2nd on a "
                    "space without a fixed number"
                )

    @classmethod
    def from_fermionoperator2nd(cls, ha: Any, cutoff: float = 0.0) -> Self:
        """The operator that equals a :class:`FermionOperator2nd`, ours or NetKet's, of the same dtype.

        Args:
            ha: The operator.
            cutoff: Weights that aren't larger than this are left out.

        Raises:
            TypeError: If it is another operator.
            ValueError: If a term doesn't conserve what this class does.
        """
        if not isinstance(ha, NETKETS):
            raise TypeError(f"{type(ha).__name__} is no FermionOperator2nd, which is all that this constructor takes")
        new = cls(ha.hilbert, cutoff=ha.cutoff, dtype=ha.dtype)
        new._operators = {term: weight for term, weight in ha.operators.items() if abs(weight) > cutoff}
        new._check_terms()
        return new

    def __mul__(self, other: Any) -> Any:
        if not is_scalar(other) or is_traced(other) or self._is_compiled_only:
            return super().__mul__(other)
        # As NetKet's, which are arrays of JAX: a Python number doesn't change the dtype if that can hold it.
        check_coefficient("the factor", other)
        dtype = jnp.result_type(jnp.empty((), self.dtype), other)
        return super(ParticleNumberConservingFermioperator2nd, self.copy(dtype=dtype)).__imul__(other)

    def __imul__(self, other: Any) -> Any:
        return self * other

    def to_fermionoperator2nd(self, _cls: Any = FermionOperator2nd) -> Any:
        """The operator as one that needn't conserve anything."""
        return _cls(self.hilbert, self.terms, self.weights, cutoff=self._cutoff, dtype=self.dtype)

    @classmethod
    def from_sparse_arrays(cls, hilbert: Any, operators: Sequence[Any], cutoff: float = 0.0) -> Self:
        r"""The sum over all entries of arrays.

        Each entry gives :math:`A_{i_1..i_m j_1..j_m} c^†_{i_1} .. c^†_{i_m} c_{j_1} .. c_{j_m}`.

        Args:
            hilbert: The Hilbert space of N orbitals.
            operators: Arrays of shape ``(N,) * 2m``, dense or of the package ``sparse``; numbers are constants.
            cutoff: Entries that aren't larger than this are left out.

        Raises:
            ValueError: If an array has another shape or an entry that isn't finite.
        """
        cls._check_space(object.__new__(cls), hilbert)
        operators = list(operators)
        terms: list[Term] = []
        weights: list[Any] = []
        for which, array in enumerate(operators):
            shape = np.shape(array)
            if len(shape) % 2 or set(shape) - {hilbert.size}:
                raise ValueError(
                    f"array {which} has shape {shape}, but must have an even number of dimensions, all of the "
                    f"{hilbert.size} orbitals of the space"
                )
            for index, value in _entries(array):
                if abs(value) > cutoff:
                    half = len(index) // 2
                    terms.append((*((i, 1) for i in index[:half]), *((j, 0) for j in index[half:])))
                    weights.append(value)
        dtype = jnp.result_type(float, *(getattr(array, "dtype", np.asarray(array).dtype) for array in operators))
        return cls(hilbert, terms, weights, cutoff=cutoff, dtype=dtype)

    @classmethod
    def from_pyscf_molecule(cls, mol: Any, mo_coeff: Any, cutoff: float = 1e-11) -> Self:
        """The Hamiltonian of a molecule of PySCF.

        Args:
            mol: The molecule.
            mo_coeff: The coefficients of the molecular orbitals, from a Hartree-Fock calculation, say.
            cutoff: Integrals that aren't larger than this are left out.
        """
        theirs = getattr(nk.experimental.operator, cls.__name__)
        return cls.from_netket(theirs.from_pyscf_molecule(mol, mo_coeff, cutoff=cutoff))

    @classmethod
    def from_netket(cls, operator: Any) -> Self:
        """The operator that equals one of NetKet's, of the same dtype."""
        if isinstance(operator, NETKETS):
            return super().from_netket(operator)
        sums: dict[Term, Any] = {}
        for term, weight in _terms_of_netkets(operator):
            sums[term] = sums.get(term, 0) + weight
        new = cls(operator.hilbert, dtype=operator.dtype)
        new._operators = sums
        return new


@register(netket.ParticleNumberAndSpinConserving, netket.FermiHubbard)
class ParticleNumberAndSpinConservingFermioperator2nd(ParticleNumberConservingFermioperator2nd):
    """A fermionic operator that conserves the number of fermions of each spin, on a space where they are fixed.

    It takes the place of :class:`netket.experimental.operator.ParticleNumberAndSpinConservingFermioperator2nd`. See
    :class:`ParticleNumberConservingFermioperator2nd`.

    Raises:
        TypeError: If the Hilbert space is another one.
        ValueError: If the numbers of fermions of each spin aren't fixed, or if a term changes one.
    """

    def _check_space(self, hilbert: Any) -> None:
        super()._check_space(hilbert)
        if hilbert.n_spin_subsectors < 2 or None in hilbert.n_fermions_per_spin:  # noqa: PLR2004
            raise ValueError(
                f"{type(self).__name__} needs a fixed number of fermions of each spin, which {hilbert!r} hasn't: give "
                "it s and n_fermions_per_spin"
            )

    def _check_terms(self) -> None:
        super()._check_terms()
        n_orbitals = self.hilbert.n_orbitals
        for term in self._operators:
            change = np.zeros(self.hilbert.n_spin_subsectors, int)
            for orbital, dagger in term:
                change[orbital // n_orbitals] += 1 if dagger else -1
            if change.any():
                raise ValueError(
                    f"the term {_word(term)!r} changes the numbers of fermions of the spins by {change.tolist()}, but "
                    f"{type(self).__name__} conserves them: leave it out, or take a "
                    "ParticleNumberConservingFermioperator2nd on a space with n_fermions"
                )


def _word(term: Term) -> str:
    return " ".join(f"{orbital}{'^' if dagger else ''}" for orbital, dagger in term)


def _entries(array: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The indices and values of the entries of an array that aren't zero, dense or sparse."""
    if hasattr(array, "coords") and np.ndim(array):
        coordinates, values = np.asarray(array.coords).T, np.asarray(array.data)
    else:
        dense = np.asarray(array.todense() if hasattr(array, "todense") else array)
        coordinates, values = np.argwhere(dense), dense[np.nonzero(dense)] if dense.ndim else dense.reshape(-1)
        if not dense.ndim:
            coordinates = np.zeros((1, 0), int)
    check_dtype("the array", values)
    for index, value in zip(coordinates.tolist(), values.tolist(), strict=True):
        if value:
            yield tuple(index), value


def _terms_of_netkets(operator: Any) -> Iterator[tuple[Term, Any]]:
    """The terms of one of NetKet's conserving operators, from its tables.

    These say, for each set of fermions that a sample has, where they come from, with the weight; those of two spins are
    products of one hop of each.
    """
    hilbert = operator.hilbert
    for block, tables in netket.tables_of_conserving(operator).items():
        for key, table in tables.items():
            length, sectors = key if isinstance(key, tuple) else (key, (0,))
            if not length:
                yield (), np.asarray(table[-1]).sum().item()
                continue
            half = length // 2
            for where, weight in _hops(table):
                if block.startswith("mixed"):
                    for pair in sectors:
                        hop: list[tuple[int, int]] = []
                        for sector, to, origin in zip(pair, where[:half], where[half:], strict=True):
                            first = sector * hilbert.n_orbitals
                            hop += [(first + to, 1), (first + origin, 0)]
                        yield tuple(hop), weight
                else:
                    for sector in sectors:
                        first = sector * hilbert.n_orbitals
                        yield (
                            tuple((first + site, int(place < half)) for place, site in enumerate(where)),
                            weight,
                        )


def _hops(table: tuple[Any, Any, Any]) -> Iterator[tuple[tuple[int, ...], Any]]:
    index, created, weights = table
    if index is None:
        for sites, weight in _entries(weights):
            yield (*sites, *sites), weight
        return
    created, weights = np.asarray(created), np.asarray(weights)
    for sites, which in _entries(index):
        for origin, weight in zip(created[which].tolist(), weights[which].tolist(), strict=True):
            if weight:
                yield (*sites, *origin), weight
