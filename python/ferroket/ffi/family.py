"""What the primitives know of an operator family."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from ferroket.ffi.targets import TARGETS

Attribute = bool | int | float | str | tuple[int, ...] | tuple[float, ...]
Attributes = tuple[tuple[str, Attribute], ...]


def static(attributes: dict[str, Attribute]) -> Attributes:
    """Attributes as a primitive's parameter: hashable, and equal if their values are."""
    return tuple(sorted(attributes.items()))


def for_handler(attributes: Attributes) -> dict[str, Any]:
    """Attributes as the Rust handlers take them: booleans, strings, 64-bit scalars, and arrays of them."""

    def convert(value: Attribute) -> Any:
        if isinstance(value, bool | str):
            return value
        numbers = np.asarray(value)
        exact = numbers.astype(np.int64 if numbers.dtype.kind in "iu" else np.float64)
        return exact if isinstance(value, tuple) else exact[()]

    return {name: convert(value) for name, value in attributes}


@dataclass(frozen=True, repr=False)
class Family:
    """An operator family as the primitives see it.

    Args:
        target: The name of the Rust handler. It takes the samples and the tables, the attributes and the boolean
            attributes ``states`` and ``diagonal_only``, and gives ``xp`` (if ``states``) and ``mels``. Those of the
            compact form, of the counts, and of local values of known amplitudes, where the family has them, have the
            same name with an ending.
        elements: The matrix elements in pure JAX: ``elements(x, *tables, n_conn=K, **attributes)`` gives
            ``(mels, moves)``, of shape ``(..., K)`` and arrays of that shape which say how each sample moves.
            It runs where there are no CPUs, and its transpose is that of the primitive.
        configurations: The connected configurations in pure JAX: ``configurations(x, moves, *tables,
            **attributes)`` with ``x`` of shape ``(..., N)`` and moves that broadcast with its ``...``.
        arguments: The tables by name, in the order in which all functions and handlers take them.
        coefficients: The names of those that are coefficients: the matrix elements have their dtype, and are
            a linear function of them together. The other tables hold integers.
        filler: ``filler(*tables, **attributes)`` gives a valid sample, or one value that all sites can take.
    """

    target: str
    elements: Callable[..., tuple[jax.Array, Any]]
    configurations: Callable[..., jax.Array]
    arguments: type[NamedTuple]
    coefficients: tuple[str, ...]
    filler: Callable[..., Any]

    def __post_init__(self) -> None:
        self.handler()

    def __repr__(self) -> str:
        return self.target

    def handler(self, suffix: str = "") -> str:
        """The name of a Rust handler of this family.

        Raises:
            ValueError: If the compiled half doesn't have it.
        """
        name = self.target + suffix
        if name not in TARGETS:
            raise ValueError(f"the compiled half has no handler {name!r}, but {sorted(TARGETS)}")
        return name

    def reference(
        self,
        x: jax.Array,
        /,
        *tables: jax.Array,
        n_conn: int,
        states: bool,
        diagonal_only: bool = False,
        **attributes: Any,
    ) -> tuple[jax.Array, ...]:
        """The connected elements in pure JAX: ``(xp, mels)``, or ``(mels,)`` without ``states``."""
        elements = self.elements(x, *tables, n_conn=n_conn, **attributes)
        mels, moves = jax.tree.map(lambda padded: padded[..., :1], elements) if diagonal_only else elements
        return (self.configurations(x[..., None, :], moves, *tables, **attributes), mels) if states else (mels,)

    @functools.cached_property
    def places(self) -> tuple[int, ...]:
        """Where the coefficients are among the tables."""
        return tuple(self.arguments._fields.index(name) for name in self.coefficients)

    def a_coefficient(self, tables: Sequence[Any]) -> Any:
        """One of the coefficients among the tables."""
        return tables[self.places[0]]

    def result_dtype(self, tables: Sequence[Any]) -> Any:
        """The dtype of the matrix elements."""
        return self.a_coefficient(tables).dtype
