"""What the primitives know of an operator family."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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
        coefficients: Which of the tables are coefficients: the matrix elements have their dtype, and are
            a linear function of them together. The other tables hold integers.
        filler: ``filler(*tables, **attributes)`` gives a valid sample, or one value that all sites can take.
    """

    target: str
    elements: Callable[..., tuple[jax.Array, Any]]
    configurations: Callable[..., jax.Array]
    coefficients: tuple[int, ...]
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

    def result_dtype(self, tables: Sequence[Any]) -> Any:
        """The dtype of the matrix elements."""
        return tables[self.coefficients[0]].dtype
