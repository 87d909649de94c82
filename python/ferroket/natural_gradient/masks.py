"""Parameters that are multiplied with constants: scaled ones, and kernels of which a mask leaves out elements.

With ``y = x (W ∘ M)`` the derivative of ln ψ by W is ``M ∘ (x ⊗ δ)``. Where all columns of M are alike it is an outer
product again, of a scaled x. Masks of autoregressive networks are *nested*: of their columns each has all inputs of the
one before. Then ``G·G' = Σ_d (Σ_{c ≤ d} x_c·x'_c) (δ_d·δ'_d)``, where x_c are the inputs that are new in part c, and
δ_d those of the outputs with the columns of part d: no more products than without a mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

_PADDING = 2
"""Parts are of one size, and may be this many times what they hold in all."""


@dataclass(frozen=True)
class NestedMask:
    """A mask ``(I, O)`` of zeros and ones whose different columns are nested, those with the fewest ones first."""

    size: tuple[int, int]
    """I and O."""
    inputs: tuple[tuple[int, ...], ...]
    """Of each part those that no part before it has."""
    outputs: tuple[tuple[int, ...], ...]
    """Of each part those that depend on its inputs, and on those of the parts before it."""

    @cached_property
    def array(self) -> np.ndarray:
        """``(I, O)``."""
        mask = np.zeros(self.size, bool)
        known: list[int] = []
        for inputs, outputs in zip(self.inputs, self.outputs, strict=True):
            known += inputs
            mask[np.ix_(known, outputs)] = True
        return mask

    def parts_of_x(self, x: jax.Array) -> jax.Array:
        """``(…, I)`` → ``(…, D, I/D)``: the inputs that are new in each part, with zeros where it has fewer."""
        return _taken(x, self.inputs)

    def parts_of_delta(self, delta: jax.Array) -> jax.Array:
        """``(…, O)`` → ``(…, D, O/D)``."""
        return _taken(delta, self.outputs)


def _taken(array: jax.Array, places: Sequence[Sequence[int]]) -> jax.Array:
    beyond = array.shape[-1]
    index = np.full((len(places), max(map(len, places))), beyond)
    for row, of_part in zip(index, places, strict=True):
        row[: len(of_part)] = of_part
    if index.size == beyond and (index.ravel() == np.arange(beyond)).all():
        return array.reshape(*array.shape[:-1], *index.shape)
    return jnp.take(array, index, axis=-1, mode="fill", fill_value=0)


def nested(mask: np.ndarray) -> NestedMask | None:
    """A mask ``(I, O)`` as parts, if it is nested, and they are of similar sizes."""
    columns, which = np.unique(mask.T, axis=0, return_inverse=True)
    order = np.argsort(columns.sum(axis=1), kind="stable")
    inputs, outputs, before = [], [], np.zeros(len(mask), bool)
    for column in order:
        if (before & ~columns[column]).any():
            return None
        if columns[column].any():
            inputs.append(tuple(map(int, np.flatnonzero(columns[column] & ~before))))
            outputs.append(tuple(map(int, np.flatnonzero(which.ravel() == column))))
        before = columns[column]
    for parts, size in ((inputs, mask.shape[0]), (outputs, mask.shape[1])):
        if not parts or len(parts) * max(map(len, parts)) > _PADDING * size:
            return None
    return NestedMask((mask.shape[0], mask.shape[1]), tuple(inputs), tuple(outputs))


def taken_apart(scale: np.ndarray) -> tuple[np.ndarray, NestedMask | None] | None:
    """Constants ``(B, I, O)`` that W is multiplied with, as what multiplies x, ``(B, 1, I)``, and a mask.

    None where they are neither alike for all outputs nor a number times a nested mask.
    """
    if (scale == scale[:, :, :1]).all():
        return scale[:, None, :, 0], None
    values = np.unique(scale[scale != 0])
    mask = nested(scale[0] != 0) if len(scale) == 1 and len(values) == 1 else None
    return None if mask is None else (np.full((1, 1, scale.shape[1]), values[0]), mask)
