"""Sums of operators that act on a few sites each, given by their matrices."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import scipy.sparse
from netket.utils.numbers import is_scalar

from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.compiling import compile_matrices, compile_terms
from ferroket.operator.algebra.registry import register
from ferroket.operator.algebra.traces import trace
from ferroket.operator.constraints.hilbert import conserved_charges
from ferroket.operator.sums.local_matrices import (
    Entries,
    LocalTerms,
    cluster_parts,
    sparse_matrix,
    to_terms,
)
from ferroket.operator.sums.term_list import TermList
from ferroket.operator.validation import (
    check_coefficient,
    check_dtype,
    check_hilbert,
    has_two_states,
    is_traced,
    own,
    tolerance,
)

_NETKETS = (nk.operator.LocalOperatorJax, nk.operator.LocalOperatorNumba)


@register(*_NETKETS)
class LocalOperator(Accelerated, nk.operator.LocalOperatorJax):
    """A sum of operators that act on a few sites each, on any discrete Hilbert space.

    It takes the place of :class:`netket.operator.LocalOperatorJax`: the same constructor, attributes and arithmetic.
    Sums, products and multiples are :class:`LocalOperator` again.

    Where it differs from NetKet's: with two local states a site, configurations that several terms connect are one
    connected element; :attr:`max_conn_size` knows of conserved particle numbers; ``transpose``, ``conjugate`` and
    ``H`` are operators, not wrappers, and conjugate the constant too; ``is_hermitian`` looks at the operator, not at
    each matrix; an operator that leads out of a constrained Hilbert space is an error when it is first used.

    Args:
        hilbert: A discrete Hilbert space.
        operators: A matrix, or a list of matrices, dense or sparse, ⟨row|O|column⟩. The rows are numbered by the
            local indices of the sites, the first one being the most significant.
        acting_on: The sites that the matrix acts on, or a list of such for a list of matrices.
        constant: A multiple of the identity that is added.
        dtype: The dtype of the matrix elements; by default one that holds all matrices, at least a float.
        mel_cutoff: Entries off the diagonal that aren't larger than this are left out.

    Raises:
        TypeError: If the Hilbert space isn't discrete, or if sites aren't integers or matrices aren't numbers.
        ValueError: If sites aren't in the Hilbert space or occur twice in a list, if there aren't as many matrices as
            lists of sites, or if a matrix doesn't fit its sites, isn't finite or can't be held by ``dtype``.
    """

    _netkets = _NETKETS
    _is_local = True
    _definition = ("_operators_dict", "_constant", "_mel_cutoff")

    def __init__(
        self,
        hilbert: Any,
        operators: Any = (),
        acting_on: Any = (),
        constant: Any = 0,
        dtype: Any = None,
        *,
        mel_cutoff: float = 1.0e-10,
    ) -> None:
        check_hilbert(hilbert, type(self).__name__)
        check_coefficient("the constant", constant, dtype)
        matrices: list[Any] = []
        sites: list[list[int]] = []
        for matrix, where in _pairs(operators, acting_on):
            _check_sites(where, len(sites), hilbert)
            _check_matrix(matrix, where, len(sites), hilbert, dtype)
            matrices.append(matrix)
            sites.append([int(site) for site in where])
        super().__init__(hilbert, matrices, sites, constant, dtype, mel_cutoff=mel_cutoff)

    # The definition

    @property
    def mel_cutoff(self) -> float:
        """Matrix elements that aren't larger than this are left out."""
        return self._mel_cutoff

    @mel_cutoff.setter
    def mel_cutoff(self, mel_cutoff: float) -> None:
        if not is_scalar(mel_cutoff) or not mel_cutoff >= 0:
            raise ValueError(f"mel_cutoff is {mel_cutoff!r}, but must be a number that isn't negative")
        self._mel_cutoff = mel_cutoff
        self._reset_caches()

    def _local(self) -> LocalTerms:
        return [(where, Entries.of(matrix, self.mel_cutoff)) for where, matrix in self._operators_dict.items()]

    def _terms_and_most(self) -> tuple[TermList, int]:
        terms, most = to_terms(self.hilbert.size, self._local(), exact=not jnp.issubdtype(self.dtype, jnp.inexact))
        if self._constant:
            terms += TermList.identity(self.hilbert.size, self._constant)
        return terms, most

    def _terms(self) -> TermList:
        return self._terms_and_most()[0]

    def _compile(self) -> Any:
        if has_two_states(self.hilbert):
            terms, most = self._terms_and_most()
            return compile_terms(terms, self.hilbert, self.dtype, cutoff=self.mel_cutoff, most=most)
        return compile_matrices(self._local(), self._constant, self.hilbert, self.dtype, cutoff=self.mel_cutoff)

    def _find_hermitian(self) -> bool:
        # Matrices that aren't hermitian may be so together.
        rest: dict[tuple[int, ...], np.ndarray] = {}
        largest = [abs(matrix).max() for matrix in self._operators_dict.values() if min(matrix.shape)]
        scale = float(max([abs(self._constant), *largest]))
        limit = tolerance(self.dtype) * scale
        differences: dict[tuple[int, ...], np.ndarray] = {
            (): np.reshape(self._constant - np.conj(self._constant), (1, 1))
        }
        for where, matrix in self._operators_dict.items():
            difference = matrix - matrix.conj().T
            if abs(difference).max() > limit:
                differences[where] = difference.toarray() if scipy.sparse.issparse(difference) else difference
        if set(differences) == {()}:
            return bool(abs(differences[()]).max() <= limit)
        for where, difference in differences.items():
            sizes = [int(self.hilbert.shape[site]) for site in where]
            for sites, part in cluster_parts(where, difference, sizes).items():
                rest[sites] = rest[sites] + part if sites in rest else part
        return all(bool(np.abs(part).max() <= limit) for part in rest.values())

    def _trace(self) -> complex | None:
        if has_two_states(self.hilbert):
            return trace(self._terms(), self.hilbert)
        conserved, complete = conserved_charges(self.hilbert)
        if conserved or not complete:
            return None
        sizes = [int(size) for size in self.hilbert.shape]
        n_states = int(np.prod(sizes, dtype=object))
        total = complex(self._constant) * n_states
        for where, matrix in self._operators_dict.items():
            rows = int(np.prod([sizes[site] for site in where], dtype=object))
            total += complex(matrix.diagonal().sum()) * (n_states // rows)
        return total

    # Algebra

    def _add_operator(self, acting_on: tuple[int, ...], operator: Any) -> None:
        # A dense and a sparse matrix are a numpy.matrix together, whose products and sums aren't those of arrays.
        there = self._operators_dict.get(acting_on)
        if there is not None and scipy.sparse.issparse(there) != scipy.sparse.issparse(operator):
            dtype = np.promote_types(there.dtype, operator.dtype)
            self._operators_dict[acting_on] = sparse_matrix(there, dtype)
            operator = sparse_matrix(operator, dtype)
        super()._add_operator(acting_on, operator)

    def __iadd__(self, other: Any) -> Any:
        # NetKet knows the dtype of a NumPy scalar, but not that of an array without dimensions.
        if isinstance(other, np.ndarray | jax.Array) and is_scalar(other) and not is_traced(other):
            other = np.asarray(other)[()]
        return super().__iadd__(other)

    def _mapped(self, function: Any) -> "LocalOperator":
        new = self.copy()
        new._operators_dict = {where: function(matrix) for where, matrix in self._operators_dict.items()}
        new._reset_caches()
        return new

    def transpose(self, *, concrete: bool = True) -> "LocalOperator":
        """The transposed operator."""
        return self._mapped(lambda matrix: matrix.T)

    def conjugate(self, *, concrete: bool = True) -> "LocalOperator":
        """The operator with the complex conjugate matrix elements."""
        new = self._mapped(lambda matrix: matrix.conj())
        new._constant = self._constant.conj()
        return new

    def _embedded(self, hilbert: Any, first: int) -> "LocalOperator":
        """The operator on a larger space, of which site ``first`` is its first."""
        new = LocalOperator(hilbert, constant=self.constant, dtype=self.dtype, mel_cutoff=self.mel_cutoff)
        moved = {tuple(first + site for site in where): matrix for where, matrix in self._operators_dict.items()}
        new._operators_dict = moved
        return new

    def to_local_operator(self) -> "LocalOperator":
        """The operator itself."""
        return self

    @classmethod
    def from_netket(cls, operator: Any) -> "LocalOperator":
        """The operator that equals one of NetKet's, of the same dtype."""
        new = cls(operator.hilbert, constant=operator.constant, dtype=operator.dtype, mel_cutoff=operator.mel_cutoff)
        new._operators_dict = dict(zip(map(tuple, operator.acting_on), map(own, operator.operators), strict=True))
        return new


def _pairs(operators: Any, acting_on: Any) -> Iterator[tuple[Any, Any]]:
    """The matrices and the sites that they act on."""
    if isinstance(acting_on, int | np.integer):
        acting_on = [acting_on]
    if not any(hasattr(where, "__len__") for where in acting_on):
        if acting_on:
            yield _as_matrix(operators), acting_on
            return
        acting_on = []
    if isinstance(operators, np.ndarray) and operators.ndim == 2:  # noqa: PLR2004
        operators = [operators]
    if len(operators) != len(acting_on):
        raise ValueError(
            f"there are {len(operators)} matrices, but {len(acting_on)} lists of sites that they act on: give one for "
            "each"
        )
    yield from zip(map(_as_matrix, operators), acting_on, strict=True)


def _as_matrix(matrix: Any) -> Any:
    return matrix if scipy.sparse.issparse(matrix) else np.asarray(matrix)


def _check_sites(where: Any, which: int, hilbert: Any) -> None:
    sites = np.asarray(where)
    if not sites.size:
        raise ValueError(f"operator {which} acts on no site: give its value as the constant instead")
    if sites.ndim != 1 or not np.issubdtype(sites.dtype, np.integer):
        raise TypeError(f"operator {which} acts on {where!r}, but must act on a list of sites, numbered by integers")
    for site in sites.tolist():
        if not 0 <= site < hilbert.size:
            raise ValueError(
                f"operator {which} acts on site {site}, but the {hilbert.size} sites are numbered from 0 to "
                f"{hilbert.size - 1}"
            )
    if len(set(sites.tolist())) != sites.size:
        raise ValueError(f"operator {which} acts on the sites {sites.tolist()}, one of them twice: name each site once")


def _check_matrix(matrix: Any, where: Any, which: int, hilbert: Any, dtype: Any) -> None:
    sizes = [int(hilbert.shape[site]) for site in where]
    rows = int(np.prod(sizes, dtype=object))
    if matrix.shape != (rows, rows):
        raise ValueError(
            f"the matrix of operator {which} has shape {matrix.shape}, but the sites {[int(site) for site in where]} "
            f"with {sizes} local states need one of shape {(rows, rows)}"
        )
    if not (jnp.issubdtype(matrix.dtype, jnp.number) or matrix.dtype == bool):
        raise TypeError(f"the matrix of operator {which} has dtype {matrix.dtype}, but must be of numbers")
    values = matrix.tocoo().data if scipy.sparse.issparse(matrix) else matrix
    check_dtype(f"the matrix of operator {which}", values, dtype)
