"""Fourier transforms: of arrays, axis by axis, and over an Abelian group, as a product with its character table."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ferroket._compat.sharding import evaluated_eagerly
from ferroket.network.characters import (
    CharacterTable,
    character_table,
    conjugate_characters,
    fourier_matrix,
    fourier_table,
    matrices_of_axes,
)
from ferroket.network.program import Places
from ferroket.network.reader import Constant, Operand, Reader, Rule, Value
from ferroket.network.rules.complex_numbers import padded


def _fft(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Fourier transforms; of real numbers the last axis comes first, and back at last."""
    kind, lengths = eqn.params["fft_type"], eqn.params["fft_lengths"]
    kind = getattr(kind, "name", str(kind))
    value = inputs[0]
    axes = list(range(len(value.shape) - len(lengths), len(value.shape)))
    last, length = axes[-1], lengths[-1]
    if kind == "RFFT":
        value = _multiplied(reader, value, last, fourier_matrix(length, -1)[:, : length // 2 + 1])
        return [_transformed(reader, value, axes[:-1], -1)]
    if kind == "IRFFT":
        value = _transformed(reader, value, axes[:-1], 1)
        matrix = _twice_the_pairs(length) * fourier_matrix(length, 1)[: length // 2 + 1] / length
        return [_real_of_product(reader, value, last, matrix)]
    return [_transformed(reader, value, axes, -1 if kind == "FFT" else 1)]


def _twice_the_pairs(length: int) -> np.ndarray:
    """2 for each wave number that is there for its negative, too; 1 for those that have none."""
    return np.where(2 * np.arange(length // 2 + 1) % length == 0, 1, 2)[:, None]


def _transformed(reader: Reader, value: Value, axes: Sequence[int], sign: int) -> Value:
    """A Fourier transform along axes; the one with a positive sign is divided by the number of elements."""
    if not axes:
        return value
    last = range(-len(axes), 0)
    moved = [np.moveaxis(places, axes, last) for places in _parts_of(reader, value)]
    shape, lengths = moved[0].shape, moved[0].shape[len(moved[0].shape) - len(axes) :]
    table = fourier_table(lengths, sign, 1.0 if sign < 0 else 1 / math.prod(lengths))
    made = _by_table(reader, [places.reshape(-1, math.prod(lengths)) for places in moved], table)
    back = [np.moveaxis(places.reshape(shape), last, axes) for places in _parts_of(reader, made)]
    result = reader.value(back)
    return Value(result.shape, (*result.parts, *made.parts[len(back) :]))


def _parts_of(reader: Reader, value: Value) -> list[Places]:
    """The places of the real and of the imaginary part; of the real one alone where the other is zero."""
    is_real = len(value.parts) > 1 and value.parts[1].name == "number" and value.parts[1].data == 0
    return reader.places(Value(value.shape, value.parts[:1]) if is_real else value)


def _real_of_product(reader: Reader, value: Value, axis: int, matrix: np.ndarray) -> Value:
    """The real part of a complex value times a matrix along an axis."""
    both = np.concatenate([np.moveaxis(places, axis, -1) for places in reader.places(value)], axis=-1)
    stacked = Value(both.shape, (reader.expressions.elements(both),))
    made = _multiplied(reader, stacked, both.ndim - 1, np.concatenate([matrix.real, -matrix.imag]))
    return reader.value([np.moveaxis(reader.places(made)[0], -1, axis)])


def _multiplied(reader: Reader, value: Value, axis: int, matrix: np.ndarray) -> Value:
    """A value times a matrix ``(before, after)`` along an axis."""
    of_parts = [np.moveaxis(places, axis, -1) for places in _parts_of(reader, value)]
    rows = [places.reshape(1, -1, places.shape[-1]) for places in of_parts]
    weights = Constant(matrix)
    out = reader.contract(rows, weights, lambda w: jnp.asarray(w)[None], (1, *matrix.shape))
    shape = (*of_parts[0].shape[:-1], matrix.shape[1])
    return reader.value([np.moveaxis(places.reshape(shape), -1, axis) for places in out])


def contract_or_transform(
    reader: Reader, places: Sequence[Places], weights: Any, prepare: Callable[[Any], Any], shape: Sequence[int]
) -> list[Places]:
    """As :meth:`Reader.contract`, in a cheaper way if there is one.

    That is a Fourier transform if the weights are a character table; half of the products if the others are the complex
    conjugates of these.
    """
    groups, depth, width = shape
    constant = reader.constant(weights)
    if groups > 1 and len(places) > 1 and (found := _by_half(reader, places, weights, prepare, shape)) is not None:
        return found
    if constant is None or not np.iscomplexobj(constant) or groups != 1 or depth != width:
        return reader.contract(places, weights, prepare, shape)
    with evaluated_eagerly():
        table = character_table(np.asarray(prepare(constant))[0])
    if table is None or 2 * sum(map(len, matrices_of_axes(table))) > depth:
        return reader.contract(places, weights, prepare, shape)
    made = _by_table(reader, [part[0] for part in places], table)
    return [part[None] for part in reader.places(made)]


def _by_table(reader: Reader, parts: Sequence[Places], table: CharacterTable) -> Value:
    """Numbers ``(positions, elements)`` times a character table: ``(positions, characters)``, axis by axis.

    What becomes of real numbers is the complex conjugate for the conjugate characters, and isn't computed twice; nor is
    what becomes real.
    """
    matrices, positions = matrices_of_axes(table), len(parts[0])
    rows = [part[:, table.rows.ravel()].reshape(positions, *map(len, matrices)) for part in parts]
    real, others = (
        [1 + axis for axis, m in enumerate(matrices) if np.iscomplexobj(m) == kind] for kind in (False, True)
    )
    half = others.pop() if others else None
    opposite = conjugate_characters(matrices)

    def along(value: Value, axes: Sequence[int]) -> Value:
        for axis in axes:
            value = _multiplied(reader, value, axis, matrices[axis - 1])
        return value

    value = reader.value(rows)
    if half is None:
        value = along(value, real)
    elif len(parts) == 1:
        n_half = len(matrices[half - 1]) // 2 + 1
        value = _multiplied(reader, along(value, real), half, matrices[half - 1][:, :n_half])
        value = _with_conjugates(reader, along(value, others), half, matrices, opposite)
    elif _is_conjugate(reader, rows[0].reshape(positions, -1), rows[1].reshape(positions, -1), opposite):
        n_half = len(matrices[half - 1]) // 2 + 1
        value = reader.value([np.take(part, range(n_half), half) for part in rows])
        matrix = _twice_the_pairs(len(matrices[half - 1])) * matrices[half - 1][:n_half]
        value = along(_real_of_product(reader, along(value, others), half, matrix), real)
    else:
        value = along(value, [*real, *others, half])
    order = np.argsort(table.columns.ravel())
    made = reader.value([part.reshape(positions, -1)[:, order] for part in reader.places(value)])
    return Value(made.shape, tuple(padded(reader.expressions, made.parts, 2)))


def _with_conjugates(
    reader: Reader, value: Value, half: int, matrices: Sequence[np.ndarray], opposite: np.ndarray
) -> Value:
    """All that become of real numbers, from the half of it along an axis."""
    sizes = [len(matrix) for matrix in matrices]
    n_half = sizes[half - 1] // 2 + 1
    # The first half along this axis, and of pairs in it the one that comes first.
    is_known = (np.indices(sizes)[half - 1] < n_half).ravel()
    is_own = is_known & ((np.arange(len(opposite)) <= opposite) | ~is_known[opposite])
    source = np.where(is_own, np.arange(len(opposite)), opposite)
    where = np.cumsum(is_known) - 1
    real, imaginary = (part.reshape(value.shape[0], -1)[:, where[source]] for part in reader.places(value))
    return reader.value([real, _negated(reader, imaginary, ~is_own, opposite)])


def _negated(reader: Reader, imaginary: Places, which: np.ndarray, opposite: np.ndarray) -> Places:
    """Imaginary parts ``(n, elements)``, some replaced by their negatives; known as those of the opposites."""
    found = imaginary.copy()
    if which.any():
        e = reader.expressions
        (negated,) = reader.write([e.of("neg", e.elements(imaginary[:, which]))], imaginary[:, which].size)
        found[:, which] = negated.reshape(len(imaginary), -1)
    reader.negatives.update(zip(found.ravel().tolist(), found[:, opposite].ravel().tolist(), strict=True))
    return found


def _is_conjugate(reader: Reader, real: Places, imaginary: Places, opposite: np.ndarray) -> bool:
    """Whether numbers ``(n, elements)`` are known as the complex conjugates of their opposites."""
    return bool((real[:, opposite] == real).all() and (reader.negative(imaginary) == imaginary[:, opposite]).all())


def _by_half(
    reader: Reader, places: Sequence[Places], weights: Any, prepare: Callable[[Any], Any], shape: Sequence[int]
) -> list[Places] | None:
    """As :meth:`Reader.contract`, where groups are known as the complex conjugates of others; None if they aren't."""
    groups, depth, width = shape
    root, where = reader.origin(weights)
    conjugate = reader.conjugates.get(root)
    if conjugate is None:
        return None
    real, imaginary = places
    numbers = {(r.tobytes(), i.tobytes()): number for number, (r, i) in enumerate(zip(real, imaginary, strict=True))}
    negative = reader.negative(imaginary)
    found = [numbers.get((r.tobytes(), i.tobytes())) for r, i in zip(real, negative, strict=True)]
    if None in found:
        return None
    opposite = np.array(found)
    with evaluated_eagerly():
        of_weights = np.asarray(prepare(jnp.asarray(where)))
    if (conjugate[of_weights] != of_weights[opposite]).any():
        return None
    is_own = np.arange(groups) <= opposite
    kept = np.flatnonzero(is_own)
    halves = reader.contract(
        [part[kept] for part in places], weights, lambda w: prepare(w)[kept], (len(kept), depth, width)
    )
    source = np.where(is_own, np.arange(groups), opposite)
    of_all = [part[(np.cumsum(is_own) - 1)[source]] for part in halves]
    by_group = of_all[1].reshape(groups, -1).T
    return [of_all[0], _negated(reader, by_group, ~is_own, opposite).T.reshape(of_all[1].shape)]


RULES: dict[str, Rule] = {"fft": _fft}
