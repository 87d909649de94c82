"""A function on each device, for the samples that it holds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec
from netket.jax.sharding import sharding_decorator

from ferroket._compat.jax import allow_indexing_of_closures

AXIS = "S"
"""The name of the axis of NetKet's mesh."""


allow_indexing_of_closures()


def on_each_device(function: Callable[..., Any], sharded: tuple[Any, ...], sums: Any = False) -> Callable[..., Any]:
    """``function`` on each device, as :func:`jax.shard_map` calls it; inside of another such call the function itself.

    JAX isn't asked to check over which devices a value varies. A loop of a network whose carry starts from constants
    wouldn't pass the check, though NetKet evaluates such networks, outside of :func:`jax.shard_map`.

    Args:
        function: What is called.
        sharded: Which of its arguments are sharded along their first dimension, as booleans or pytrees of such. Of
            these it gets its device's part.
        sums: For each result how those of the devices are reduced: :func:`jax.lax.psum`, or ``False`` for not at all.
    """

    def on_each(*args: Any) -> Any:
        # Array by array, since the decorator of NetKet 3.20 takes a pytree for no array, and shares none of it out.
        arrays, structure = jax.tree.flatten(args)
        of_each = [
            jax.tree.map(lambda flag, part: jax.tree.map(lambda _: flag, part), flags, arg)
            for flags, arg in zip(sharded, args, strict=True)
        ]

        def of_arrays(*arrays: Any) -> Any:
            return function(*jax.tree.unflatten(structure, arrays))

        shared: Callable[..., Any] = sharding_decorator(
            of_arrays, tuple(jax.tree.leaves(of_each)), sums, check_vma=False
        )
        return shared(*arrays)

    return on_each


def set_mesh(mesh: Any) -> Any:
    """Sets the mesh of this thread as long as the result is entered, as :func:`jax.set_mesh` does."""
    return jax.set_mesh(mesh) if hasattr(jax, "set_mesh") else jax.sharding.use_mesh(mesh)  # type: ignore[attr-defined]


@contextmanager
def evaluated_eagerly() -> Iterator[None]:
    """Operations on concrete values run eagerly within, even while a function is traced.

    :func:`jax.ensure_compile_time_eval` alone ends in an ``AssertionError`` inside of :func:`jax.shard_map` on several
    devices: eager operations can't run under a mesh with manual axes.
    """
    no_mesh = jax.sharding.AbstractMesh((), ())
    with jax.ensure_compile_time_eval(), jax.sharding.use_abstract_mesh(no_mesh):
        yield


def device() -> jax.Array:
    """The place of a device among all, in a function for :func:`on_each_device`."""
    return jax.lax.axis_index(AXIS)


def replicated(array: jax.Array) -> jax.Array:
    """An array that each device has as a whole; inside of :func:`on_each_device` the array itself."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.manual_axes:
        return array
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, PartitionSpec()))


def exchanged(blocks: jax.Array) -> jax.Array:
    """Of an array for each device, ``(R, ...)``, what all devices have for this one, in their order."""
    return jax.lax.all_to_all(blocks, AXIS, 0, 0)
