"""Operators on fermions in second quantization."""

from typing import Any, Self

import netket as nk
import numpy as np
from netket.utils.numbers import dtype as dtype_of
from netket.utils.numbers import is_scalar

from ferroket._compat.netket import order_of
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.compiling import compile_terms
from ferroket.operator.algebra.registry import register
from ferroket.operator.algebra.traces import trace
from ferroket.operator.compiled.masks import site_bits, words_of
from ferroket.operator.sums.term_list import TermList
from ferroket.operator.validation import check_coefficient, check_dtype, check_hilbert, promoted, tolerance

Term = tuple[tuple[int, int], ...]
"""A product of operators, each an orbital and 1 for creation or 0 for annihilation."""

NETKETS = (nk.operator.FermionOperator2ndJax, nk.operator.FermionOperator2ndNumba)


@register(*NETKETS)
class FermionOperator2nd(Accelerated, nk.operator.FermionOperator2ndJax):
    """A sum of products of fermionic creation and annihilation operators.

    It takes the place of :class:`netket.operator.FermionOperator2ndJax`: the same constructor, attributes and
    arithmetic. Sums, products and multiples are :class:`FermionOperator2nd` again.

    Where it differs from NetKet's: terms that connect the same configurations are one connected element, and
    :attr:`max_conn_size` knows how many fermions there are, so that there is nothing to gain from the operators that
    conserve particle numbers; ``transpose``, ``conjugate`` and ``H`` are operators, not wrappers; an operator
    that leads out of a Hilbert space with a fixed number of fermions is an error when it is first used.

    Args:
        hilbert: A Hilbert space with two local states a site, the second one for a fermion.
        terms: The products: strings such as ``"0^ 1"``, or sequences of ``(orbital, 1 for creation or 0)``.
        weights: Their weights; 1 by default.
        constant: A multiple of the identity that is added.
        cutoff: Weights that aren't larger than this are left out.
        dtype: The dtype of the matrix elements; by default one that holds the weights, at least a float.

    Raises:
        TypeError: If the Hilbert space isn't discrete.
        ValueError: If the sites don't have two local states, if an orbital isn't in the Hilbert space, if there aren't
            as many weights as terms, or if a weight isn't finite or can't be held by ``dtype``.
    """

    _netkets = NETKETS
    _definition = ("_operators", "_cutoff")
    _order: str | None = None
    """NetKet's note of the terms' order, if they are in one; versions before 3.21 have none."""

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
        check_hilbert(hilbert, type(self).__name__)
        if any(size != 2 for size in hilbert.shape):  # noqa: PLR2004
            raise ValueError(
                f"fermions are on sites with two local states, but those of {hilbert!r} have "
                f"{sorted({int(size) for size in hilbert.shape})}: take nk.hilbert.SpinOrbitalFermions"
            )
        check_coefficient("the constant", constant, dtype)
        terms = [terms] if isinstance(terms, str) else [] if terms is None else terms
        if weights is not None:
            weights = np.atleast_1d(np.asarray(weights))
            if weights.shape != (len(terms),):
                raise ValueError(
                    f"the weights have shape {weights.shape}, but there are {len(terms)} terms: give one weight for "
                    "each"
                )
            check_dtype("the weights", weights, dtype)
        super().__init__(hilbert, terms, weights, constant=constant, cutoff=cutoff, dtype=dtype, _mode=_mode)

    def _terms(self) -> TermList:
        n_sites = self.hilbert.size
        bits = site_bits(n_sites)
        below = np.bitwise_or.accumulate(bits, axis=0) ^ bits
        by_length: dict[int, list[tuple[Any, Any]]] = {}
        for term, weight in self._operators.items():
            by_length.setdefault(len(term), []).append((term, weight))
        parts = []
        for length, found in by_length.items():
            factors = np.array([term for term, _ in found], np.int64).reshape(len(found), length, 2)
            product = TermList.identity(n_sites)[np.zeros(len(found), np.intp)]
            product = product.with_values(np.array([weight for _, weight in found]))
            for position in range(length):
                # c_i takes σ without a fermion in orbital i to σ with it, and c_i^† the other way; each fermion in an
                # orbital before i gives a sign.
                orbital, dagger = factors[:, position].T
                site = words_of(orbital[:, None], bits)
                wanted = np.where(dagger[:, None] == 1, site, np.uint32(0))
                factor = TermList(n_sites, site, site, wanted, below[orbital], np.ones(len(factors)))
                product, agree = product.times(factor)
                factors = factors[agree]
            parts.append(product)
        return TermList.total(n_sites, parts)

    def _compile(self) -> Any:
        return compile_terms(self._terms(), self.hilbert, self.dtype, cutoff=self._cutoff)

    def _find_hermitian(self) -> bool:
        terms = self._terms()
        scale = float(np.abs(terms.values).max(initial=0.0))
        difference = terms + terms.transpose().conjugate() * -1
        return difference.vanishes(max(tolerance(self.dtype) * scale, self._cutoff))

    def _trace(self) -> complex | None:
        return trace(self._terms(), self.hilbert)

    # Algebra

    def _like(self, operators: dict[Any, Any], order: str | None = None) -> "FermionOperator2nd":
        """An operator of the same kind with other terms."""
        new = self.copy()
        new._operators, new._order = operators, order
        new._reset_caches()
        return new

    def transpose(self, *, concrete: bool = True) -> "FermionOperator2nd":
        """The transposed operator."""
        return self._like({_transposed(term): weight for term, weight in self._operators.items()})

    def conjugate(self, *, concrete: bool = True) -> "FermionOperator2nd":
        """The operator with the complex conjugate matrix elements."""
        return self._like({term: np.conjugate(weight) for term, weight in self._operators.items()}, self._order)

    def reduce(self, order: bool = True, inplace: bool = True, cutoff: float | None = None) -> Any:
        """Leaves out terms with small weights, after adding up those that are equal in normal order if that is wanted.

        Args:
            order: Whether to bring the terms to normal order.
            inplace: Whether to change this operator instead of a copy.
            cutoff: Weights that aren't larger than this are left out; by default that of the operator.
        """
        result = super().reduce(order=order, inplace=inplace, cutoff=cutoff)
        result._reset_caches()
        return result

    def __add__(self, other: Any) -> Any:
        if is_scalar(other):
            other = self._constant(other, promoted(self.dtype, dtype_of(other)))
        return super().__add__(other)

    def __iadd__(self, other: Any) -> Any:
        # NetKet's makes a new operator for a constant, of the same dtype, and changes this one for an operator.
        return super().__add__(self._constant(other, self.dtype)) if is_scalar(other) else super().__iadd__(other)

    def __isub__(self, other: Any) -> Any:
        # NetKet has no difference in place: it makes a new operator, maybe of another dtype.
        return self - other

    def _constant(self, value: Any, dtype: Any) -> "FermionOperator2nd":
        return FermionOperator2nd(self.hilbert, constant=value, cutoff=self._cutoff, dtype=dtype)

    @classmethod
    def from_netket(cls, operator: Any) -> Self:
        """The operator that equals one of NetKet's, of the same dtype."""
        new = cls(operator.hilbert, cutoff=operator.cutoff, dtype=operator.dtype)
        new._operators, new._order = dict(operator.operators), order_of(operator)
        return new


def _transposed(term: Term) -> Term:
    return tuple((orbital, 1 - dagger) for orbital, dagger in reversed(term))
