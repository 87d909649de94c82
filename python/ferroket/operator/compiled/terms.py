"""Operators on sites with two local states as sums of non-branching terms, grouped by the sites that they flip."""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi import Attribute, Family, TermArguments
from ferroket.ffi.references import sites as site_references
from ferroket.ffi.references import terms as references
from ferroket.operator.compiled.form import Form, coefficients
from ferroket.operator.compiled.local_states import LocalStates
from ferroket.operator.compiled.masks import Runs, as_words, is_odd


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("sites", "flip", "first", "mask", "pattern", "sign", "values"),
    meta_fields=("diagonal", "unconditional", "max_conn_size"),
)
@dataclass(frozen=True, eq=False)
class Terms(Form):
    """A sum of non-branching terms on N sites with two local states each.

    Term t maps a sample σ to σ XOR flip with the matrix element ``values[t] * (-1)^popcount(σ & sign[t])`` if
    ``σ & mask[t]`` equals ``pattern[t]``. Terms with the same flip are a group and give one connected element, the sum
    of those whose pattern fits. An element is there if any of its terms fits; the diagonal always is.

    Bit ``i % 32`` of word ``i // 32`` is the local index of site i. With G groups, T terms and W words:

    Args:
        sites: The local states of the sites.
        flip: The sites that each group flips, uint32 ``(G, W)``.
        first: The terms of group g are ``first[g]:first[g + 1]``, int32 ``(G + 1,)``.
        mask: The sites that each term looks at, uint32 ``(T, W)``.
        pattern: What it wants to find there, uint32 ``(T, W)``.
        sign: The sites that give it a sign, uint32 ``(T, W)``.
        values: The coefficients, ``(T,)``.
        diagonal: Whether group 0 flips nothing; no other group may.
        unconditional: Whether all groups are there for all samples.
        max_conn_size: K, the largest number of elements that a sample has.

    Use :meth:`from_masks` or :meth:`from_arrays`, which work out what follows from the arrays.
    """

    family: ClassVar[Family] = Family(
        target="ferroket_terms",
        elements=references.elements,
        configurations=references.configurations,
        arguments=TermArguments,
        coefficients=("values",),
        filler=site_references.first_local_states,
    )

    sites: LocalStates
    flip: Any
    first: Any
    mask: Any
    pattern: Any
    sign: Any
    values: Any
    diagonal: bool
    unconditional: bool
    max_conn_size: int

    @property
    def tables(self) -> TermArguments:
        """The arrays in the order in which the kernels take them."""
        return TermArguments(
            kind=self.sites.kind,
            flip=self.flip,
            first=self.first,
            mask=self.mask,
            pattern=self.pattern,
            sign=self.sign,
            values=self.values,
        )

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The static numbers that the kernels take."""
        return {**super().attributes, "unconditional": self.unconditional}

    @classmethod
    def from_arrays(
        cls,
        sites: LocalStates,
        flip: np.ndarray,
        first: np.ndarray,
        mask: np.ndarray,
        pattern: np.ndarray,
        sign: np.ndarray,
        values: Any,
        *,
        diagonal: bool,
        max_conn_size: int | None = None,
    ) -> Self:
        """From arrays in this form; ``max_conn_size`` is the number of groups if nothing smaller is known.

        Raises:
            ValueError: If a site hasn't two local states.
        """
        _check_sizes(sites)
        # A term that looks at no site fits always.
        n_groups = len(first) - 1
        of_terms = np.concatenate([[0], np.cumsum(~np.asarray(mask).any(axis=1))])
        fits_always = np.diff(of_terms[np.asarray(first)]) > 0
        fits_always[: int(diagonal)] = True
        return cls(
            sites=sites,
            flip=np.asarray(flip, np.uint32),
            first=np.asarray(first, np.int32),
            mask=np.asarray(mask, np.uint32),
            pattern=np.asarray(pattern, np.uint32),
            sign=np.asarray(sign, np.uint32),
            values=coefficients(values),
            diagonal=diagonal,
            unconditional=bool(fits_always.all()),
            max_conn_size=n_groups if max_conn_size is None else max_conn_size,
        )

    @classmethod
    def from_masks(
        cls,
        sites: LocalStates,
        mask: Any,
        pattern: Any,
        flip: Any,
        sign: Any,
        values: Any,
        *,
        cutoff: float | None = None,
        diagonal: bool = False,
        max_conn_size: int | None = None,
    ) -> Self:
        """From a list of terms in any order: terms that do the same are added up, and terms are grouped by flip.

        The diagonal comes first, then the groups in the order in which their flips first occur among the terms.

        Args:
            sites: The local states of the sites.
            mask: The sites that each term looks at: uint32 or uint64 words of shape ``(T, n_words)``, or Python ints.
            pattern: What it wants to find there, a part of the mask.
            flip: The sites that it flips.
            sign: The sites that give it a sign.
            values: The coefficients, ``(T,)``; they may be traced.
            cutoff: Terms whose values, added up, aren't larger than this are left out; none are if it is None or
                if the values are traced.
            diagonal: Whether to keep the diagonal also where it has no terms. An operator without any terms does.
            max_conn_size: K, the number of groups if nothing smaller is known.

        Raises:
            ValueError: If a site hasn't two local states, if a mask has a bit that belongs to no site, if a pattern
                isn't a part of its mask, or if there aren't as many values as terms.
        """
        _check_sizes(sites)
        n_sites = sites.n_sites
        mask, pattern, flip, sign = (
            as_words(words, n_sites, name)
            for words, name in ((mask, "mask"), (pattern, "pattern"), (flip, "flip"), (sign, "sign"))
        )
        traced = isinstance(values, jax.core.Tracer)
        values = values if traced else np.asarray(values)
        counts = {"mask": len(mask), "pattern": len(pattern), "flip": len(flip), "sign": len(sign)}
        if values.ndim != 1 or set(counts.values()) != {values.size}:
            raise ValueError(
                f"the values have shape {values.shape}, but the terms are {counts}: give one of each for each term"
            )
        misfits = np.flatnonzero((pattern & ~mask).any(axis=1))
        if misfits.size:
            raise ValueError(
                f"the pattern of term {int(misfits[0])} has a bit that isn't in its mask: a term looks at the sites of "
                "its mask only"
            )

        # Where a term looks at a site, it knows the sign.
        values = (jnp if traced else np).where(is_odd(pattern & sign), -values, values)
        sign = sign & ~mask
        kept, values = _merged(np.concatenate([flip, mask, pattern, sign], axis=1), values)
        if cutoff is not None and not traced:
            large = np.abs(values) > cutoff
            kept, values = kept[large], values[large]
        group, flips = _grouped(flip[kept])
        by_group = np.argsort(group, kind="stable")
        kept, values = kept[by_group], values[by_group]
        first = np.searchsorted(group[by_group], np.arange(len(flips) + 1))
        has_diagonal = len(flips) > 0 and not flips[0].any()
        if not has_diagonal and (diagonal or not len(flips)):
            flips, first, has_diagonal = np.pad(flips, ((1, 0), (0, 0))), np.pad(first, (1, 0)), True
        return cls.from_arrays(
            sites,
            flips,
            first,
            mask[kept],
            pattern[kept],
            sign[kept],
            values,
            diagonal=has_diagonal,
            max_conn_size=max_conn_size,
        )


def _check_sizes(sites: LocalStates) -> None:
    if set(sites.sizes) != {2}:
        raise ValueError(
            f"terms act on sites with two local states each, but some of these sites have {max(sites.sizes)}: "
            "take tables, which act on any sites"
        )


def _merged(rows: np.ndarray, values: Any) -> tuple[np.ndarray, Any]:
    """The first of each set of equal rows, in order, and the sums of their values."""
    runs = Runs.of(rows)
    in_order = np.argsort(runs.first)
    return runs.first[in_order], values if len(runs) == len(rows) else runs.sums(values)[in_order]


def _grouped(flip: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The group of each term, and the flips of the groups: none first, then as they first occur."""
    runs = Runs.of(flip)
    by_group = np.argsort(np.where(flip[runs.first].any(axis=1), runs.first, -1))
    return np.argsort(by_group)[runs.run_of_row], flip[runs.first][by_group]
