"""Sums of products of Pauli matrices."""

from typing import Any

import netket as nk
import numpy as np
from netket.hilbert import AbstractHilbert
from netket.utils.numbers import is_scalar

from ferroket._compat.netket import cutoff_of
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.compiling import compile_terms, in_fewer_terms
from ferroket.operator.algebra.registry import register
from ferroket.operator.algebra.traces import trace
from ferroket.operator.compiled.masks import popcount, site_bits
from ferroket.operator.sums.term_list import TermList
from ferroket.operator.validation import check_dtype, check_hilbert, has_two_states, tolerance

_NETKETS = (nk.operator.PauliStringsJax, nk.operator.PauliStringsNumba)


@register(*_NETKETS)
class PauliStrings(Accelerated, nk.operator.PauliStringsJax):
    """A sum of products of Pauli matrices, on any number of sites each.

    It takes the place of :class:`netket.operator.PauliStringsJax`: the same constructor, attributes and arithmetic.
    Sums, products and multiples are :class:`PauliStrings` again.

    Where it differs from NetKet's: configurations that the strings don't connect, since they cancel as in XX + YY,
    have no connected element; there are ``transpose``, ``conjugate`` and ``H``; an operator that leads out of a
    constrained Hilbert space is an error when it is first used.

    Args:
        hilbert: A Hilbert space with two local states a site; it may be left out, for qubits.
        operators: The strings, of the letters I, X, Y and Z, one for each site.
        weights: Their weights; 1 by default. Weights that are nearly zero are left out.
        cutoff: Weights that aren't larger than this are left out, and matrix elements of strings that nearly cancel.
        dtype: The dtype of the matrix elements; by default one that holds them, at least a float.

    Raises:
        TypeError: If the strings aren't strings, or if a real dtype is given for complex matrix elements.
        ValueError: If strings don't have one letter for each site, or other letters, if there aren't as many weights,
            or if a weight isn't finite.
    """

    _netkets = _NETKETS
    _definition = ("_operators", "_weights", "_cutoff")

    def __init__(
        self,
        hilbert: Any,
        operators: Any = None,
        weights: Any = None,
        *,
        cutoff: float = 1.0e-10,
        dtype: Any = None,
        _mode: str = "index",
    ) -> None:
        if not isinstance(hilbert, AbstractHilbert):
            hilbert, operators, weights = None, hilbert, operators
        else:
            check_hilbert(hilbert, type(self).__name__)
            if not has_two_states(hilbert):
                raise ValueError(
                    f"Pauli matrices act on sites with two local states, but those of {hilbert!r} have "
                    f"{sorted({int(size) for size in hilbert.shape})}: take a LocalOperator"
                )
        strings = _checked_strings(operators, hilbert)
        weights = _checked_weights(weights, len(strings))
        if hilbert is None:
            super().__init__(strings, weights, cutoff=cutoff, dtype=dtype, _mode=_mode)
        else:
            super().__init__(hilbert, strings, weights, cutoff=cutoff, dtype=dtype, _mode=_mode)

    def _terms(self) -> TermList:
        n_sites = self.hilbert.size
        strings = np.asarray(self._operators, f"<U{max(n_sites, 1)}")
        if not strings.size:
            return TermList.zero(n_sites)
        letters = strings.view("<U1").reshape(len(strings), n_sites)
        bits = site_bits(n_sites)

        def words(chosen: np.ndarray) -> np.ndarray:
            packed = np.packbits(chosen, axis=1, bitorder="little")
            full = np.zeros((len(packed), 4 * bits.shape[1]), np.uint8)
            full[:, : packed.shape[1]] = packed
            return full.view("<u4").astype(np.uint32)

        is_y = letters == "Y"
        flip, sign = words((letters == "X") | is_y), words((letters == "Z") | is_y)
        # ⟨σ|Y|σ'⟩ is -i for the first local state σ, and i for the second.
        phase = np.array([1, -1j, -1, 1j])[popcount(words(is_y)) % 4]
        weights = np.asarray(self._weights)
        values = weights * phase
        if not np.iscomplexobj(weights) and not phase.imag.any():
            values = values.real
        kept = np.abs(weights) > self._cutoff
        nothing = np.zeros_like(flip)
        return TermList(n_sites, flip, nothing, nothing, sign, values)[kept]

    def _compile(self) -> Any:
        return compile_terms(in_fewer_terms(self._terms(), self._cutoff), self.hilbert, self.dtype)

    def _find_hermitian(self) -> bool:
        # Strings are hermitian and independent of each other.
        weights = np.asarray(self._weights)
        scale = np.abs(weights).max(initial=0.0)
        return bool((np.abs(weights.imag) <= tolerance(self.dtype) * scale).all())

    def _trace(self) -> complex | None:
        return trace(self._terms(), self.hilbert)

    # Algebra

    def _with_weights(self, weights: np.ndarray) -> "PauliStrings":
        new = self.copy()
        new._weights = weights.astype(self._weights.dtype)
        new._reset_caches()
        return new

    @property
    def _symmetry(self) -> np.ndarray:
        """What the strings are multiplied by if they are transposed: -1 for an odd number of Y."""
        return 1 - 2 * (np.char.count(np.asarray(self._operators, str), "Y") % 2)

    def transpose(self, *, concrete: bool = True) -> "PauliStrings":
        """The transposed operator."""
        return self._with_weights(self._weights * self._symmetry)

    def conjugate(self, *, concrete: bool = True) -> "PauliStrings":
        """The operator with the complex conjugate matrix elements."""
        return self._with_weights(self._weights.conj() * self._symmetry)

    def to_pauli_strings(self) -> "PauliStrings":
        """The operator itself."""
        return self

    @classmethod
    def from_netket(cls, operator: Any) -> "PauliStrings":
        """The operator that equals one of NetKet's, of the same dtype."""
        new = cls(operator.hilbert, cutoff=cutoff_of(operator), dtype=operator.dtype)
        new._operators, new._weights = operator.operators, np.array(operator.weights)
        return new


def _checked_strings(operators: Any, hilbert: Any) -> list[str]:
    """The strings, of the right length and letters."""
    strings = [operators] if isinstance(operators, str) else [] if operators is None else list(operators)
    for which, string in enumerate(strings):
        if not isinstance(string, str):
            raise TypeError(f"string {which} is {string!r}, but must be a string of the letters I, X, Y and Z")
        n_sites = len(strings[0]) if hilbert is None else hilbert.size
        if len(string) != n_sites:
            raise ValueError(
                f"string {which}, {string!r}, has {len(string)} letters, but there are {n_sites} sites: give one "
                "letter for each, I where nothing acts"
            )
        wrong = set(string) - set("IXYZ")
        if wrong:
            raise ValueError(f"string {which}, {string!r}, has the letter {min(wrong)!r}: only I, X, Y and Z are known")
    return strings


def _checked_weights(weights: Any, n_strings: int) -> Any:
    if weights is None or is_scalar(weights):
        numbers = np.asarray(1.0 if weights is None else weights)
        if weights is not None:
            check_dtype("the weight", numbers)
        return weights
    numbers = np.asarray(weights)
    if numbers.shape != (n_strings,):
        raise ValueError(
            f"the weights have shape {numbers.shape}, but there are {n_strings} strings: give one weight for each, or "
            "a single number"
        )
    check_dtype("the weights", numbers)
    return numbers
