"""Sums of non-branching terms on sites with two local states, in pure JAX.

Term t maps σ to σ XOR flip with the value ``values[t] * (-1)^popcount(σ & sign[t])`` if ``σ & mask[t]`` equals
``pattern[t]``; otherwise it is inactive. Bit ``i % 32`` of word ``i // 32`` is the local index of site i. The terms
``first[g]:first[g + 1]`` have the flip of group g, and the sum of the active ones is one connected element.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi.references.sites import Numbers, fitted, guarded, local_indices, local_values
from ferroket.ffi.varying import align

Sums = tuple[jax.Array, jax.Array]

_WORD = 32
_SCRATCH = 1 << 22
"""So many terms, counted once a sample, are evaluated at once."""


def _packed(indices: jax.Array, n_words: int) -> jax.Array:
    """Local indices, ``(..., N)``, as bits, ``(..., W)``."""
    *batch, n_sites = indices.shape
    bits = jnp.pad(indices.astype(jnp.uint32), [(0, 0)] * len(batch) + [(0, n_words * _WORD - n_sites)])
    shifted = bits.reshape(*batch, n_words, _WORD) << np.arange(_WORD, dtype=np.uint32)
    return shifted.sum(axis=-1, dtype=jnp.uint32)


def _unpacked(words: jax.Array, n_sites: int) -> jax.Array:
    """Bits, ``(..., W)``, as local indices, ``(..., N)``."""
    bits = (words[..., None] >> np.arange(_WORD, dtype=np.uint32)) & np.uint32(1)
    return bits.reshape(*words.shape[:-1], words.shape[-1] * _WORD)[..., :n_sites].astype(jnp.int32)


def _groups(
    words: jax.Array, first: jax.Array, mask: jax.Array, pattern: jax.Array, sign: jax.Array, values: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The sum of the active terms of each group, and whether there are any: ``(..., G)`` for words ``(..., W)``."""
    *batch, n_words = words.shape
    n_terms, n_groups = values.size, first.size - 1
    group = jnp.repeat(jnp.arange(n_groups, dtype=jnp.int32), jnp.diff(first), total_repeat_length=n_terms)
    # The samples come last in here: then the sum over the terms of a group adds rows.
    words = jnp.moveaxis(words, -1, 0)

    def of_terms(bits: jax.Array) -> jax.Array:
        return bits.reshape(-1, *(1,) * len(batch))

    def add(sums: Sums, terms: tuple[jax.Array, ...]) -> tuple[Sums, None]:
        mask, pattern, sign, values, group = terms
        active = jnp.ones((group.size, *batch), bool)
        parity = jnp.zeros((group.size, *batch), jnp.uint32)
        for w in range(n_words):
            active &= (words[w] & of_terms(mask[:, w])) == of_terms(pattern[:, w])
            parity ^= jax.lax.population_count(words[w] & of_terms(sign[:, w]))
        value = of_terms(values)
        value = jnp.where(active, jnp.where(parity & 1 == 1, -value, value), jnp.zeros_like(value))
        total, any_active = sums
        total = total.at[group].add(value, indices_are_sorted=True)
        return (total, any_active.at[group].max(active, indices_are_sorted=True)), None

    shape = (n_groups, *batch)
    terms = [mask, pattern, sign, values, group]
    total, any_active, words, *terms = align([jnp.zeros(shape, values.dtype), jnp.zeros(shape, bool), words, *terms])
    sums = total, any_active
    chunk = max(_SCRATCH // max(int(np.prod(batch)), 1), 1)
    n_chunks = n_terms // chunk
    if n_chunks:
        # Nothing is kept for the derivative but the tables: it takes as little memory as the function.
        chunks = [array[: n_chunks * chunk].reshape(n_chunks, chunk, *array.shape[1:]) for array in terms]
        sums, _ = jax.lax.scan(jax.checkpoint(add, prevent_cse=False), sums, tuple(chunks))
    if n_terms > n_chunks * chunk:
        sums, _ = jax.checkpoint(add, prevent_cse=False)(sums, tuple(array[n_chunks * chunk :] for array in terms))
    total, any_active = sums
    return jnp.moveaxis(total, 0, -1), jnp.moveaxis(any_active, 0, -1)


def elements(
    x: jax.Array,
    kind: jax.Array,
    flip: jax.Array,
    first: jax.Array,
    mask: jax.Array,
    pattern: jax.Array,
    sign: jax.Array,
    values: jax.Array,
    *,
    n_conn: int,
    diagonal: bool,
    unconditional: bool,
    starts: Numbers,
    steps: Numbers,
    sizes: tuple[int, ...],
) -> tuple[jax.Array, jax.Array]:
    """The matrix elements of samples: those of active groups in order, then zeros.

    ``n_conn`` is K; with ``diagonal``, group 0 is the diagonal, which is always active; with ``unconditional``, all
    groups are active for all samples.

    Returns:
        The matrix elements and the groups they belong to, -1 for padding, of shape ``(..., K)``. The matrix elements of
        a sample are NaN if it isn't valid or has more active groups than K.
    """
    indices, valid = local_indices(x, kind, starts=starts, steps=steps, sizes=sizes)
    sums, active = _groups(_packed(indices, flip.shape[1]), first, mask, pattern, sign, values)
    n_groups = flip.shape[0]
    group = jax.lax.broadcasted_iota(jnp.int32, active.shape, active.ndim - 1)
    if unconditional:
        mels = sums
        valid &= n_groups <= n_conn
    else:
        active |= diagonal & (group == 0)
        valid &= active.sum(axis=-1, dtype=jnp.int32) <= n_conn
        # Sorts the groups by inactivity, and otherwise leaves them as they are.
        order = fitted(jax.lax.sort(jnp.where(active, group, group + n_groups)), n_conn, 2 * n_groups)
        group = jnp.where(order < n_groups, order, -1)
        sums = jnp.take_along_axis(sums, group % n_groups, axis=-1)
        mels = jnp.where(group < 0, jnp.zeros_like(sums), sums)
    return guarded(fitted(mels, n_conn, 0), valid), fitted(group, n_conn, -1)


def configurations(
    x: jax.Array,
    group: jax.Array,
    kind: jax.Array,
    flip: jax.Array,
    *_: jax.Array,
    starts: Numbers,
    steps: Numbers,
    sizes: tuple[int, ...],
    **__: Any,
) -> jax.Array:
    """The samples with the sites of a group flipped, or as they are where ``group`` is -1."""
    indices, _valid = local_indices(x, kind, starts=starts, steps=steps, sizes=sizes)
    flips = jnp.where(group[..., None] < 0, np.uint32(0), flip[group])
    moved = _unpacked(_packed(indices, flip.shape[1]) ^ flips, x.shape[-1])
    return local_values(moved, kind, x.dtype, starts=starts, steps=steps)
