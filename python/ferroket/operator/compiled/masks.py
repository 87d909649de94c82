"""Masks of sites, as 32-bit words that hold a bit for each site, and rows of such words.

Bit ``i % 32`` of word ``i // 32`` is site i.
"""

from dataclasses import dataclass
from typing import Any, Self

import jax
import numpy as np

WORD = 32


def n_words(n_sites: int) -> int:
    """W, the number of 32-bit words that hold a bit for each site; at least one."""
    return max(-(-n_sites // WORD), 1)


def site_bits(n_sites: int) -> np.ndarray:
    """The mask of each site alone, of shape ``(N, W)``: masks of several are the bitwise OR of such rows."""
    bits = np.zeros((n_sites, n_words(n_sites)), np.uint32)
    site = np.arange(n_sites)
    bits[site, site // WORD] = np.uint32(1) << (site % WORD).astype(np.uint32)
    return bits


def as_words(masks: Any, n_sites: int, name: str = "mask") -> np.ndarray:
    """Masks of sites as uint32 words, ``(T, W)``.

    Args:
        masks: uint32 or uint64 words, least significant first, of shape ``(T, n_words)``, or Python ints.
        n_sites: N; bit i belongs to site i.
        name: What errors call them.

    Raises:
        ValueError: If a bit is set that belongs to no site.
    """
    width = n_words(n_sites)
    if isinstance(masks, np.ndarray) and masks.ndim == 2:  # noqa: PLR2004
        words = np.ascontiguousarray(masks)
        if words.dtype == np.uint64:
            words = words.astype("<u8").view("<u4").astype(np.uint32)
        elif words.dtype != np.uint32:
            raise ValueError(f"the words of {name} have dtype {words.dtype}, but must be uint32 or uint64")
        beyond = words[:, width:].any(axis=1)
        words = np.pad(words[:, :width], ((0, 0), (0, max(width - words.shape[1], 0))))
    else:
        numbers = [int(number) for number in masks]
        beyond = np.array([number < 0 or number.bit_length() > n_sites for number in numbers], bool)
        if not beyond.any():
            data = b"".join(number.to_bytes(4 * width, "little") for number in numbers)
            words = np.frombuffer(data, "<u4").astype(np.uint32).reshape(-1, width)
    if not beyond.any() and n_sites < width * WORD:
        beyond = words[:, -1] >> np.uint32(n_sites - (width - 1) * WORD) != 0
    if beyond.any():
        raise ValueError(
            f"the {name} of term {int(np.flatnonzero(beyond)[0])} has a bit beyond the {n_sites} sites: "
            "bit i belongs to site i"
        )
    return words


def words_of(sites: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """The masks of lists of sites, ``(T, k)``, given the bits of each site, ``(N, W)``; sites don't occur twice."""
    if not sites.shape[1]:
        return np.zeros((len(sites), bits.shape[1]), np.uint32)
    return np.bitwise_or.reduce(bits[sites], axis=1)


def sites_of(words: np.ndarray, n_sites: int) -> np.ndarray:
    """The bits of masks, ``(..., W)``, as booleans, ``(..., N)``."""
    bytes_ = np.ascontiguousarray(words, "<u4").view(np.uint8)
    return np.unpackbits(bytes_, axis=-1, bitorder="little")[..., :n_sites].astype(bool)


_BITS_OF_BYTE = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def popcount(words: np.ndarray) -> np.ndarray:
    """The number of bits of each row, ``(T, W)`` to ``(T,)``."""
    counts: np.ndarray = _BITS_OF_BYTE[np.ascontiguousarray(words).view(np.uint8)].sum(axis=-1, dtype=np.int64)
    return counts


def is_odd(words: np.ndarray) -> np.ndarray:
    """Whether the number of bits of each row is odd, ``(T, W)`` to ``(T,)``."""
    return popcount(np.bitwise_xor.reduce(words, axis=1)[:, None]) & 1 == 1


@dataclass(frozen=True, eq=False)
class Runs:
    """Rows in an order in which equal ones follow each other, as runs.

    They are sorted by their first column, then by their second, and so on; equal ones stay in order.

    Args:
        order: The numbers of the rows, sorted, ``(T,)``.
        starts: Where each run starts in this order, ``(R,)``.
    """

    order: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> Self:
        """The runs of rows of uint32 words, ``(T, W)``."""
        # Two words at a time, and no column in which all rows agree.
        words = np.pad(rows, ((0, 0), (0, rows.shape[1] % 2))).astype(np.uint64)
        numbers = (words[:, ::2] << np.uint64(32)) | words[:, 1::2]
        columns = [column for column in numbers.T if column.size and (column != column[0]).any()]
        order = np.lexsort(columns[::-1]) if columns else np.arange(len(rows))
        is_start = np.arange(len(rows)) == 0
        for column in columns:
            ordered = column[order]
            is_start[1:] |= ordered[1:] != ordered[:-1]
        return cls(order, np.flatnonzero(is_start))

    def __len__(self) -> int:
        return self.starts.size

    @property
    def lengths(self) -> np.ndarray:
        """How many rows each run has."""
        return np.diff(np.append(self.starts, self.order.size))

    @property
    def first(self) -> np.ndarray:
        """The number of the first row of each run."""
        return self.order[self.starts]

    @property
    def run_of_row(self) -> np.ndarray:
        """The number of the run that each row is in, ``(T,)``."""
        runs = np.empty(self.order.size, np.int64)
        runs[self.order] = np.repeat(np.arange(len(self)), self.lengths)
        return runs

    def rows_of_runs(self) -> list[np.ndarray]:
        """The numbers of the rows of each run."""
        return np.split(self.order, self.starts[1:]) if len(self) else []

    def unions(self, words: np.ndarray) -> np.ndarray:
        """The bits that any row of each run has, of masks ``(T, W)``: ``(R, W)``."""
        return np.bitwise_or.reduceat(words[self.order], self.starts, axis=0) if len(self) else words

    def sums(self, values: Any) -> Any:
        """The sums of the rows' values over each run; values of JAX may be traced."""
        if not len(self):
            return values
        if isinstance(values, np.ndarray):
            return np.add.reduceat(values[self.order], self.starts)
        numbers = np.repeat(np.arange(len(self)), self.lengths)
        return jax.ops.segment_sum(values[self.order], numbers, len(self))
