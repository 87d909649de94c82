"""Character tables of Abelian groups: of Fourier transforms of arrays, and of matrices that are some."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def fourier_matrix(length: int, sign: int) -> np.ndarray:
    """The matrix of a Fourier transform."""
    phases = np.outer(np.arange(length), np.arange(length)) % length
    return np.exp(sign * 2j * np.pi * phases / length)


def _cyclic(length: int, sign: int) -> np.ndarray:
    """As :func:`fourier_matrix`, of real numbers where it is real."""
    return fourier_matrix(length, sign).real if length <= 2 else fourier_matrix(length, sign)  # noqa: PLR2004 - e^πi is real


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
        if len(_prime_powers(order)) != 1 or any(multiple.tobytes() in generated for multiple in multiples[1:]):
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


def fourier_table(lengths: Sequence[int], sign: int, scale: float) -> CharacterTable:
    """The table of a Fourier transform of an array, in the order of its elements.

    A length with coprime factors is one of as many axes: Good, Journal of the Royal Statistical Society B 20, 361
    (1958).
    """
    lengths = list(map(int, lengths))
    axes = []
    for axis, length in enumerate(lengths):
        axes += [(order, axis) for order in _prime_powers(length)]
    axes = sorted(axes) or [(1, 0)]
    sizes = [order for order, _ in axes]
    elements, wave_numbers = (np.zeros((len(lengths), *sizes), int) for _ in range(2))
    for number, (order, axis) in enumerate(axes):
        along = np.arange(order).reshape([-1 if own == number else 1 for own in range(len(sizes))])
        other = lengths[axis] // order
        elements[axis] += along * other
        wave_numbers[axis] += along * other * pow(other, -1, order)
    shape = np.array(lengths).reshape(-1, *(1 for _ in sizes))
    rows = np.ravel_multi_index(tuple(elements % shape), lengths)
    columns = np.ravel_multi_index(tuple(-sign * wave_numbers % shape), lengths)
    return CharacterTable(rows, columns, scale)


def _prime_powers(number: int) -> list[int]:
    """Powers of different primes, whose product a number is."""
    found, prime = [], 2
    while number > 1:
        power = math.gcd(number, prime ** number.bit_length())
        if power > 1:
            found.append(power)
        number, prime = number // power, prime + 1
    return found


def matrices_of_axes(found: CharacterTable) -> list[np.ndarray]:
    """The transform along each axis. Pairs of axes of length 2 are merged into one of length 4, which saves a pass."""
    scales = [found.scale, *(1.0 for _ in found.rows.shape[1:])]
    each = [scale * _cyclic(length, -1) for length, scale in zip(found.rows.shape, scales, strict=True)]
    n_short = sum(len(matrix) == 2 for matrix in each) // 2 * 2  # noqa: PLR2004
    short = [np.kron(a, b) for a, b in zip(each[:n_short:2], each[1:n_short:2], strict=True)]
    return short + each[n_short:]


def conjugate_characters(matrices: Sequence[np.ndarray]) -> np.ndarray:
    """The number of the conjugate of each character, in the order of the axes."""
    own = np.indices([len(matrix) for matrix in matrices])
    negative = [-k % len(m) if np.iscomplexobj(m) else k for k, m in zip(own, matrices, strict=True)]
    opposite: np.ndarray = np.ravel_multi_index(tuple(negative), own.shape[1:]).ravel()
    return opposite
