"""What gives elements other places."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket._compat.sharding import evaluated_eagerly
from ferroket.ansatz import dependence
from ferroket.network.program import Places
from ferroket.network.reader import Operand, Reader, Rule, UnreadableError, Value
from ferroket.network.rules import indexing
from ferroket.network.rules.complex_numbers import padded

_SAME = (
    "copy",
    "copy_p",
    "reshard",
    "pvary",
    "pcast",
    "sharding_constraint",
    "stop_gradient",
    "optimization_barrier",
)

ORDERED = ("reshape", "squeeze", "expand_dims")

MOVING = ("transpose", "broadcast_in_dim", "slice", "concatenate", "split", "rev", "pad", "stack", "unstack", "tile")


def _same(reader: Reader, _: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    return [reader.as_value(v) for v in inputs]


def _reshape(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    value = inputs[0]
    if (order := eqn.params.get("dimensions")) is not None and eqn.primitive.name == "reshape":
        value = reader.value([places.transpose(order) for places in reader.places(value)])
    return [Value(eqn.outvars[0].aval.shape, value.parts)]


def _move(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Primitives that give elements other places: their rule for labels is that for places."""
    operands = [reader.places(reader.as_value(v)) for v in inputs]
    n_parts = max(map(len, operands))
    made: list[list[Places]] = []
    for part in range(n_parts):
        of_part = [
            places[part] if part < len(places) else np.broadcast_to(reader.zero(1), places[0].shape)
            for places in operands
        ]
        made.append([np.asarray(places, np.int64) for places in dependence.RULES[eqn.primitive.name](eqn, of_part)])
    return [reader.value(parts) for parts in zip(*made, strict=True)]


def _gather(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    if isinstance(inputs[1], Value):
        return indexing.gather(reader, eqn, inputs)
    indices = reader.constant(inputs[1])
    if indices is None or not isinstance(inputs[0], Value):
        raise UnreadableError("it takes elements whose places depend on parameters")
    moved = []
    for places in reader.places(inputs[0]):
        with evaluated_eagerly():
            # A value that is filled in, where a place is out of bounds, would be none.
            params = {**eqn.params, "fill_value": -1}
            moved.append(
                np.asarray(eqn.primitive.bind(jnp.asarray(places, jnp.int32), jnp.asarray(indices), **params), np.int64)
            )
    if any((places < 0).any() for places in moved):
        raise UnreadableError("it takes elements out of bounds")
    return [reader.value(moved)]


def _scatter_add(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Elements that are added to others, at places that are known: what a gather's backward pass consists of."""
    operand, indices, updates = inputs
    if isinstance(indices, Value):
        return indexing.scatter_add(reader, eqn, inputs)
    places = reader.constant(indices)
    if places is None:
        raise UnreadableError("it adds to elements whose places depend on parameters")
    aval, e = eqn.outvars[0].aval, reader.expressions
    with evaluated_eagerly():
        # Where each update goes, from 1 on; 0 is out of bounds.
        zeros = jnp.zeros(aval.shape)

        def put(updates: jax.Array) -> jax.Array:
            result: jax.Array = eqn.primitive.bind(zeros, jnp.asarray(places), updates, **eqn.params)
            return result

        back = jax.linear_transpose(put, jax.ShapeDtypeStruct(eqn.invars[2].aval.shape, zeros.dtype))
        (where,) = back(1.0 + jnp.arange(aval.size).reshape(aval.shape))
    to = np.asarray(where, np.int64).ravel() - 1
    is_inside = to >= 0
    order = np.argsort(to[is_inside], kind="stable")
    counts = np.bincount(to[is_inside], minlength=aval.size)
    constant = None if isinstance(operand, Value) else reader.constant(operand)
    sums = []
    for part in reader.places(reader.as_value(updates)):
        found = part.ravel()[is_inside][order]
        firsts = np.cumsum(counts) - counts
        total = np.broadcast_to(reader.zero(1), (aval.size,)).copy()
        for count in np.unique(counts[counts > 0]):
            here = np.flatnonzero(counts == count)
            rows = found[firsts[here][:, None] + np.arange(count)]
            total[here] = rows[:, 0] if count == 1 else reader.reduce(rows, "sum")
        sums.append(e.elements(total))
    if constant is not None and not constant.any():
        return [Value(aval.shape, tuple(sums))]
    more = reader.parts_of(operand, aval.shape)
    count = max(len(sums), len(more))
    both = zip(padded(e, tuple(sums), count), padded(e, more, count), strict=True)
    return [Value(aval.shape, tuple(e.of("add", a, b) for a, b in both))]


RULES: dict[str, Rule] = {
    **dict.fromkeys(_SAME, _same),
    **dict.fromkeys(ORDERED, _reshape),
    **dict.fromkeys(MOVING, _move),
    "gather": _gather,
    "scatter-add": _scatter_add,
    "sort": indexing.sort,
}
