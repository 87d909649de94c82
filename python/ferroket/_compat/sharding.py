"""A function on each device, for the samples that it holds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from netket.jax.sharding import sharding_decorator

from ferroket._compat.jax import allow_indexing_of_closures

AXIS = "S"
"""The name of the axis of NetKet's mesh."""

CHECKS = jax.__version_info__ < (0, 8)
"""Whether JAX is asked to check over which devices a value varies: in functions that it doesn't check, JAX 0.7 has no
gradients."""


allow_indexing_of_closures()


def on_each_device(
    function: Callable[..., Any], sharded: tuple[bool, ...], sums: Any = False, varying: Any = False
) -> Callable[..., Any]:
    """``function`` on each device, as :func:`jax.shard_map` calls it; inside of another such call the function itself.

    JAX isn't asked to check over which devices a value varies. A loop of a network whose carry starts from constants
    wouldn't pass the check, though NetKet evaluates such networks, outside of :func:`jax.shard_map`.

    Args:
        function: What is called.
        sharded: Which of its arguments are sharded along their first dimension. Of these it gets its device's part.
        sums: For each result how those of the devices are reduced: :func:`jax.lax.psum`, or ``False`` for not at all.
        varying: Where JAX checks, which of the other arguments are taken to vary over the devices: derivatives by them
            are those of the device alone.
    """
    if CHECKS:
        if jax.device_count() == 1:  # nothing to share, and so nothing to check
            return function
        checked: Callable[..., Any] = sharding_decorator(function, sharded, sums, pvary_args_tree=varying)
        return checked
    unchecked: Callable[..., Any] = sharding_decorator(function, sharded, sums, check_vma=False)
    return unchecked


def set_mesh(mesh: Any) -> Any:
    """Sets the mesh of this thread as long as the result is entered, as :func:`jax.set_mesh` does."""
    return jax.set_mesh(mesh) if hasattr(jax, "set_mesh") else jax.sharding.use_mesh(mesh)  # type: ignore[attr-defined]


@contextmanager
def evaluated_eagerly() -> Iterator[None]:
    """Operations on concrete values run eagerly within, even while a function is traced.

    :func:`jax.ensure_compile_time_eval` alone ends in an ``AssertionError`` inside of :func:`jax.shard_map` on several
    devices: eager operations can't run under a mesh with manual axes.
    """
    # Not public in JAX 0.7, with which no network is read on several devices: see `is_out_of_reach`.
    no_mesh = nullcontext() if CHECKS else jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))
    with jax.ensure_compile_time_eval(), no_mesh:
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


def is_out_of_reach() -> bool:
    """Whether JAX is one that gives wrong shapes where log-derivatives are shared by several devices: JAX 0.7.

    On several devices it takes no program apart either, since it checks what a shared value may be added to.
    """
    return CHECKS and jax.device_count() > 1


def shape_of(array: Any, example: Any) -> jax.ShapeDtypeStruct:
    """The shape and the type of an array; where JAX checks it, it varies over the devices as another value does."""
    axes = _axes_of(example)
    more = {"vma": axes} if axes else {}
    return jax.ShapeDtypeStruct(jnp.shape(array), jnp.result_type(array), **more)


def varying_as(value: Any, example: jax.Array) -> Any:
    """A pytree of constants that JAX takes to vary over the devices as another value does, where it checks."""
    axes = tuple(_axes_of(example))
    if not axes:
        return value
    return jax.tree.map(lambda leaf: jax.lax.pvary(leaf, axes), value)  # type: ignore[attr-defined]


def _axes_of(value: Any) -> frozenset[str]:
    """The axes of the mesh over which a value varies; none where JAX doesn't check it."""
    if not CHECKS:
        return frozenset()
    kind = value if isinstance(value, jax.ShapeDtypeStruct) else jax.typeof(value)
    return getattr(kind, "vma", None) or frozenset()
