"""The primitives ``compact_elements`` and ``count_elements``: only the connected elements that aren't zero.

The compact form has a fixed capacity, so that it works under :func:`jax.jit`, and a cursor that says where to go on. It
is about all samples of a device: :func:`jax.shard_map` gives each device its own.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi.connected import connected_elements_p, matrix_element_tangents
from ferroket.ffi.family import Attribute, Attributes, Family
from ferroket.ffi.primitives import make_primitive, on_one_device, per_sample, without_tangents


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
    xp, mels, sample, cursor = compact_elements_p(
        x,
        *tables,
        cursor,
        family=family,
        n_conn=n_conn,
        capacity=capacity,
        off_diagonal_only=off_diagonal_only,
        attributes=attributes,
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
    params = {"n_conn": n_conn, "off_diagonal_only": off_diagonal_only, "attributes": attributes}
    (counts,) = count_elements_p(x, *tables, family=family, **params)
    return counts


# Types


def _compact_types(x: Any, *tables: Any, family: Family, capacity: int, **_: Any) -> list[Any]:
    int32 = np.dtype(np.int32)
    mels = on_one_device(x, (capacity,), family.result_dtype(tables))
    sample, cursor = on_one_device(x, (capacity,), int32), on_one_device(x, (2,), int32)
    return [on_one_device(x, (capacity, x.shape[-1]), x.dtype), mels, sample, cursor]


def _count_types(x: Any, *_: Any, **__: Any) -> list[Any]:
    return [per_sample(x, (), np.dtype(np.int32))]


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
    tangents_out = without_tangents(results)
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
    return results, without_tangents(results)


compact_elements_p = make_primitive(
    "compact_elements",
    _compact_types,
    target=lambda family, **_: family.handler("_compact"),
    reference=_compact_reference,
    refuses_shards=True,
    jvp=_compact_jvp,
)
count_elements_p = make_primitive(
    "count_elements",
    _count_types,
    target=lambda family, **_: family.handler("_count"),
    reference=_count_reference,
    any_batch=True,
    dims_along_batch=lambda **_: [""],
    jvp=_count_jvp,
)
