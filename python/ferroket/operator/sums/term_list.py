"""Sums of non-branching terms as one computes with them: added, multiplied and simplified before they are compiled.

A term maps a sample σ to σ XOR flip with the matrix element ``value * (-1)^popcount(σ & sign)`` if ``σ & mask`` equals
``pattern``. Products of such terms, their transposes and their embeddings into more sites are such terms again, and all
operators on sites with two local states are sums of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ferroket.operator.compiled.masks import Runs, is_odd, popcount, site_bits, sites_of

NOISE = 64 * float(np.finfo(np.float64).eps)
"""What is smaller than this, beside the numbers that it is a sum of, is rounding error."""

_MAX_PRODUCT = 1 << 24
_MAX_TERMS = 1 << 22


def negated(values: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The values, times -1 where a row has an odd number of bits."""
    return np.where(is_odd(words), -values, values)


@dataclass(frozen=True, eq=False)
class TermList:
    """A sum of non-branching terms on N sites with two local states; W words of 32 bits hold a bit for each site.

    Args:
        n_sites: N.
        flip: The sites that each term flips, uint32 ``(T, W)``: bit ``i % 32`` of word ``i // 32`` is site i.
        mask: The sites that it looks at.
        pattern: What it wants to find there.
        sign: The sites that give it a sign.
        values: Its value, ``(T,)``, real or complex in double precision.
    """

    n_sites: int
    flip: np.ndarray
    mask: np.ndarray
    pattern: np.ndarray
    sign: np.ndarray
    values: np.ndarray

    def __post_init__(self) -> None:
        wide = np.complex128 if np.iscomplexobj(self.values) else np.float64
        object.__setattr__(self, "values", np.asarray(self.values, wide))

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def zero(cls, n_sites: int) -> Self:
        """No terms."""
        nothing = np.zeros((0, site_bits(n_sites).shape[1]), np.uint32)
        return cls(n_sites, nothing, nothing, nothing, nothing, np.zeros(0))

    @classmethod
    def identity(cls, n_sites: int, value: Any = 1.0) -> Self:
        """A multiple of the identity."""
        nothing = np.zeros((1, site_bits(n_sites).shape[1]), np.uint32)
        return cls(n_sites, nothing, nothing, nothing, nothing, np.reshape(np.asarray(value), 1))

    @classmethod
    def total(cls, n_sites: int, lists: Iterable["TermList"]) -> Self:
        """The sum of several."""
        parts = [cls.zero(n_sites), *lists]
        return cls(
            n_sites,
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("flip", "mask", "pattern", "sign", "values")
            ),
        )

    def __getitem__(self, which: Any) -> "TermList":
        return TermList(
            self.n_sites, self.flip[which], self.mask[which], self.pattern[which], self.sign[which], self.values[which]
        )

    def __add__(self, other: "TermList") -> "TermList":
        return TermList.total(self.n_sites, [self, other])

    def __mul__(self, factor: Any) -> "TermList":
        return self.with_values(self.values * factor)

    def with_values(self, values: np.ndarray) -> "TermList":
        """The terms with other values."""
        return TermList(self.n_sites, self.flip, self.mask, self.pattern, self.sign, values)

    def __matmul__(self, other: "TermList") -> "TermList":
        """The product: each term of one times each of the other, where their patterns agree.

        Raises:
            MemoryError: If it has so many terms that it is better computed factor by factor.
        """
        if len(self) * len(other) > _MAX_PRODUCT:
            raise MemoryError(
                f"the product of {len(self)} and {len(other)} terms has {len(self) * len(other)} of them, more than "
                f"{_MAX_PRODUCT}: keep the factors apart, as nk.operator.ProductOperator does"
            )
        left, right = (pairs.ravel() for pairs in np.indices((len(self), len(other))))
        return self[left].times(other[right])[0]

    def times(self, other: "TermList") -> tuple["TermList", np.ndarray]:
        """The products of each term with the one at the same place, and which are left: those whose patterns agree."""
        # The right factor sees the sample that the left one has flipped.
        values = negated(self.values * other.values, self.flip & other.sign)
        pattern = other.pattern ^ (self.flip & other.mask)
        agree = ~((self.pattern ^ pattern) & self.mask & other.mask).any(axis=1)
        products = TermList(
            self.n_sites,
            self.flip ^ other.flip,
            self.mask | other.mask,
            self.pattern | pattern,
            self.sign ^ other.sign,
            values,
        )
        return products[agree], agree

    def transpose(self) -> "TermList":
        """The transposed terms."""
        return TermList(
            self.n_sites,
            self.flip,
            self.mask,
            self.pattern ^ (self.flip & self.mask),
            self.sign,
            negated(self.values, self.flip & self.sign),
        )

    def conjugate(self) -> "TermList":
        """The terms with complex conjugate values."""
        return self.with_values(self.values.conj())

    def embedded(self, n_sites: int, first: int) -> "TermList":
        """The terms on ``n_sites`` sites, of which site ``first`` is their first."""
        bits = site_bits(n_sites)

        def move(words: np.ndarray) -> np.ndarray:
            moved = np.zeros((len(words), bits.shape[1]), np.uint32)
            for site, chosen in enumerate(sites_of(words, self.n_sites).T):
                moved |= np.where(chosen[:, None], bits[first + site], np.uint32(0))
            return moved

        return TermList(n_sites, move(self.flip), move(self.mask), move(self.pattern), move(self.sign), self.values)

    def merged(self) -> "TermList":
        """The same operator with the terms sorted, those that do the same added up, and without those that cancel."""
        # Where a term looks at a site, it knows the sign.
        values = negated(self.values, self.pattern & self.sign)
        sign = self.sign & ~self.mask
        runs = Runs.of(np.concatenate([self.flip, self.mask, self.pattern, sign], axis=1))
        sums = runs.sums(values)
        kept = np.abs(sums) > NOISE * runs.sums(np.abs(values))
        chosen = runs.first[kept]
        return TermList(
            self.n_sites, self.flip[chosen], self.mask[chosen], self.pattern[chosen], sign[chosen], sums[kept]
        )

    def looking_at(self, where: Callable[["TermList"], np.ndarray]) -> "TermList":
        """The same operator with terms that look at the sites ``where(terms)``, ``(T, W)``, and have no sign there.

        Raises:
            MemoryError: If it has too many such terms.
        """
        return self._expanded(lambda terms: where(terms) & ~terms.mask, TermList._on_pattern)

    def in_signs(self, where: Callable[["TermList"], np.ndarray] = lambda terms: terms.mask) -> "TermList":
        """The same operator with terms that have signs at the sites ``where(terms)``, all by default, not patterns.

        With signs at all sites, an operator is a sum of terms in one way only.

        Raises:
            MemoryError: If it has too many such terms.
        """
        return self._expanded(lambda terms: where(terms) & terms.mask, TermList._on_signs)

    def _expanded(
        self,
        missing: Callable[["TermList"], np.ndarray],
        split: Callable[["TermList", np.ndarray], "TermList"],
    ) -> "TermList":
        """Splits the terms at one missing site after the other, adding up what has become equal."""
        done, terms = [], self.merged()
        while len(terms):
            words = missing(terms)
            finished = ~words.any(axis=1)
            done.append(terms[finished])
            terms = terms[~finished]
            if len(terms) > _MAX_TERMS:
                raise MemoryError(f"the operator has more than {_MAX_TERMS} terms if written in patterns or in signs")
            if len(terms):
                terms = split(terms, _lowest_bit(words[~finished])).merged()
        return TermList.total(self.n_sites, done).merged()

    def _on_pattern(self, bit: np.ndarray) -> "TermList":
        # A sample has 0 or 1 there, and that is the sign.
        zero = TermList(self.n_sites, self.flip, self.mask | bit, self.pattern, self.sign & ~bit, self.values)
        one = TermList(
            self.n_sites,
            self.flip,
            self.mask | bit,
            self.pattern | bit,
            self.sign & ~bit,
            negated(self.values, self.sign & bit),
        )
        return zero + one

    def _on_signs(self, bit: np.ndarray) -> "TermList":
        # |0⟩⟨0| = (1 + Z) / 2 and |1⟩⟨1| = (1 - Z) / 2.
        values = negated(self.values, self.sign & bit & self.pattern) / 2
        mask, pattern, sign = self.mask & ~bit, self.pattern & ~bit, self.sign & ~bit
        even = TermList(self.n_sites, self.flip, mask, pattern, sign, values)
        odd = TermList(self.n_sites, self.flip, mask, pattern, sign | bit, negated(values, self.pattern & bit))
        return even + odd

    def vanishes(self, tolerance: float = 0.0) -> bool:
        """Whether this operator is zero, up to rounding and ``tolerance``."""
        terms = self.merged()
        if not len(terms):
            return True
        if tolerance and np.abs(terms.values).max() <= tolerance:
            return True
        signs = terms.in_signs()
        scale = np.abs(self.values).max(initial=0.0)
        return bool(np.abs(signs.values).max(initial=0.0) <= max(tolerance, NOISE * scale))

    def strings(self) -> tuple[list[str], np.ndarray]:
        """The Pauli strings and their weights that this operator is the sum of.

        Raises:
            MemoryError: If there are too many.
        """
        terms = self.in_signs()
        # A flip with a sign is iY.
        both = terms.flip & terms.sign
        phase = np.array([1, 1j, -1, -1j])[popcount(both) % 4]
        letters = np.array(list("IXZY"))
        codes = sites_of(terms.flip, self.n_sites) + 2 * sites_of(terms.sign, self.n_sites)
        weights = terms.values * phase
        if not np.iscomplexobj(self.values) and not (weights.imag != 0).any():
            weights = weights.real
        return ["".join(row) for row in letters[codes]], weights


