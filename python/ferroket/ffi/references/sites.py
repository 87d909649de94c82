"""The local states of sites, in pure JAX."""

from typing import Any

import jax
import jax.numpy as jnp

Numbers = tuple[float, ...]


def of_sites(numbers: tuple[Any, ...], kind: jax.Array) -> jax.Array:
    """A number of each site, given that of each kind; one for all sites if there is one kind."""
    by_kind = jnp.asarray(numbers)
    return by_kind[kind] if kind.size else by_kind[0]


def local_indices(
    x: jax.Array, kind: jax.Array, *, starts: Numbers, steps: Numbers, sizes: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """The local indices of samples.

    Returns:
        The indices as int32, of the shape of ``x``, and whether all values of a sample are local states. Values
        that aren't have some index in range.
    """
    size = of_sites(sizes, kind).astype(jnp.int32)
    index = jnp.round((x.real.astype(float) - of_sites(starts, kind)) / of_sites(steps, kind)).astype(jnp.int32)
    index = jnp.clip(index, 0, size - 1)
    valid = (local_values(index, kind, x.dtype, starts=starts, steps=steps) == x).all(axis=-1)
    return index, valid


def local_values(index: jax.Array, kind: jax.Array, dtype: Any, *, starts: Numbers, steps: Numbers) -> jax.Array:
    """The values of local indices; ``kind`` are the kinds of their sites."""
    return (of_sites(starts, kind) + index * of_sites(steps, kind)).astype(dtype)


def first_local_states(kind: jax.Array, *_: jax.Array, starts: Numbers, **__: Any) -> jax.Array:
    """The first local state of each site; one for all sites if there is one kind."""
    return of_sites(starts, kind)


def guarded(mels: jax.Array, valid: jax.Array) -> jax.Array:
    """Matrix elements, NaN where a sample isn't valid: no error can be raised there. Integers have no NaN."""
    if not jnp.issubdtype(mels.dtype, jnp.inexact):
        return mels
    return jnp.where(valid[..., None], mels, jnp.nan)


def fitted(values: jax.Array, n_conn: int, fill: Any) -> jax.Array:
    """An array of elements, cut or filled up to the length K of its last dimension."""
    values = values[..., :n_conn]
    missing = n_conn - values.shape[-1]
    if not missing:
        return values
    return jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)], constant_values=fill)
