"""Decompositions of matrices, whose last two axes are rows and columns: LU, triangular systems, and Pfaffians."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ferroket.network.program import Lu, Pfaffian, Places, Triangular
from ferroket.network.reader import Operand, Reader, Rule, UnreadableError, Value
from ferroket.network.rules.complex_numbers import padded


def _matrices(reader: Reader, v: Operand, n_parts: int = 1) -> Places:
    """Where the numbers of matrices are, ``(B, rows, columns, parts)``, with at least so many parts."""
    value = reader.as_value(v)
    value = Value(value.shape, padded(reader.expressions, value.parts, max(n_parts, len(value.parts))))
    places = np.stack(reader.places(value), axis=-1)
    return places.reshape(math.prod(value.shape[:-2]), *value.shape[-2:], len(value.parts))


def _lu(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    places = _matrices(reader, inputs[0])
    batch, n, columns, parts = places.shape
    if n != columns or not places.size:
        raise UnreadableError("it decomposes matrices that aren't square")
    diagonals, triangles = reader.memory.new(batch, n * (2 + parts)), reader.memory.new(*places.shape)
    reader.add(Lu(diagonals, triangles, places))
    both = triangles.copy()
    both[:, range(n), range(n)] = diagonals[:, 2 * n :].reshape(batch, n, parts)
    pivots, order = (
        reader.value([diagonals[:, first : first + n].reshape(v.aval.shape)])
        for first, v in zip((0, n), eqn.outvars[1:], strict=True)
    )
    reader.largest.update({pivots: n - 1, order: n - 1})
    reader.permutations.add(order)
    reader.orders[pivots] = order
    shape = eqn.outvars[0].aval.shape
    return [reader.value([both[..., part].reshape(shape) for part in range(parts)]), pivots, order]


def _order(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """The order of rows, of which exchanges of rows are known."""
    if inputs[0] not in reader.orders:
        raise UnreadableError("it makes permutations of numbers")
    return [reader.orders[inputs[0]]]


def _triangular_solve(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    settings, e = eqn.params, reader.expressions
    n_parts = max(len(reader.as_value(v).parts) for v in inputs)
    matrix, right = (_matrices(reader, v, n_parts) for v in inputs)
    if not right.size:
        raise UnreadableError("it solves systems without unknowns")
    if settings["conjugate_a"] and n_parts > 1:
        imaginary = matrix[..., 1]
        (negative,) = reader.write([e.of("neg", e.elements(imaginary))], imaginary.size)
        matrix = np.stack([matrix[..., 0], negative.reshape(imaginary.shape)], axis=-1)
    is_lower = settings["lower"]
    if not settings["left_side"]:
        right = right.swapaxes(1, 2)
    if settings["transpose_a"] == settings["left_side"]:
        matrix, is_lower = matrix.swapaxes(1, 2), not is_lower
    if not is_lower:
        matrix, right = matrix[:, ::-1, ::-1], right[:, ::-1]
    out = reader.memory.new(*right.shape)
    reader.add(Triangular(out, matrix, right, settings["unit_diagonal"]))
    if not is_lower:
        out = out[:, ::-1]
    if not settings["left_side"]:
        out = out.swapaxes(1, 2)
    return [reader.value([out[..., part].reshape(eqn.outvars[0].aval.shape) for part in range(n_parts)])]


def _pfaffian_factors(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    value, n = inputs[0], eqn.params["n"]
    places = _matrices(reader, Value((*value.shape[:-1], n, n), value.parts))
    batch, *_, parts = places.shape
    if not places.size:
        raise UnreadableError("it has Pfaffians of nothing")
    out = reader.memory.new(batch, n // 2, parts)
    reader.add(Pfaffian(out, places))
    return [reader.value([out[..., part].reshape(eqn.outvars[0].aval.shape) for part in range(parts)])]


RULES: dict[str, Rule] = {
    "lu": _lu,
    "lu_pivots_to_permutation": _order,
    "triangular_solve": _triangular_solve,
    "pfaffian_factors": _pfaffian_factors,
}
