"""The primitive ``solve_positive``: positive definite systems, by a Cholesky factorisation."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.scipy.linalg
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
