"""Sums, products and extremes along axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ferroket.network.reader import Operand, Reader, Rule, UnreadableError, Value
from ferroket.network.rules import complex_numbers
from ferroket.network.rules.elementwise import check_integers


def _reduce(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    kind = eqn.primitive.name.removeprefix("reduce_")
    if kind in ("or", "and"):
        check_integers(kind, eqn.invars[0].aval.dtype)
        kind = {"or": "max", "and": "min"}[kind]
    axes = eqn.params["axes"]
    parts = []
    if len(inputs[0].parts) > 1 and kind == "prod":
        return [_complex_product(reader, inputs[0], axes)]
    if len(inputs[0].parts) > 1 and kind != "sum":
        raise UnreadableError(f"the kernels have no '{eqn.primitive.name}' of complex numbers")
    for places in reader.places(inputs[0]):
        kept = [axis for axis in range(places.ndim) if axis not in axes]
        rows = places.transpose(*kept, *axes).reshape(*(places.shape[axis] for axis in kept), -1)
        if not rows.shape[-1]:
            raise UnreadableError("it sums up nothing")
        parts.append(rows if rows.shape[-1] == 1 else reader.reduce(rows, kind)[..., None])
    return [reader.value([part[..., 0] for part in parts])]


def _complex_product(reader: Reader, value: Value, axes: Sequence[int]) -> Value:
    """The product along axes, of two halves at a time."""
    kept = [axis for axis in range(len(value.shape)) if axis not in axes]
    shape = [value.shape[axis] for axis in kept]
    parts = [places.transpose(*kept, *axes).reshape(*shape, -1) for places in reader.places(value)]
    if not parts[0].shape[-1]:
        raise UnreadableError("it multiplies nothing")
    while (count := parts[0].shape[-1]) > 1:
        half = count // 2
        left, right = (
            tuple(reader.expressions.elements(part[..., first : first + half]) for part in parts) for first in (0, half)
        )
        product = Value((*shape, half), complex_numbers.FUNCTIONS["mul"](reader.expressions, left, right))
        parts = [
            np.concatenate([made, part[..., 2 * half :]], axis=-1)
            for made, part in zip(reader.places(product), parts, strict=True)
        ]
    return reader.value([part[..., 0] for part in parts])


def _cumsum(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Sums of 2, 4, 8, … elements each, of two of half as many: Hillis and Steele, Comm. ACM 29, 1170 (1986)."""
    axis, is_reverse = eqn.params["axis"], eqn.params["reverse"]
    value, e, step = inputs[0], reader.expressions, 1
    while step < value.shape[axis]:
        sums = []
        for places in reader.places(value):
            along = np.moveaxis(places, axis, -1)
            zeros = np.broadcast_to(reader.zero(1), (*along.shape[:-1], step))
            others = [along[..., step:], zeros] if is_reverse else [zeros, along[..., :-step]]
            moved = np.moveaxis(np.concatenate(others, axis=-1), -1, axis)
            sums.append(e.of("add", e.elements(places), e.elements(moved)))
        value, step = Value(value.shape, tuple(sums)), 2 * step
    return [value]


RULES: dict[str, Rule] = {
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_or", "reduce_and"), _reduce),
    "cumsum": _cumsum,
}
