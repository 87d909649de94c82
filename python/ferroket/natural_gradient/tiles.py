"""A Hermitian matrix of all pairs of samples, tile by tile: of two tiles that mirror each other one is computed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ferroket._compat.sharding import device, exchanged

_LENGTH = {"cpu": 128}
"""How many samples a tile has on each side, at most. On a CPU it stays in the cache."""

_LENGTH_ELSEWHERE = 2048
"""Other devices are kept busy by large products."""


LENGTH_IN_RUST = 96
"""The same in Rust: whole panels of any vector instructions, and many enough for many threads."""


def hermitian(
    function: Callable[[Any, Any], jax.Array], rows: Any, columns: Any, length: int | None = None
) -> jax.Array:
    """The rows of a device's samples in a Hermitian matrix.

    Args:
        function: From some rows and some columns to their elements ``(n, C, n', C)``.
        rows: A pytree of arrays ``(n, ...)``, for the samples of one of R devices.
        columns: The same of all samples, those of the first device first.
        length: How many samples a tile has on each side, at most.

    Returns:
        ``(n, C, R·n, C)``.
    """
    n_rows, n_columns = (len(jax.tree.leaves(side)[0]) for side in (rows, columns))
    n_devices = n_columns // n_rows
    length = length_of(n_rows) if length is None else min(n_rows, length)
    n_tiles = -(-n_rows // length)

    def compute(top: Any, left: Any) -> jax.Array:
        cut = jax.lax.dynamic_slice_in_dim
        return function(
            jax.tree.map(lambda array: cut(array, top, length), rows),
            jax.tree.map(lambda array: cut(array, left, length), columns),
        )

    def start(tile: Any) -> Any:
        """Of a tile, by its number. The last of a device may share samples with the one before."""
        return tile // n_tiles * n_rows + jnp.minimum(tile % n_tiles * length, n_rows - length)

    def put_both(matrix: jax.Array, place: jax.Array) -> tuple[jax.Array, None]:
        top, left = start(place)
        tile = compute(top, left)
        matrix = jax.lax.dynamic_update_slice(matrix, tile, (top, 0, left, 0))
        return jax.lax.dynamic_update_slice(matrix, _mirrored(tile), (left, 0, top, 0)), None

    def put(matrix: jax.Array, place: jax.Array) -> tuple[jax.Array, None]:
        row, distance = place
        top, left = start(row), start((first + row + distance) % (n_devices * n_tiles))
        return jax.lax.dynamic_update_slice(matrix, compute(top, left), (top, 0, left, 0)), None

    shape = jax.eval_shape(compute, 0, 0)
    matrix = jnp.zeros((n_rows, shape.shape[1], n_columns, shape.shape[3]), shape.dtype)
    if n_devices == 1:
        places = [(row, column) for row in range(n_tiles) for column in range(row + 1)]
        return jax.lax.scan(put_both, matrix, jnp.asarray(places))[0]

    # A row of tiles has those from its diagonal to half way round, so that all devices have as many to compute.
    half = n_devices * n_tiles // 2
    first = device() * n_tiles
    places = [(row, distance) for row in range(n_tiles) for distance in range(half + 1)]
    matrix = jax.lax.scan(put, matrix, jnp.asarray(places))[0]

    return completed(matrix, length)


def length_of(n_rows: int) -> int:
    """How many samples a tile has on each side, of so many on a device: all but the last one."""
    n_tiles = -(-n_rows // _LENGTH.get(jax.default_backend(), _LENGTH_ELSEWHERE))
    return -(-n_rows // n_tiles)


def length_in_rust(n_rows: int) -> int:
    """The same for Rust's tiles, of which the last one of a device may be smaller."""
    return min(n_rows, LENGTH_IN_RUST)


def completed(matrix: jax.Array, length: int) -> jax.Array:
    """The rows of one of several devices in a Hermitian matrix ``(n, C, R·n, C)``, of which it has half of the tiles.

    These are for each row of tiles those from its diagonal to half way round.
    """
    n_rows, _, n_columns, n_components = matrix.shape
    n_devices, n_tiles = n_columns // n_rows, -(-n_rows // length)
    half, first = n_devices * n_tiles // 2, device() * n_tiles
    blocks = jnp.moveaxis(matrix.reshape(n_rows, -1, n_devices, n_rows, n_components), 2, 0)
    others = jnp.moveaxis(jax.vmap(_mirrored)(exchanged(blocks)), 0, 2).reshape(matrix.shape)
    of_row = jnp.arange(n_rows) // length
    of_column = (of_row + n_tiles * jnp.arange(n_devices)[:, None]).reshape(-1)
    distance = (of_column - first - of_row[:, None]) % (n_devices * n_tiles)
    return jnp.where((distance <= half)[:, None, :, None], matrix, others)


def _mirrored(tile: jax.Array) -> jax.Array:
    return tile.conj().transpose(2, 3, 0, 1)
