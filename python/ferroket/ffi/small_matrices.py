"""Decompositions of many small matrices, one in each lane of the processor's vectors, on CPUs.

They are programs of one operation of networks, or a few: see :mod:`ferroket.network.program`.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi.network import INSTRUCTIONS
from ferroket.ffi.primitives import call_rust

_MAP, _LU, _TRIANGULAR, _PFAFFIAN, _PUT = 3, 4, 5, 6, 8
"""Operations, as the kernels number them."""
_NUMBER, _RUN, _PLACES = 3, 0, 1
"""Operands: a number, or numbers that are one behind the other in memory, or not."""


def lu_program(n: int, dtype: Any, *, inverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """What :func:`lu_factors` takes beside matrices of n rows: words of a program, and its numbers."""
    words, _ = _words_of_lu(n, _parts(dtype), inverse)
    real = jnp.finfo(dtype).dtype
    return words, np.array([0, 1, smallest(real)] if inverse else [], real)


def lu_factors(matrices: jax.Array, *program: jax.Array, inverse: bool) -> list[jax.Array]:
    """The diagonals of U in P A = L U.

    Args:
        matrices: A, ``(C, n n)``, float32, float64 or complex.
        program: what :func:`lu_program` gives.
        inverse: Whether to give inverses as well.

    Returns:
        Which row each was exchanged with, ``(C, n)`` of real numbers; the diagonals, ``(C, n)``; with ``inverse`` also
        ``A⁻ᵀ``, ``(C, n n)``. There, where A is singular, zeros of U are :func:`smallest`.
    """
    n, parts = round(matrices.shape[-1] ** 0.5), _parts(matrices.dtype)
    _, widths = _words_of_lu(n, parts, inverse)
    pivots, *others = _evaluate(matrices, program, widths)
    return [pivots, *(_numbers(one, parts) for one in others)]


def pfaffian_program(n: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """What :func:`pfaffian_factors` takes beside matrices of n rows: words of a program, and its numbers."""
    parts = _parts(dtype)
    size, width = n * n * parts, n // 2 * parts
    words = [size, 0, width, *range(size, size + width), size + width, 0, 1]
    words += [_PFAFFIAN, 1, n, parts, size, *range(size)]
    return np.array(words, np.int32), np.zeros(0, jnp.finfo(dtype).dtype)


def pfaffian_factors(matrices: jax.Array, *program: jax.Array) -> jax.Array:
    """Numbers whose product is the Pfaffian of A: ``(C, n / 2)`` for matrices ``(C, n n)`` with an even n."""
    n, parts = round(matrices.shape[-1] ** 0.5), _parts(matrices.dtype)
    (factors,) = _evaluate(matrices, program, (n // 2 * parts,))
    return _numbers(factors, parts)


def _parts(dtype: Any) -> int:
    """How many real numbers a number is."""
    return 2 if jnp.issubdtype(dtype, jnp.complexfloating) else 1


def smallest(dtype: Any) -> float:
    """What takes the place of a pivot that is 0: so small that its products with the other pivots don't matter."""
    return float(jnp.finfo(dtype).tiny) ** 0.75


def _numbers(parts: jax.Array, count: int) -> jax.Array:
    """Numbers from their real and imaginary parts, if there are two, one behind the other."""
    return jax.lax.complex(parts[:, ::2], parts[:, 1::2]) if count > 1 else parts


def _evaluate(inputs: jax.Array, program: Sequence[jax.Array], widths: tuple[int, ...]) -> list[jax.Array]:
    words, tables = program
    results = [jax.ShapeDtypeStruct((len(inputs), width), tables.dtype) for width in widths]
    return call_rust("ferroket_network", results, inputs, words, tables, widths=widths)


@lru_cache(maxsize=64)
def _words_of_lu(n: int, parts: int, inverse: bool) -> tuple[np.ndarray, tuple[int, ...]]:
    """The program of :func:`lu_factors`, and how many numbers its results have."""
    size, used = n * n * parts, 0

    def new(count: int) -> np.ndarray:
        nonlocal used
        used += count
        return np.arange(used - count, used)

    matrix, diagonals = new(size), new(n * (2 + parts))
    results, widths = [diagonals[:n], diagonals[2 * n :]], [n, n * parts]
    if not inverse:
        operations = [[_LU, 1, n, parts, diagonals[0], 0, *matrix]]
    else:
        triangles, (zero, one), safe = new(size).reshape(n, n, parts), new(2), new(n)
        lower, upper, out = (new(size) for _ in range(3))
        operations = [[_LU, 1, n, parts, diagonals[0], 1, triangles.flat[0], *matrix]]
        operations += [[_MAP, 1, 1, 1, _NUMBER, number, 0, 1, 0, place] for number, place in enumerate((zero, one))]
        operations.append(_words_of_safe(n, parts, triangles, safe[0]))
        identity = np.full((n, n, parts), zero)
        identity[range(n), range(n), 0] = one
        operations.append([_TRIANGULAR, 1, n, n, parts, 1, lower[0], *triangles.ravel(), *identity.ravel()])
        factors = triangles.copy()
        factors[range(n), range(n), 0] = safe
        right = lower.reshape(n, n, parts)[::-1]
        operations.append([_TRIANGULAR, 1, n, n, parts, 0, upper[0], *factors[::-1, ::-1].ravel(), *right.ravel()])
        # Column k of what there is then is that of the inverse from which row k of U came.
        columns = upper.reshape(n, n, parts)[::-1].swapaxes(0, 1)
        targets = range(size)  # row k begins at number k n
        head = [_PUT, n, n, n * parts, 0, 1, size, out[0]]
        operations.append([*head, *diagonals[n : 2 * n], *[0] * n, *targets, *columns.ravel()])
        results, widths = [*results, out], [*widths, size]
    places = np.concatenate(results)
    head = [size, 0, len(places), *places, used, 3 if inverse else 0, len(operations)]
    return np.array([*head, *(word for words in operations for word in words)], np.int32), tuple(widths)


def _words_of_safe(n: int, parts: int, triangles: np.ndarray, out: int) -> list[int]:
    """Real parts of the diagonal of U, :func:`smallest` in the place of those of zeros."""
    equal, both, select = (INSTRUCTIONS.index(name) for name in ("eq", "and", "select"))
    diagonal = triangles[range(n), range(n)]
    operands = [word for part in range(parts) for word in (_PLACES, *diagonal[:, part])]
    zero, tiny, first = parts, parts + 1, parts + 2
    steps = [[equal, first + part, part, zero, 0] for part in range(parts)]
    if parts > 1:
        steps.append([both, first + 2, first, first + 1, 0])
    last = first + len(steps)
    steps.append([select, last, last - 1, 0, tiny])
    head = [_MAP, n, parts + 2, last + 1, *operands, _NUMBER, 0, _NUMBER, 2, len(steps)]
    return [*head, *(word for step in steps for word in step), 1, last, out]
