"""Positive definite systems whose matrix is shared by all devices: a blocked Cholesky factorisation that moves no rows.

Each of R devices has n consecutive rows of the N = R n, cut into K blocks of b rows. The matrix is factored in the
order in which the k-th blocks of all devices, the *panel* k, follow each other. That is a permutation of rows and
columns alike, for which each device permutes its columns. It spreads the work evenly, as block-cyclic matrices do. In
this order

    A = U† U,    U_kj = U_kk^{-†} (A_kj − Σ_{i<k} U_ik† U_ij),

panel by panel: the left-looking form of Golub and Van Loan, Matrix Computations, 4.2, of rows of U. The columns of U
that a device has are those of its rows of A. For each panel the devices gather what is done of its columns, (k w, w)
with w = R b, and then what is left of its diagonal part, (w, w), which each of them factors. A device multiplies and
adds N³/(6 R) times, sends about N²/2 numbers in all, and has N²/R of them and a panel.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import dynamic_slice, dynamic_slice_in_dim, dynamic_update_slice, dynamic_update_slice_in_dim
from jax.lax.linalg import triangular_solve

from ferroket import ffi
from ferroket._compat.sharding import AXIS, device, on_each_device
from ferroket.natural_gradient import panels
from ferroket.natural_gradient.blocks import Blocks


@jax.jit
def solve_positive(matrix: jax.Array, right: jax.Array) -> jax.Array:
    """Solves ``matrix x = right`` on all devices together.

    Args:
        matrix: ``(N, N)``, Hermitian and positive definite, real or complex. Sharded along its first axis, so that
            nothing is moved, if N is a multiple of the number of devices. One of each two elements that mirror each
            other is read.
        right: ``(N,)``, of the same type, on all devices.

    Returns:
        ``(N,)``, sharded as the rows are; NaN in all elements where the matrix isn't positive definite in its
        precision, or where one of its elements that are read, or of ``right``, is NaN.
    """
    side = len(matrix)
    fill = -side % jax.device_count()
    if fill:
        matrix, right = (jnp.pad(array, [(0, fill)] * array.ndim) for array in (matrix, right))
    solution: jax.Array = on_each_device(partial(_solve_rows, side), (True, False))(matrix, right)
    return solution[:side]


def _solve_rows(side: int, rows: jax.Array, right: jax.Array) -> jax.Array:
    """The solution for the rows of a device, of which ``side`` are no padding on all devices together.

    Args:
        side: Of the matrix.
        rows: ``(n, R·n)``.
        right: ``(R·n,)``.
    """
    n_rows = len(rows)
    n_devices = rows.shape[1] // n_rows
    if n_devices == 1:
        # Also where another such call is around this one, on each of several devices.
        solution = ffi.solve_positive(rows[:side, :side], right[:side])
    else:
        on_cpus, elsewhere = (partial(function, side) for function in (panels.solve_rows, _solve_by_xla))
        solution = jax.lax.platform_dependent(rows, right, cpu=on_cpus, default=elsewhere)
    return jnp.where(jnp.isfinite(solution).all(), solution, jnp.nan)


def _solve_by_xla(side: int, rows: jax.Array, right: jax.Array) -> jax.Array:
    blocks = Blocks.of(len(rows), rows.shape[1] // len(rows))
    return _solve_backward(blocks, _factor(blocks, _extended(blocks, side, rows, right)))[: len(rows)]


def _extended(blocks: Blocks, side: int, rows: jax.Array, right: jax.Array) -> jax.Array:
    """A device's columns, and one more with the right-hand side: ``(K w, K b + 1)``. Padding is as in a unit matrix."""
    n_rows, length, height = len(rows), blocks.n_rows, blocks.height
    columns = _in_order(blocks, rows.conj().T)
    padding = jnp.zeros((len(columns), height - n_rows), columns.dtype)
    matrix = jnp.column_stack([columns, padding, _in_order(blocks, right)])
    if blocks.n_devices * height == side:
        return matrix
    column = jnp.arange(height)
    is_padding = (column >= n_rows) | (device() * n_rows + column >= side)
    row = column // length * blocks.width + device() * length + column % length
    return matrix.at[row, column].add(is_padding.astype(matrix.dtype))


