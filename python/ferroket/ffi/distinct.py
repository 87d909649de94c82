"""The primitive ``distinct_rows``: configurations without those that occur again."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ferroket.ffi.compact import on_one_device
from ferroket.ffi.primitives import as_numbers, batched
from ferroket.ffi.varying import align


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
    numbers, used = align([as_numbers(x), used])
    distinct, place, count = distinct_rows_p.bind(numbers, used)
    return distinct.astype(x.dtype), place, count


distinct_rows_p = Primitive("distinct_rows")
distinct_rows_p.multiple_results = True
distinct_rows_p.def_impl(jax.jit(distinct_rows_p.bind))


def _types(x: Any, used: Any) -> list[Any]:
    int32 = np.dtype(np.int32)
    return [x, on_one_device(x, x.shape[:1], int32), used]


def _call(x: jax.Array, used: jax.Array) -> list[jax.Array]:
    place, count = jax.ShapeDtypeStruct(x.shape[:1], np.int32), jax.ShapeDtypeStruct((), np.int32)
    return list(jax.ffi.ffi_call("ferroket_distinct_rows", [jax.typeof(x), place, count])(x, used))


def _reference(x: jax.Array, used: jax.Array) -> list[jax.Array]:
    rows = jnp.arange(len(x), dtype=jnp.int32)
    return [x, jnp.where(rows < used, rows, 0), used]


distinct_rows_p.def_abstract_eval(_types)
batching.primitive_batchers[distinct_rows_p] = batched(distinct_rows_p, any_batch=False)

mlir.register_lowering(distinct_rows_p, mlir.lower_fun(_call, multiple_results=True), platform="cpu")
mlir.register_lowering(distinct_rows_p, mlir.lower_fun(_reference, multiple_results=True))
