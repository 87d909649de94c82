"""The primitives ``compact_elements`` and ``count_elements``: only the connected elements that aren't zero.

The compact form has a fixed capacity, so that it works under :func:`jax.jit`, and a cursor that says where to go on. It
is about all samples of a device: :func:`jax.shard_map` gives each device its own.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from ferroket._compat.jax import lower_with_devices
from ferroket.ffi.connected import connected_elements_p, matrix_element_tangents
from ferroket.ffi.family import Attribute, Attributes, Family, for_handler, static
from ferroket.ffi.partitioning import along_batch, unsharded
from ferroket.ffi.primitives import as_numbers, batched, per_sample
from ferroket.ffi.varying import align

_SHARDED = (
    "the samples are sharded, but the compact form is about all samples of one device: call it inside of "
    "jax.shard_map, where each device has its own samples, capacity and cursor, or take the padded form"
)


def compact_elements(
    family: Family,
    x: jax.Array,
    *tables: jax.Array,
    cursor: jax.Array,
    n_conn: int,
    capacity: int,
    off_diagonal_only: bool = False,
    **attributes: Attribute,
) -> tuple[jax.Array, ...]:
    """The connected elements whose matrix elements aren't zero, sample by sample, from a cursor on.

    Args:
        family: Which operator.
        x: The samples, of shape ``(Ns, N)``. They may not be sharded, except by :func:`jax.shard_map`.
        tables: The operator's numbers.
        cursor: Where to begin, an int32 array: a sample, and how many of its elements to leave out.
        n_conn: K, the largest number of connected elements of a sample, zeros included.
        capacity: C, the largest number of elements that are wanted.
        off_diagonal_only: Whether to leave out the diagonal.
        attributes: Static numbers, and tuples of them, for the handler.

    Returns:
        ``(xp, mels, sample, cursor)`` of shapes ``(C, N)``, ``(C,)``, ``(C,)`` and ``(2,)``: the elements, the samples
        they belong to, and where to go on. Rows that aren't used hold first local states, 0 and Ns. The cursor's
        sample is Ns if and only if there are no more elements.

    Raises:
        ValueError: If the samples are sharded; where XLA alone knows that, it raises a jax.errors.JaxRuntimeError.
    """
    args = align([as_numbers(x), *tables, cursor])
    xp, mels, sample, cursor = compact_elements_p.bind(
        *args,
        family=family,
        n_conn=n_conn,
        capacity=capacity,
        off_diagonal_only=off_diagonal_only,
        attributes=static(attributes),
    )
    return xp.astype(x.dtype), mels, sample, cursor


def count_elements(
    family: Family,
    x: jax.Array,
    *tables: jax.Array,
    n_conn: int,
    off_diagonal_only: bool = False,
    **attributes: Attribute,
) -> jax.Array:
    """How many matrix elements of each sample aren't zero: an int32 array ``(...)`` for samples ``(..., N)``."""
    params = {"n_conn": n_conn, "off_diagonal_only": off_diagonal_only, "attributes": static(attributes)}
    (counts,) = count_elements_p.bind(*align([as_numbers(x), *tables]), family=family, **params)
    return counts


compact_elements_p = Primitive("compact_elements")
count_elements_p = Primitive("count_elements")
_STATIC = ("family", "n_conn", "off_diagonal_only", "attributes")
for _primitive, _static in ((compact_elements_p, (*_STATIC, "capacity")), (count_elements_p, _STATIC)):
    _primitive.multiple_results = True
    _primitive.def_impl(jax.jit(_primitive.bind, static_argnames=_static))


# Types