def _in_order(blocks: Blocks, array: jax.Array) -> jax.Array:
    """From the rows of device after device, ``(R n, ...)``, to those of panel after panel, ``(K w, ...)``, padded."""
    array = array.reshape(blocks.n_devices, -1, *array.shape[1:])
    array = jnp.pad(array, [(0, 0), (0, blocks.height - array.shape[1])] + [(0, 0)] * (array.ndim - 2))
    array = array.reshape(blocks.n_devices, blocks.n_steps, blocks.n_rows, *array.shape[2:]).swapaxes(0, 1)
    return jax.lax.collapse(array, 0, 3)


def _factor(blocks: Blocks, matrix: jax.Array) -> jax.Array:
    """U in the place of A, and U^{-†} times the right-hand side in that of the latter.

    Args:
        blocks: Of the rows.
        matrix: ``(K w, K b + 1)``.

    Returns:
        The same; what is below the diagonal of U has no meaning.
    """
    length, width = blocks.n_rows, blocks.width

    def step(first: int, last: int, k: Any, matrix: jax.Array) -> jax.Array:
        """One panel, in the shapes that are enough for those from the first to before the last."""
        start, n_done = first * length, (last - 1) * width
        panel = dynamic_slice(matrix, (k * width, start), (width, matrix.shape[1] - start))
        if n_done:
            own = dynamic_slice(matrix, (0, k * length), (n_done, length))
            own = jnp.where(jnp.arange(n_done)[:, None] < k * width, own, 0)
            panel -= _gathered(own) @ matrix[:n_done, start:]
        place = (k - first) * length
        factor = jax.lax.linalg.cholesky(
            _gathered(dynamic_slice_in_dim(panel, place, length, 1)), symmetrize_input=False
        )
        # LAPACK's matrices are transposes of JAX's, and this is one for it as it is.
        panel = triangular_solve(factor, panel.T, lower=True, transpose_a=True).T
        own = dynamic_slice_in_dim(factor, device() * length, length).conj().T
        panel = dynamic_update_slice_in_dim(panel, own, place, 1)
        return dynamic_update_slice(matrix, panel, (k * width, start))

    for first, last in blocks.stages():
        of_stage = partial(step, first, last)
        matrix = of_stage(first, matrix) if last - first == 1 else jax.lax.fori_loop(first, last, of_stage, matrix)
    return matrix


def _solve_backward(blocks: Blocks, matrix: jax.Array) -> jax.Array:
    """U⁻¹ times the last column, for what :func:`_factor` returns: ``(K b,)``, the part of a device."""
    length, width = blocks.n_rows, blocks.width

    def step(i: Any, solution: jax.Array) -> jax.Array:
        k = blocks.n_steps - 1 - i
        panel = dynamic_slice_in_dim(matrix, k * width, width)
        rest = panel[:, -1] - jax.lax.psum(panel[:, :-1] @ solution, AXIS)
        factor = _gathered(dynamic_slice_in_dim(panel, k * length, length, 1))
        rest = triangular_solve(factor, rest[None].conj(), lower=True)[0].conj()
        own = dynamic_slice_in_dim(rest, device() * length, length)
        return dynamic_update_slice_in_dim(solution, own, k * length, 0)

    solution = jnp.zeros(blocks.height, matrix.dtype)
    return jax.lax.fori_loop(0, blocks.n_steps, step, solution)


def _gathered(columns: jax.Array) -> jax.Array:
    """The adjoint of columns of which each device has some: those of the first device first."""
    adjoint: jax.Array = jax.lax.all_gather(columns.conj().T, AXIS, tiled=True)
    return adjoint