def _lowest_bit(words: np.ndarray) -> np.ndarray:
    """The lowest bit of each row, ``(T, W)``, none of which is empty."""
    which = (words != 0).argmax(axis=1)
    rows = np.arange(len(words))
    word = words[rows, which]
    result = np.zeros_like(words)
    result[rows, which] = word & (~word + np.uint32(1))
    return result


def as_dtype(values: np.ndarray, dtype: Any, what: str) -> np.ndarray:
    """Values in another dtype.

    Raises:
        ValueError: If they are complex and the dtype isn't.
    """
    if np.iscomplexobj(values) and not np.issubdtype(dtype, np.complexfloating):
        if (np.abs(values.imag) > NOISE * np.abs(values).max(initial=0.0)).any():
            worst = values[np.abs(values.imag).argmax()]
            raise ValueError(
                f"{what} has the matrix element {worst}, which dtype {np.dtype(dtype)} can't hold: give a complex dtype"
            )
        values = values.real
    return values.astype(dtype)


def pattern_terms(
    n_sites: int,
    sites: np.ndarray,
    bits: np.ndarray,
    flip: Any,
    mask: Any,
    pattern: Any,
    sign: Any,
    values: Any,
) -> TermList:
    """Terms that are the same on several lists of sites.

    Args:
        n_sites: N.
        sites: The lists, ``(n_lists, k)``.
        bits: The mask of each site, ``(N, W)``.
        flip: The sites that each term flips, as numbers of k bits of which the first site is the most significant,
            ``(t,)``.
        mask: The sites that it looks at.
        pattern: What it wants to find.
        sign: The sites that give it a sign.
        values: The values, ``(t,)``.

    Returns:
        ``n_lists * t`` terms.
    """
    lists = np.asarray(sites, np.intp)
    n_lists, k = lists.shape
    of_site = bits[lists]  # (n_lists, k, W)

    def spread(numbers: Any) -> np.ndarray:
        numbers = np.asarray(numbers, np.int64)
        words = np.zeros((n_lists, numbers.size, bits.shape[1]), np.uint32)
        for position in range(k):
            chosen = (numbers >> (k - 1 - position)) & 1
            words |= np.where(chosen[None, :, None] == 1, of_site[:, position, None, :], np.uint32(0))
        return words.reshape(n_lists * numbers.size, -1)

    return TermList(n_sites, spread(flip), spread(mask), spread(pattern), spread(sign), np.tile(values, n_lists))
