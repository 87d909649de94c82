"""Fourier transforms, as products with matrices along axes."""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ferroket.network.numbers import Expression
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
        else:
            value = _transformed(reader, value, axis, -1 if kind in ("FFT", "RFFT") else 1)
    return [value]


def _transform(length: int, sign: int) -> np.ndarray:
    """The matrix of a Fourier transform."""
    phases = np.outer(np.arange(length), np.arange(length)) % length
    return np.exp(sign * 2j * np.pi * phases / length)


def _transformed(reader: Reader, value: Value, axis: int, sign: int) -> Value:
    """A Fourier transform along an axis, divided by its length if it goes back.

    One whose length has coprime factors is one in as many dimensions: Good, Journal of the Royal Statistical Society B
    20, 361 (1958).
    """
    length = value.shape[axis]
    factor = next((n for n in range(2, length) if length % n == 0 and math.gcd(n, length // n) == 1), None)
    if factor is None:
        scale = 1 if sign < 0 else length
        matrix = _transform(length, sign) / scale
        return _multiplied(reader, value, axis, matrix.real if length <= 2 else matrix)  # noqa: PLR2004 - e^πi is real
    other = length // factor
    first, second = np.ix_(np.arange(factor), np.arange(other))
    before = (first * other + second * factor) % length
    after = (first * other * pow(other, -1, factor) + second * factor * pow(factor, -1, other)) % length
    parts = [_along(reader, part, value, axis, before) for part in value.parts]
    value = Value(np.take(np.empty(value.shape), before, axis).shape, tuple(parts))
    for along in (axis, axis + 1):
        value = _transformed(reader, value, along, sign)
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


RULES: dict[str, Rule] = {"fft": _fft}
