"""Fourier transforms: of arrays, axis by axis, and over an Abelian group, as a product with its character table."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from ferroket._compat.sharding import evaluated_eagerly
from ferroket.network.numbers import Expression
from ferroket.network.program import Places
from ferroket.network.reader import Constant, Operand, Reader, Rule, Value


def _fft(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Fourier transforms, axis by axis."""
    kind, lengths = eqn.params["fft_type"], eqn.params["fft_lengths"]
    kind = getattr(kind, "name", str(kind))
    value = inputs[0]
    axes = list(range(len(value.shape) - len(lengths), len(value.shape)))
    # Of real numbers the last axis comes first, and back at last.
    order = zip(axes, lengths, strict=True) if kind == "IRFFT" else reversed(list(zip(axes, lengths, strict=True)))
    for axis, length in order:
        is_last = axis == axes[-1]
        if kind == "RFFT" and is_last:
            value = _multiplied(reader, value, axis, _transform(length, -1)[:, : length // 2 + 1])
        elif kind == "IRFFT" and is_last:
            twice = np.where((2 * np.arange(length) % length == 0), 1, 2)[: length // 2 + 1, None]
            value = _real_of_product(reader, value, axis, twice * _transform(length, 1)[: length // 2 + 1] / length)
        elif kind in ("FFT", "RFFT"):
            value = _transformed(reader, value, axis, -1)
        else:
            value = _transformed(reader, value, axis, 1, 1 / length)
    return [value]


def _transform(length: int, sign: int) -> np.ndarray:
    """The matrix of a Fourier transform."""
    phases = np.outer(np.arange(length), np.arange(length)) % length
    return np.exp(sign * 2j * np.pi * phases / length)


def _cyclic(length: int, sign: int) -> np.ndarray:
    """As :func:`_transform`, of real numbers where it is real."""
    return _transform(length, sign).real if length <= 2 else _transform(length, sign)  # noqa: PLR2004 - e^πi is real


def _transformed(reader: Reader, value: Value, axis: int, sign: int, scale: float = 1.0) -> Value:
    """A Fourier transform along an axis, times a number.

    One whose length has coprime factors is one in as many dimensions: Good, Journal of the Royal Statistical Society B
    20, 361 (1958).
    """
    length = value.shape[axis]
    factor = next((n for n in range(2, length) if length % n == 0 and math.gcd(n, length // n) == 1), None)
    if factor is None:
        return _multiplied(reader, value, axis, scale * _cyclic(length, sign))
    other = length // factor
    first, second = np.ix_(np.arange(factor), np.arange(other))
    before = (first * other + second * factor) % length
    after = (first * other * pow(other, -1, factor) + second * factor * pow(factor, -1, other)) % length
    parts = [_along(reader, part, value, axis, before) for part in value.parts]
    value = Value(np.take(np.empty(value.shape), before, axis).shape, tuple(parts))
    for along, by in ((axis, scale), (axis + 1, 1.0)):
        value = _transformed(reader, value, along, sign, by)
    places = [np.moveaxis(part, (axis, axis + 1), (-2, -1)) for part in reader.places(value)]
    joined = [part.reshape(*part.shape[:-2], length)[..., np.argsort(after.ravel())] for part in places]
    return reader.value([np.moveaxis(part, -1, axis) for part in joined])


def _along(reader: Reader, part: Expression, value: Value, axis: int, places: np.ndarray) -> Expression:
    """What is at some places along an axis."""
    if part.name == "number":
        return part
    (of_part,) = reader.places(Value(value.shape, (part,)))
    return reader.expressions.elements(np.take(of_part, places, axis))


def _real_of_product(reader: Reader, value: Value, axis: int, matrix: np.ndarray) -> Value:
    """The real part of a complex value times a matrix along an axis."""
    both = np.concatenate([np.moveaxis(places, axis, -1) for places in reader.places(value)], axis=-1)
    stacked = Value(both.shape, (reader.expressions.elements(both),))
    made = _multiplied(reader, stacked, both.ndim - 1, np.concatenate([matrix.real, -matrix.imag]))
    return reader.value([np.moveaxis(reader.places(made)[0], -1, axis)])


def _multiplied(reader: Reader, value: Value, axis: int, matrix: np.ndarray) -> Value:
    """A value times a matrix ``(before, after)`` along an axis."""
    is_real = len(value.parts) > 1 and value.parts[1].name == "number" and value.parts[1].data == 0
    value = Value(value.shape, value.parts[:1]) if is_real else value
    of_parts = [np.moveaxis(places, axis, -1) for places in reader.places(value)]
    rows = [places.reshape(1, -1, places.shape[-1]) for places in of_parts]
    weights = Constant(matrix)
    out = reader.contract(rows, weights, lambda w: jnp.asarray(w)[None], (1, *matrix.shape))
    shape = (*of_parts[0].shape[:-1], matrix.shape[1])
    return reader.value([np.moveaxis(places.reshape(shape), -1, axis) for places in out])


# Over a group


@dataclass(frozen=True, eq=False)
class CharacterTable:
    """The character table of an Abelian group, a product of cyclic groups, times a number.

    ``matrix[rows[g], columns[k]] = scale exp(−2πi Σ_a g_a k_a / n_a)`` for elements g and characters k. Both
    arrays have the shape ``(n_1, n_2, …)``, by ascending n.
    """

    rows: np.ndarray
    columns: np.ndarray
    scale: float


def character_table(matrix: np.ndarray) -> CharacterTable | None:
    """Recognises the character table of an Abelian group, with rows and columns in any order.

    The cyclic groups have orders that are powers of primes.

    Returns:
        None if the square matrix isn't one up to rounding.
    """
    length = len(matrix)
    if length <= 1:
        return None
    tolerance = 1000 * np.finfo(matrix.dtype).eps
    # All characters of the unit element are 1.
    (units,) = np.nonzero((np.abs(matrix - matrix[:, :1]) <= tolerance * np.abs(matrix[:, :1])).all(axis=1))
    if len(units) != 1 or not (scale := matrix[units[0], 0].real):
        return None
    turns = np.rint(-np.angle(matrix / scale) / (2 * np.pi) * length).astype(int) % length
    if not (np.abs(matrix / scale - np.exp(-2j * np.pi * turns / length)) <= tolerance).all():
        return None
    row_of = {row.tobytes(): number for number, row in enumerate(turns)}
    orders = length // np.gcd(length, np.gcd.reduce(turns, axis=1))
    # Generators: elements whose order is a power of a prime, by descending order, independent of those before.
    axes: list[tuple[int, np.ndarray]] = []
    generated = {turns[units[0]].tobytes()}
    for row in np.argsort(-orders, kind="stable"):
        order = int(orders[row])
        multiples = [step * turns[row] % length for step in range(order)]
        if len(_primes_of(order)) != 1 or any(multiple.tobytes() in generated for multiple in multiples[1:]):
            continue
        axes.append((order, turns[row]))
        elements = [np.frombuffer(element, turns.dtype) for element in generated]
        generated = {((element + multiple) % length).tobytes() for element in elements for multiple in multiples}
    axes.sort(key=lambda axis: axis[0])  # transforms of length 2 are real and come first
    sizes = [order for order, _ in axes]
    if math.prod(sizes) != length:
        return None
    rows = np.empty(sizes, int)
    for element in itertools.product(*map(range, sizes)):
        total = sum((step * turn for step, (_, turn) in zip(element, axes, strict=True)), np.zeros(length, int))
        number = row_of.get((total % length).tobytes())
        if number is None:
            return None
        rows[element] = number
    of_columns = tuple(turn * order // length for order, turn in axes)
    columns = np.full(sizes, -1)
    columns[of_columns] = np.arange(length)
    return None if (columns < 0).any() else CharacterTable(rows, columns, scale)


def _primes_of(number: int) -> set[int]:
    return {n for n in range(2, number + 1) if number % n == 0 and all(n % m for m in range(2, n))}


def contract_or_transform(
    reader: Reader, places: Sequence[Places], weights: Any, prepare: Callable[[Any], Any], shape: Sequence[int]
) -> list[Places]:
    """As :meth:`Reader.contract`; as a Fourier transform if the weights are a character table and that is cheaper."""
    groups, depth, width = shape
    constant = reader.constant(weights)
    if constant is None or not np.iscomplexobj(constant) or groups != 1 or depth != width:
        return reader.contract(places, weights, prepare, shape)
    with evaluated_eagerly():
        found = character_table(np.asarray(prepare(constant))[0])
    if found is None or 2 * sum(map(len, _matrices_of_axes(found))) > depth:
        return reader.contract(places, weights, prepare, shape)
    positions, matrices = places[0].shape[1], _matrices_of_axes(found)
    before = [reader.expressions.elements(part[0][:, found.rows.ravel()]) for part in places]
    value = Value((positions, *map(len, matrices)), tuple(before))
    for axis, matrix in enumerate(matrices):
        value = _multiplied(reader, value, 1 + axis, matrix)
    order = np.argsort(found.columns.ravel())
    return [part.reshape(1, positions, width)[..., order] for part in reader.places(value)]


def _matrices_of_axes(found: CharacterTable) -> list[np.ndarray]:
    """The transform along each axis. Pairs of axes of length 2 are merged into one of length 4, which saves a pass."""
    scales = [found.scale, *(1.0 for _ in found.rows.shape[1:])]
    each = [scale * _cyclic(length, -1) for length, scale in zip(found.rows.shape, scales, strict=True)]
    n_short = sum(len(matrix) == 2 for matrix in each) // 2 * 2  # noqa: PLR2004
    short = [np.kron(a, b) for a, b in zip(each[:n_short:2], each[1:n_short:2], strict=True)]
    return short + each[n_short:]


RULES: dict[str, Rule] = {"fft": _fft}
