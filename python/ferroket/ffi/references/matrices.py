"""Sums of local matrices on sites with any number of local states, in pure JAX.

Term t acts with the matrix ``table[t]`` on the sites ``sites[first_site[t]:first_site[t + 1]]``, the most significant
first: their local indices are the digits of the row's number. The rows of matrix m start at ``first_row[m]``, and row r
has the ``columns`` and ``values`` from ``first_entry[r]`` to ``first_entry[r + 1]``, the diagonal entry first if there
is one. The diagonal entries of all terms are one connected element, each other entry is one by itself.
"""

from typing import Any

import jax
import jax.numpy as jnp

from ferroket.ffi.references.sites import Numbers, fitted, guarded, local_indices, local_values, of_sites

Moves = tuple[jax.Array, jax.Array]


def _rows(indices: jax.Array, first_site: jax.Array, sites: jax.Array, size: jax.Array, support: int) -> jax.Array:
    """The row of each term, ``(..., T)``, for local indices ``(..., N)``."""
    size = jnp.broadcast_to(size, indices.shape[-1:])
    row = jnp.zeros((*indices.shape[:-1], first_site.size - 1), jnp.int32)
    for position in range(support):
        place = first_site[:-1] + position
        site = sites[jnp.minimum(place, sites.size - 1)]
        row = jnp.where(place < first_site[1:], row * size[site] + indices[..., site], row)
    return row


def _terms_of_elements(until: jax.Array, n_elements: int) -> jax.Array:
    """The term of each element, ``(..., K)``, given how many elements there are up to and with each term, ``(..., T)``.

    It is the number of terms that end before the element, found by bisection.
    """
    *batch, n_terms = until.shape
    element = jnp.arange(n_elements, dtype=jnp.int32)
    term = jnp.zeros((*batch, n_elements), jnp.int32)
    for step in (1 << bit for bit in reversed(range(n_terms.bit_length()))):
        ahead = jnp.minimum(term + step, n_terms)
        ends_before = jnp.take_along_axis(until, ahead - 1, axis=-1) <= element
        term = jnp.where(ends_before & (term + step <= n_terms), ahead, term)
    return term


def elements(
    x: jax.Array,
    kind: jax.Array,
    first_site: jax.Array,
    sites: jax.Array,
    table: jax.Array,
    first_row: jax.Array,
    first_entry: jax.Array,
    columns: jax.Array,
    values: jax.Array,
    *,
    n_conn: int,
    diagonal: bool,
    support: int,
    starts: Numbers,
    steps: Numbers,
    sizes: tuple[int, ...],
) -> tuple[jax.Array, Moves]:
    """The matrix elements of samples: the diagonal if it is wanted, then entries by term and column, then zeros.

    ``n_conn`` is K, and ``support`` the largest number of sites of a term.

    Returns:
        The matrix elements and what they do, of shape ``(..., K)``: a term, -1 for the diagonal and for padding, and a
        column of its matrix. The matrix elements of a sample are NaN if it isn't valid or has more of them than K.
    """
    indices, valid = local_indices(x, kind, starts=starts, steps=steps, sizes=sizes)
    batch = indices.shape[:-1]
    nothing = jnp.full((*batch, n_conn), -1, jnp.int32), jnp.zeros((*batch, n_conn), jnp.int32)
    if not columns.size:
        return guarded(jnp.zeros((*batch, n_conn), values.dtype), valid), nothing
    row = _rows(indices, first_site, sites, of_sites(sizes, kind).astype(jnp.int32), support)
    begin, end = (first_entry[first_row[table] + row + i] for i in range(2))
    last = columns.size - 1
    on_diagonal = (begin < end) & (columns[jnp.minimum(begin, last)] == row)
    others = end - begin - on_diagonal
    until = jnp.cumsum(others, axis=-1, dtype=jnp.int32)
    count = until[..., -1:]

    n_others = max(n_conn - diagonal, 0)
    number = jnp.arange(n_others, dtype=jnp.int32)
    active = number < count
    term = jnp.minimum(_terms_of_elements(until, n_others), table.size - 1)
    # The entries of a term's row follow each other, as its elements do.
    offset = jnp.take_along_axis(end - until, term, axis=-1)
    entry = jnp.clip(offset + number, 0, last)
    mels = jnp.where(active, values[entry], jnp.zeros_like(values, shape=()))
    term, column = jnp.where(active, term, -1), jnp.where(active, columns[entry], 0)
    if diagonal:
        sums = jnp.where(on_diagonal, values[jnp.minimum(begin, last)], jnp.zeros_like(values, shape=()))
        mels = jnp.concatenate([sums.sum(axis=-1, keepdims=True, dtype=values.dtype), mels], axis=-1)
        ahead = [(0, 0)] * len(batch) + [(1, 0)]
        term, column = jnp.pad(term, ahead, constant_values=-1), jnp.pad(column, ahead)
    valid &= count[..., 0] + diagonal <= n_conn
    return guarded(fitted(mels, n_conn, 0), valid), (fitted(term, n_conn, -1), fitted(column, n_conn, 0))


def configurations(
    x: jax.Array,
    moves: Moves,
    kind: jax.Array,
    first_site: jax.Array,
    sites: jax.Array,
    *_: jax.Array,
    support: int,
    starts: Numbers,
    steps: Numbers,
    sizes: tuple[int, ...],
    **__: Any,
) -> jax.Array:
    """The samples with the sites of a term set to a column of its matrix, or as they are where the term is -1."""
    term, column = moves
    states = {"starts": starts, "steps": steps}
    indices, _valid = local_indices(x, kind, sizes=sizes, **states)
    moved = jnp.broadcast_to(local_values(indices, kind, x.dtype, **states), (*term.shape, x.shape[-1]))
    size = jnp.broadcast_to(of_sites(sizes, kind).astype(jnp.int32), x.shape[-1:])
    every_site = jnp.arange(x.shape[-1])
    begin, end = first_site[jnp.maximum(term, 0)], first_site[term + 1]
    for position in range(1, support + 1):
        place = end - position
        site = sites[jnp.clip(place, 0, sites.size - 1)]
        column, digit = jnp.divmod(column, size[site])
        value = local_values(digit, kind[site] if kind.size else kind, x.dtype, **states)
        here = (every_site == site[..., None]) & ((term >= 0) & (place >= begin))[..., None]
        moved = jnp.where(here, value[..., None], moved)
    return moved
