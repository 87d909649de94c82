"""The primitive ``distinct_rows``: configurations without those that occur again."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi.primitives import make_primitive, on_one_device


def distinct_rows(x: jax.Array, used: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The configurations that differ from each other. Where there are no CPUs, all of them.

    Args:
        x: Configurations, ``(C, N)``. They may not be sharded, except by :func:`jax.shard_map`.
        used: How many of them count, the first ones, an int32 scalar.

    Returns:
        ``(distinct, place, count)`` of shapes ``(C, N)``, ``(C,)`` and ``()``: ``distinct[:count]`` are those that
        differ, in the order in which they come, and ``x[i]`` is ``distinct[place[i]]``. Behind them are configurations
        that are there already; places of those that don't count are 0.
    """
    distinct, place, count = distinct_rows_p(x, used)
    return distinct.astype(x.dtype), place, count


def _types(x: Any, used: Any) -> list[Any]:
    int32 = np.dtype(np.int32)
    return [x, on_one_device(x, x.shape[:1], int32), used]


def _reference(x: jax.Array, used: jax.Array) -> list[jax.Array]:
    rows = jnp.arange(len(x), dtype=jnp.int32)
    return [x, jnp.where(rows < used, rows, 0), used]


distinct_rows_p = make_primitive("distinct_rows", _types, target="ferroket_distinct_rows", reference=_reference)