def on_one_device(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The type of a result that is about all samples of a device.

    Raises:
        ValueError: If the samples are sharded.
    """
    if any(axes is not None for axes in x.sharding.spec):
        raise ValueError(_SHARDED)
    sharding = NamedSharding(x.sharding.mesh, PartitionSpec(*(None,) * len(shape)))
    return x.update(shape=shape, dtype=dtype, sharding=sharding, weak_type=False)


def _compact_types(x: Any, *tables: Any, family: Family, capacity: int, **_: Any) -> list[Any]:
    int32 = np.dtype(np.int32)
    mels = on_one_device(x, (capacity,), family.result_dtype(tables))
    sample, cursor = on_one_device(x, (capacity,), int32), on_one_device(x, (2,), int32)
    return [on_one_device(x, (capacity, x.shape[-1]), x.dtype), mels, sample, cursor]


def _count_types(x: Any, *_: Any, **__: Any) -> list[Any]:
    return [per_sample(x, (), np.dtype(np.int32))]


compact_elements_p.def_abstract_eval(_compact_types)
count_elements_p.def_abstract_eval(_count_types)


# References


def _is_wanted(mels: jax.Array, off_diagonal_only: bool, diagonal: bool) -> jax.Array:
    """Which of the padded matrix elements aren't zero."""
    nonzero = mels != 0
    return nonzero.at[..., 0].set(False) if off_diagonal_only and diagonal else nonzero


def _places(
    mels: jax.Array, cursor: jax.Array, *, capacity: int, off_diagonal_only: bool, diagonal: bool
) -> tuple[jax.Array, jax.Array]:
    """The places ``sample * K + element`` of the elements in the padded form, Ns * K where there are none; a cursor."""
    n_samples, n_conn = mels.shape
    wanted = _is_wanted(mels, off_diagonal_only, diagonal)
    before = jnp.cumsum(wanted, axis=-1, dtype=jnp.int32) - wanted
    sample = jnp.arange(n_samples, dtype=jnp.int32)[:, None]
    ahead = wanted & ((sample > cursor[0]) | ((sample == cursor[0]) & (before >= cursor[1])))
    (places,) = jnp.nonzero(ahead.ravel(), size=capacity + 1, fill_value=mels.size)
    following = places[-1]
    element = before.ravel().at[following].get(mode="fill", fill_value=0)
    return places[:-1], jnp.stack([following // n_conn, element]).astype(jnp.int32)


def _compact_reference(
    *args: jax.Array, family: Family, n_conn: int, capacity: int, off_diagonal_only: bool, attributes: Attributes
) -> list[jax.Array]:
    x, *tables, cursor = args
    static = dict(attributes)
    n_samples, n_sites = x.shape
    unused = jnp.broadcast_to(jnp.asarray(family.filler(*tables, **static)), (capacity, n_sites)).astype(x.dtype)
    if not n_samples:
        mels = jnp.zeros_like(family.a_coefficient(tables), shape=(capacity,))
        return [unused, mels, jnp.zeros((capacity,), jnp.int32), jnp.zeros((2,), jnp.int32)]
    mels, moves = family.elements(x, *tables, n_conn=n_conn, **static)
    places, cursor = _places(
        mels, cursor, capacity=capacity, off_diagonal_only=off_diagonal_only, diagonal=bool(static["diagonal"])
    )
    sample = (places // n_conn).astype(jnp.int32)
    used = sample < n_samples

    def at_places(padded: jax.Array) -> jax.Array:
        return padded.ravel().at[places].get(mode="clip")

    xp = family.configurations(x.at[sample].get(mode="clip"), jax.tree.map(at_places, moves), *tables, **static)
    return [jnp.where(used[:, None], xp, unused), jnp.where(used, at_places(mels), 0), sample, cursor]


def _count_reference(
    *args: jax.Array, family: Family, n_conn: int, off_diagonal_only: bool, attributes: Attributes
) -> list[jax.Array]:
    mels, _ = family.elements(*args, n_conn=n_conn, **dict(attributes))
    wanted = _is_wanted(mels, off_diagonal_only, bool(dict(attributes)["diagonal"]))
    return [wanted.sum(axis=-1, dtype=jnp.int32)]


# Derivatives. The places are those of the elements that aren't zero; there the matrix elements are linear.


def _compact_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    results = compact_elements_p.bind(*primals, **params)
    tangents_out = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    x, *tables, cursor = primals
    padded = {name: params[name] for name in ("family", "n_conn", "attributes")} | {"diagonal_only": False}
    mels_dot = matrix_element_tangents(x, tables, tangents[1:-1], **padded)
    if mels_dot is not None and x.shape[0]:
        (mels,) = connected_elements_p.bind(x, *tables, states=False, **padded)
        diagonal = bool(dict(params["attributes"])["diagonal"])
        places, _ = _places(
            mels,
            cursor,
            capacity=params["capacity"],
            off_diagonal_only=params["off_diagonal_only"],
            diagonal=diagonal,
        )
        tangents_out[1] = mels_dot.ravel().at[places].get(mode="fill", fill_value=0)
    return results, tangents_out


def _count_jvp(primals: Sequence[Any], _: Any, **params: Any) -> tuple[Any, Any]:
    results = count_elements_p.bind(*primals, **params)
    return results, [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]


ad.primitive_jvps[compact_elements_p] = _compact_jvp
ad.primitive_jvps[count_elements_p] = _count_jvp


# Batching


batching.primitive_batchers[compact_elements_p] = batched(compact_elements_p, any_batch=False)
batching.primitive_batchers[count_elements_p] = batched(count_elements_p)


# Platforms


def _compact_call(
    *args: jax.Array, family: Family, n_conn: int, capacity: int, off_diagonal_only: bool, attributes: Attributes
) -> list[jax.Array]:
    x, *tables, _ = args
    results = [
        jax.ShapeDtypeStruct((capacity, x.shape[-1]), x.dtype),
        jax.ShapeDtypeStruct((capacity,), family.result_dtype(tables)),
        jax.ShapeDtypeStruct((capacity,), np.int32),
        jax.ShapeDtypeStruct((2,), np.int32),
    ]
    call = jax.ffi.ffi_call(family.handler("_compact"), results)
    return list(call(*args, off_diagonal_only=off_diagonal_only, **for_handler(attributes)))


def _count_call(
    x: jax.Array, *tables: jax.Array, family: Family, n_conn: int, off_diagonal_only: bool, attributes: Attributes
) -> list[jax.Array]:
    *batch, sites = x.shape
    samples = x.reshape(-1, sites) if sites else x.reshape(int(np.prod(batch)), 0)
    call = jax.ffi.ffi_call(family.handler("_count"), [jax.ShapeDtypeStruct(samples.shape[:1], np.int32)])
    (counts,) = call(samples, *tables, off_diagonal_only=off_diagonal_only, **for_handler(attributes))
    return [counts.reshape(batch)]


@functools.lru_cache(maxsize=256)
def _partitioned_count(ranks: tuple[int, ...], **params: Any) -> Callable[..., list[jax.Array]]:
    filler = functools.partial(params["family"].filler, **dict(params["attributes"]))
    return along_batch(functools.partial(_count_call, **params), filler, ranks, [""])


def _lower_compact(ctx: Any, *args: Any, body: Callable[..., list[jax.Array]], **params: Any) -> Any:
    def function(x: jax.Array, *rest: jax.Array) -> list[jax.Array]:
        return body(unsharded(x, _SHARDED), *rest, **params)

    return mlir.lower_fun(function, multiple_results=True)(ctx, *args)


def _lower_count(ctx: Any, *args: Any, **params: Any) -> Any:
    function = _partitioned_count(tuple(aval.ndim for aval in ctx.avals_in[1:]), **params)
    return mlir.lower_fun(function, multiple_results=True)(ctx, *args)


lower_with_devices(compact_elements_p, count_elements_p)
mlir.register_lowering(compact_elements_p, functools.partial(_lower_compact, body=_compact_call), platform="cpu")
mlir.register_lowering(compact_elements_p, functools.partial(_lower_compact, body=_compact_reference))
mlir.register_lowering(count_elements_p, _lower_count, platform="cpu")
mlir.register_lowering(count_elements_p, mlir.lower_fun(_count_reference, multiple_results=True))
