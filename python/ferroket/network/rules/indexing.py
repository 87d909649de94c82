"""Elements whose places depend on the configuration: the rows of occupied orbitals, say."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket._compat.sharding import evaluated_eagerly
from ferroket.network.program import Places, Put, Take
from ferroket.network.reader import Operand, Reader, UnreadableError, Value
from ferroket.network.rules.complex_numbers import padded

_MOST = 1 << 22
"""More places aren't looked at."""


def gather(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Elements from places that are values: along one axis, and whole along all others."""
    operand, (index,) = reader.as_value(inputs[0]), reader.places(inputs[1])
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    (axis, *others), shape = numbers.start_index_map, eqn.outvars[0].aval.shape
    if others or eqn.params["fill_value"] is not None:
        raise UnreadableError("it takes elements whose places along several axes depend on the configuration")
    choices = operand.shape[axis] - sizes[axis] + 1
    if math.prod(shape) * choices * len(operand.parts) > _MOST:
        raise UnreadableError(f"it takes elements from one of {choices} places each: too many to be listed")
    of_rows = [place for place in range(len(shape)) if place not in numbers.offset_dims]
    tables = []
    for places in reader.places(operand):
        of_choices = [_taken(eqn, places, index.shape, choice) for choice in range(choices)]
        taken = np.stack(of_choices).transpose(*(1 + place for place in of_rows), 0, *(1 + d for d in numbers.offset_dims))
        tables.append(taken.reshape(index.size, choices, -1))
    joined = np.concatenate(tables, axis=-1)
    distinct, table = np.unique(joined.reshape(len(joined), -1), axis=0, return_inverse=True)
    out = reader.memory.new(index.size, joined.shape[-1])
    has_limits = eqn.params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP
    if has_limits and not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact):
        raise UnreadableError("it takes integers, which are others out of bounds")
    reader.add(Take(out, index.ravel(), table.ravel(), distinct.reshape(-1, *joined.shape[1:]), has_limits))
    # Rows first, then what they consist of.
    order = [*of_rows, *numbers.offset_dims]
    results = []
    for part in np.split(out, len(operand.parts), axis=1):
        full = part.reshape([shape[place] for place in order])
        results.append(full.transpose(np.argsort(order)))
    return [reader.value(results)]


def _taken(eqn: Any, places: Places, shape: tuple[int, ...], choice: int) -> Places:
    """Where the elements are that a gather takes, if all indices are this one."""
    with evaluated_eagerly():
        indices = jnp.full(shape, choice, eqn.invars[1].aval.dtype)
        found = eqn.primitive.bind(jnp.asarray(places, jnp.int32), indices, **eqn.params)
    return np.asarray(found, np.int64)


def scatter_add(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Elements that are added to others, at places that are values: along one axis, and whole along all others."""
    operand, (index,), updates = inputs[0], reader.places(inputs[1]), reader.as_value(inputs[2])
    numbers, aval = eqn.params["dimension_numbers"], eqn.outvars[0].aval
    (axis, *others) = numbers.scatter_dims_to_operand_dims
    of_operand = tuple(getattr(numbers, "operand_batching_dims", ()))
    of_index = tuple(getattr(numbers, "scatter_indices_batching_dims", ()))
    kept = [place for place in range(len(aval.shape)) if place not in (axis, *of_operand)]
    window = [place for place in range(len(aval.shape)) if place not in (*numbers.inserted_window_dims, *of_operand)]
    whole = [updates.shape[place] for place in numbers.update_window_dims]
    is_dropping = eqn.params["mode"] in (
        jax.lax.GatherScatterMode.FILL_OR_DROP,
        jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    if others or window != kept or whole != [aval.shape[place] for place in kept] or not is_dropping:
        raise UnreadableError("it adds to elements whose places depend on the configuration along several axes")
    # Groups, and what is added in each: of indices and of updates.
    free = [place for place in range(index.ndim - 1) if place not in of_index]
    rows = [place for place in range(len(updates.shape)) if place not in numbers.update_window_dims]
    groups, size = math.prod(aval.shape[place] for place in of_operand), aval.shape[axis]
    by_group = index[..., 0].transpose(*of_index, *free).reshape(groups, -1)
    order = [*(rows[place] for place in of_index), *(rows[place] for place in free), *numbers.update_window_dims]
    columns = math.prod(whole)
    sums = []
    for places in reader.places(updates):
        out = reader.memory.new(groups, size, columns)
        reader.add(Put(out, by_group, places.transpose(order).reshape(*by_group.shape, columns)))
        at = [*of_operand, axis, *kept]
        sums.append(out.reshape([aval.shape[place] for place in at]).transpose(np.argsort(at)))
    value = reader.value(sums)
    constant = None if isinstance(operand, Value) else reader.constant(operand)
    if constant is not None and not constant.any():
        return [value]
    e, more = reader.expressions, reader.parts_of(operand, aval.shape)
    count = max(len(value.parts), len(more))
    both = zip(padded(e, value.parts, count), padded(e, more, count), strict=True)
    return [Value(aval.shape, tuple(e.of("add", a, b) for a, b in both))]
