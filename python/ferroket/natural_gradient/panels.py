"""Positive definite systems that several CPUs share, panel by panel: as :mod:`~ferroket.natural_gradient.cholesky`.

What is between two messages is a call of Rust, on the device's rows of L where they are. A Gram matrix isn't formed:
each device sums up its rows in the order in which they are factored, and only those elements that are read.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import dynamic_slice_in_dim

from ferroket import ffi
from ferroket._compat.sharding import AXIS, device
from ferroket.natural_gradient.blocks import Blocks
from ferroket.natural_gradient.tiles import LENGTH_IN_RUST


def solve_rows(side: int, rows: jax.Array, right: jax.Array) -> jax.Array:
    """The solution for the rows of one of several devices, of which ``side`` are no padding on all together.

    Args:
        side: Of the matrix.
        rows: ``(n, R·n)``.
        right: ``(R·n,)``, of the same type.

    Returns:
        ``(n,)``; NaN where the matrix isn't positive definite.
    """
    system = _system(len(rows), rows.shape[1] // len(rows), rows.dtype)
    vectors = _solved(system, ffi.start_shared(system, device(), rows, right, side))
    return ffi.shared_solution(system, device(), vectors, (len(rows),))


def solve_gram(terms: Sequence[tuple[str, Any]], right: jax.Array, shift: jax.Array, n_devices: int) -> jax.Array:
    """The solution of ``(P G P + shift) x = P right`` for the samples of one of several devices.

    Args:
        terms: Of G: see :func:`ferroket.ffi.gram_tiles`.
        right: ``(R·n, C)``, of the dtype of G.
        shift: Real.
        n_devices: R.

    Returns:
        ``(n, C)``, whose mean over the samples is zero; P subtracts it. NaN where G with the shift isn't positive
        definite.
    """
    n_samples, n_components = len(right) // n_devices, right.shape[1]
    system = _system(ffi.rows_of_gram(n_samples, n_components, right.dtype), n_devices, right.dtype)
    vectors = _solved(system, ffi.start_shared_gram(system, device(), terms, right, shift, LENGTH_IN_RUST))
    return ffi.shared_solution(system, device(), vectors, (n_samples, n_components), LENGTH_IN_RUST)


def _system(n_rows: int, n_devices: int, dtype: Any) -> ffi.SharedSystem:
    blocks = Blocks.of(n_rows, n_devices)
    return ffi.SharedSystem(n_devices, blocks.n_steps, blocks.n_rows, dtype)


def _solved(system: ffi.SharedSystem, started: Sequence[jax.Array]) -> jax.Array:
    """The vectors that solve a system."""
    panels, vectors = started
    diagonals = jnp.zeros((system.n_steps, system.of_diagonal), system.real)

    def factor(last: int, k: Any, state: Sequence[jax.Array]) -> Sequence[jax.Array]:
        """A panel, with messages that are large enough for those before the last one."""
        panels, vectors, diagonals = state
        rows = ffi.shared_rows(system, k, panels, max((last - 1) * system.width, 1))
        panels, own = ffi.update_shared(system, device(), k, jax.lax.all_gather(rows, AXIS), panels, vectors)
        return ffi.factor_shared(system, device(), k, jax.lax.all_gather(own, AXIS), panels, vectors, diagonals)

    state: Sequence[jax.Array] = [panels, vectors, diagonals]
    for first, last in Blocks(system.n_devices, system.length, system.n_steps).stages():
        of_stage = partial(factor, last)
        state = of_stage(first, state) if last - first == 1 else jax.lax.fori_loop(first, last, of_stage, state)
    panels, vectors, diagonals = state

    def go_back(i: Any, state: Sequence[jax.Array]) -> Sequence[jax.Array]:
        vectors, sums = state
        k = system.n_steps - 1 - i
        of_panel = jax.lax.psum(dynamic_slice_in_dim(sums, k * system.width, system.width), AXIS)
        return ffi.solve_shared(system, device(), k, of_panel, panels, diagonals, vectors, sums)

    vectors, _ = jax.lax.fori_loop(0, system.n_steps, go_back, [vectors, jnp.zeros_like(vectors)])
    return vectors
