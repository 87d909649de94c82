"""Many devices: a function of samples that each device evaluates on those it holds."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from ferroket._compat.jax import name_partition, tiles_of_sharding


def along_batch(
    name: str, function: Callable[..., Sequence[jax.Array]], results: Callable[..., Sequence[str]]
) -> Callable[..., Sequence[jax.Array]]:
    """``function`` for samples that are sharded along the batch: XLA alone would gather them.

    Args:
        name: What tells the function from others.
        function: Takes samples ``(..., N)`` and tables, and gives results ``(..., *dims)``. Among its parameters may be
            a ``family`` and its ``attributes``, which say what samples consist of that nobody reads; else they are
            zeros.
        results: The dimensions of each result behind those of the batch, a letter each, from the parameters:
            ``["k n"]``.
    """

    def call(x: jax.Array, *tables: jax.Array, **params: Any) -> Sequence[jax.Array]:
        ranks = tuple(table.ndim for table in tables)
        return _along_batch(name, function, tuple(results(**params)), ranks, **params)(x, *tables)

    return call


@functools.lru_cache(maxsize=256)
def _along_batch(
    name: str,
    function: Callable[..., Sequence[jax.Array]],
    results: Sequence[str],
    ranks: Sequence[int],
    **params: Any,
) -> Callable[..., Sequence[jax.Array]]:
    """The same for tables of these ranks.

    A compiled program is known by the name and the parameters, as they are printed. Where the batch doesn't divide by
    the number of devices, XLA pads the shards with samples that nobody reads: the family says what they hold.
    """
    filler: Callable[..., Any] = _zeros
    if "family" in params:
        filler = functools.partial(params["family"].filler, **dict(params["attributes"]))

    # custom_partitioning looks at the signature, so it has to be that of a plain function.
    @custom_partitioning
    def partitioned(x: jax.Array, *tables: jax.Array) -> Sequence[jax.Array]:
        return function(x, *tables, **params)

    def partition(mesh: Any, arg_shapes: Any, _: Any) -> tuple[Any, ...]:
        x, *rest = jax.tree.leaves(arg_shapes)
        batch = x.shape[:-1]
        mesh, spec = mesh_and_spec(mesh, x)
        spec = spec[: len(batch)]

        def sharding(n_more: int) -> NamedSharding:
            return NamedSharding(mesh, PartitionSpec(*spec, *(None,) * n_more))

        replicated = NamedSharding(mesh, PartitionSpec())

        def on_device(x: jax.Array, *tables: jax.Array) -> Sequence[jax.Array]:
            return function(_fill_padding(x, batch, spec, mesh, lambda: filler(*tables)), *tables, **params)

        shardings = [sharding(len(dims.split())) for dims in results]
        return mesh, on_device, shardings, (sharding(1), *(replicated for _ in rest))

    operands = ["... n", *(" ".join(f"t{i}d{d}" for d in range(rank)) for i, rank in enumerate(ranks))]
    rule = f"{', '.join(operands)} -> {', '.join(f'... {dims}' for dims in results)}"
    partitioned.def_partition(partition=partition, sharding_rule=rule)
    name_partition(partition, f"{name} {params} {rule}")
    return partitioned


def _zeros(*_: jax.Array) -> int:
    return 0


def unsharded(x: jax.Array, refusal: str) -> jax.Array:
    """``x`` as it is; an error that says ``refusal`` when the program is compiled for an ``x`` that is sharded."""

    @custom_partitioning
    def partitioned(x: jax.Array) -> jax.Array:
        return x

    def partition(mesh: Any, arg_shapes: Any, _: Any) -> tuple[Any, ...]:
        (operand,) = jax.tree.leaves(arg_shapes)
        mesh, spec = mesh_and_spec(mesh, operand)
        if any(axes is not None for axes in spec):
            raise ValueError(refusal)
        replicated = NamedSharding(mesh, PartitionSpec())
        return mesh, lambda x: x, replicated, (replicated,)

    dims = [f"{{}}{d}" for d in range(x.ndim)]
    rule = " -> ".join(" ".join(dim.format(letter) for dim in dims) for letter in "xy")
    partitioned.def_partition(partition=partition, sharding_rule=rule)
    name_partition(partition, f"{unsharded.__qualname__} {rule}")
    return partitioned(x)


def mesh_and_spec(mesh: Any, x: Any) -> tuple[Any, tuple[Any, ...]]:
    """The mesh, and the mesh axes of each dimension of ``x``.

    XLA doesn't always know the mesh, for one if sharded arrays are constants of the program. Then it gives
    the numbers of the devices that hold the tiles of ``x``, which are as good as a mesh.
    """
    if isinstance(x.sharding, NamedSharding):
        spec = tuple(x.sharding.spec)
        return x.sharding.mesh, spec + (None,) * (x.ndim - len(spec))
    devices, tiles = tiles_of_sharding(x.sharding, x.ndim)
    if tiles is None:
        return jax.sharding.Mesh(np.array(devices), ("replicas",)), (None,) * x.ndim
    names = tuple(f"tiles{dim}" for dim in range(tiles.ndim))
    return jax.sharding.Mesh(np.array(devices)[tiles], names), names[: x.ndim]


def _fill_padding(
    x: jax.Array, batch: tuple[int, ...], spec: tuple[Any, ...], mesh: Any, filler: Callable[[], Any]
) -> jax.Array:
    """On one device: the shard ``x`` with ``filler`` in the samples that lie beyond the end of the batch."""
    for dim, (size, names) in enumerate(zip(batch, spec, strict=True)):
        axes = names if isinstance(names, tuple) else (names,) * (names is not None)
        if size < x.shape[dim] * math.prod(mesh.shape[axis] for axis in axes):
            index = jax.lax.axis_index(axes) * x.shape[dim] + jax.lax.broadcasted_iota(jnp.int32, x.shape, dim)
            x = jnp.where(index < size, x, jnp.asarray(filler()).astype(x.dtype))
    return x
