"""The primitives ``solve_positive``, ``gram_tiles`` and ``solve_gram``: linear algebra of updates, on CPUs."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jax.interpreters import ad

from ferroket.ffi.primitives import make_primitive, on_one_device


def solve_positive(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """Solves ``matrix x = right`` on one device.

    Args:
        matrix: ``(N, N)``, Hermitian and positive definite, real or complex. It may not be sharded, except by
            :func:`jax.shard_map`. CPUs read the elements on and behind the diagonal of each row.
        right: ``(N,)``, of the same dtype.

    Returns:
        ``(N,)``; NaN where the matrix isn't positive definite in its precision. On CPUs it is the same to the bit on
        any number of threads.
    """
    (solution,) = solve_positive_p(matrix, right)
    return solution


def _types(matrix: Any, right: Any) -> list[Any]:
    if matrix.dtype != right.dtype:
        raise TypeError(f"the matrix is {matrix.dtype} and the right-hand side {right.dtype}: make them the same")
    return [on_one_device(matrix, right.shape, right.dtype)]


def _reference(matrix: jax.Array, right: jax.Array) -> Sequence[jax.Array]:
    return [jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(matrix), right)]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[jax.Array], list[jax.Array]]:
    matrix, right = primals
    of_matrix, of_right = map(ad.instantiate_zeros, tangents)
    solution = solve_positive(matrix, right)
    return [solution], [solve_positive(matrix, of_right - of_matrix @ solution)]


solve_positive_p = make_primitive(
    "solve_positive", _types, target="ferroket_solve_positive", reference=_reference, jvp=_jvp
)


def gram_tiles(
    terms: Sequence[tuple[str, Sequence[jax.Array]]],
    device: Any,
    shape: tuple[int, int, int, int],
    dtype: Any,
    side: int,
) -> jax.Array:
    """Products of the rows of a device's samples with those of all, tile by tile.

    Args:
        terms: what it is the sum of: ``"factors"`` with x of samples with rows and with columns, ``(n, B, P, I)`` and
            ``(N, B, P, I)``, and δ of both, ``(n, C, B, P, O)`` and ``(N, C, B, P, O)``; ``"nested"``, the same without
            positions, where the x of all parts before one belong to it, too; or ``"rows"`` with those of both,
            ``(n, C, K)`` and ``(N, C, K)``, and a mean ``(C, K)`` that is subtracted from them.
        device: the place of the n samples among all N.
        shape: ``(n, C, N, C)``.
        dtype: that of the result: real parts of products, or all of them.
        side: how many samples a tile has.

    Returns:
        All products if n is N; else those of the tiles on the diagonal, and of those behind it up to half way round.
    """
    kinds, arrays = operands(terms, dtype)
    (matrix,) = gram_tiles_p(
        jnp.asarray(device, np.int32), *arrays, terms=kinds, shape=tuple(shape), dtype=np.dtype(dtype), side=side
    )
    return matrix


def operands(terms: Sequence[tuple[str, Sequence[jax.Array]]], dtype: Any) -> tuple[str, list[jax.Array]]:
    """The kinds of terms, and their arrays in the precision of a dtype."""
    precision = precision_of(dtype)
    of_complex = np.result_type(precision, np.complex64)
    arrays = [
        array.astype(of_complex if jnp.iscomplexobj(array) else precision) for _, arrays in terms for array in arrays
    ]
    return " ".join(kind for kind, _ in terms), arrays


def precision_of(dtype: Any) -> Any:
    """The dtype of real parts."""
    return np.zeros(0, dtype).real.dtype


def _types_of_gram(device: Any, *_: Any, shape: tuple[int, ...], dtype: Any, **__: Any) -> list[Any]:
    return [on_one_device(device, shape, dtype)]


gram_tiles_p = make_primitive("gram_tiles", _types_of_gram, target="ferroket_gram")


def solve_gram(
    terms: Sequence[tuple[str, Sequence[jax.Array]]], right: jax.Array, shift: float | jax.Array
) -> jax.Array:
    """Solves ``(P G P + shift) x = P right`` on one device, for a Gram matrix G that is never formed.

    P subtracts the mean over the samples, of each component by itself.

    Args:
        terms: those of G, as :func:`gram_tiles` has them, of samples that all have rows and columns.
        right: ``(n, C)``: of real floats, or of complex ones for C = 1, for which G is complex.
        shift: real.

    Returns:
        ``(n, C)``; NaN where G with the shift isn't positive definite in its precision. It is the same to the bit on
        any number of threads.
    """
    kinds, arrays = operands(terms, right.dtype)
    (solution,) = solve_gram_p(right, jnp.asarray(shift, precision_of(right.dtype)), *arrays, terms=kinds)
    return solution


def _types_of_solution(right: Any, *_: Any, **__: Any) -> list[Any]:
    return [on_one_device(right, right.shape, right.dtype)]


solve_gram_p = make_primitive("solve_gram", _types_of_solution, target="ferroket_solve_gram")
