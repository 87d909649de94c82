"""Elements whose places depend on the configuration: the rows of occupied orbitals, say."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket._compat.sharding import evaluated_eagerly
from ferroket.network.numbers import Expression
from ferroket.network.program import Contract, Put, Rows, Table, Take
from ferroket.network.reader import Constant, Operand, Reader, UnreadableError, Value
from ferroket.network.rules.complex_numbers import padded
from ferroket.reasons import ReasonKind

_MOST = 1 << 22
"""More places aren't looked at."""

_FEW = 3 / 4
"""If a larger part of all rows is taken, all are computed: that shares their weights between all configurations."""

_MODES = jax.lax.GatherScatterMode


def gather(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Elements from places that are values along one axis."""
    operand, numbers = reader.as_value(inputs[0]), eqn.params["dimension_numbers"]
    aval = eqn.outvars[0].aval
    has_limits = eqn.params["mode"] == _MODES.FILL_OR_DROP
    filled = eqn.params["fill_value"]
    if has_limits and not (jnp.issubdtype(aval.dtype, jnp.inexact) and (filled is None or np.isnan(filled))):
        raise UnreadableError("it takes elements at places that depend on the configuration, and others out of bounds")
    index = _Index(reader, inputs[1], numbers.start_index_map)
    choices = operand.shape[index.axis] - eqn.params["slice_sizes"][index.axis] + 1
    index.check(choices, aval.size * len(operand.parts))
    if (rows := _chosen_rows(reader, eqn, operand, index, choices, has_limits=has_limits)) is not None:
        return [rows]
    # Those of an index are the elements along all axes but these.
    of_rows = [axis for axis in range(len(aval.shape)) if axis not in numbers.offset_dims]
    order = [*of_rows, *numbers.offset_dims]
    tables = []
    for places in reader.places(operand):

        def taken(indices: Any, places: Any = places) -> Any:
            return _taken(eqn, places, indices)

        tables.append(index.table(choices, taken, order))
    distinct, table = _distinct(np.concatenate(tables, axis=-1))
    out = reader.memory.new(len(table), distinct.shape[-1])
    reader.add(Take(out, index.places, table, distinct, has_limits))
    shape = [aval.shape[axis] for axis in order]
    parts = np.split(out, len(operand.parts), axis=1)
    return [reader.value([part.reshape(shape).transpose(np.argsort(order)) for part in parts])]


def _chosen_rows(
    reader: Reader, eqn: Any, operand: Value, index: "_Index", choices: int, *, has_limits: bool
) -> Value | None:
    """Rows of parameters, or of what a product with such gives, with others added to it; None of other elements."""
    found = [_product_and_parameters(reader, part) for part in operand.parts]
    if None in found or len({(id(one[0]), len(one[2])) for one in found if one is not None}) > 1:
        return None
    of_parts = [one for one in found if one is not None]
    product = of_parts[0][0]
    if product is not None and len(index.places) > _FEW * choices:
        return None
    numbers, aval = eqn.params["dimension_numbers"], eqn.outvars[0].aval
    of_rows = [axis for axis in range(len(aval.shape)) if axis not in numbers.offset_dims]
    order = [*of_rows, *numbers.offset_dims]
    elements = np.arange(operand.size).reshape(operand.shape)

    def taken(indices: Any) -> Any:
        return _taken(eqn, elements, indices)

    distinct, _ = _distinct(index.table(choices, taken, order))
    if len(distinct) > 1:
        return None
    which = distinct[0]  # (choices, columns)
    n_columns = which.shape[1]
    bias = []
    for tables in zip(*(parameters for *_, parameters in of_parts), strict=True):
        of_bias = []
        for part, (table, where) in enumerate(tables):
            is_of = np.repeat(np.arange(len(of_parts)) == part, n_columns)
            number = np.tile(np.broadcast_to(where, operand.size)[which], len(of_parts))
            of_bias.append((table, np.broadcast_to(is_of, number.shape), number))
        bias.append(of_bias)
    weights, places = None, np.zeros(0, np.int64)
    if product is not None:
        joined = np.concatenate([outputs[which] - product.out.flat[0] for _, outputs, _ in of_parts], axis=1)
        places = product.places[0, 0]
        if product.bias:
            bias.append([(table, is_of[joined], number[joined]) for table, is_of, number in product.bias])
        own = product.weights

        def prepare(value: Any) -> Any:
            return jnp.moveaxis(own.prepare(value)[0][:, joined], 0, 1)

        weights = Table(own.value, prepare, joined.size * len(places))
    out = reader.memory.new(len(index.places), n_columns * len(of_parts))
    reader.add(Rows(out, index.places, places, weights, bias, choices, has_limits))
    shape = [aval.shape[axis] for axis in order]
    parts = np.split(out, len(of_parts), axis=1)
    return reader.value([part.reshape(shape).transpose(np.argsort(order)) for part in parts])


def _product_and_parameters(
    reader: Reader, part: Expression
) -> tuple[Contract | None, np.ndarray, list[tuple[Table, np.ndarray]]] | None:
    """A product with parameters, if there is one, where its outputs are, and tables that are added to it.

    None of what isn't made of these.
    """
    parameters = []
    while part.name == "add":
        tables = [arg for arg in part.args if arg.name == "table"]
        if len(tables) != 1:
            return None
        parameters.append(tables[0].data)
        part = next(arg for arg in part.args if arg is not tables[0])
    if part.name == "table":
        return None, np.zeros(0, np.int64), [*parameters, part.data]
    if part.name != "elements" or not part.data.size:
        return None
    start = np.searchsorted(reader.memory.starts, part.data, "right") - 1
    product = reader.contracts.get(reader.memory.starts[start[0]]) if (start == start[0]).all() else None
    if product is None or product.out.shape[:2] != (1, 1):
        return None
    return product, part.data, parameters


def scatter_add(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Elements that are added to others, at places that are values along one axis."""
    operand, updates, numbers = inputs[0], reader.as_value(inputs[2]), eqn.params["dimension_numbers"]
    aval = eqn.outvars[0].aval
    index = _Index(reader, inputs[1], numbers.scatter_dims_to_operand_dims)
    # How far windows go along the axis: one element, unless it is one of theirs.
    batching = getattr(numbers, "operand_batching_dims", ())
    window = [axis for axis in range(len(aval.shape)) if axis not in (*numbers.inserted_window_dims, *batching)]
    of_window = {axis: updates.shape[place] for axis, place in zip(window, numbers.update_window_dims, strict=True)}
    choices = aval.shape[index.axis] - of_window.get(index.axis, 1) + 1
    index.check(choices, updates.size)
    of_rows = [axis for axis in range(len(updates.shape)) if axis not in numbers.update_window_dims]
    order = [*of_rows, *numbers.update_window_dims]

    def targets(indices: Any) -> Any:
        zeros = jnp.zeros(aval.shape)
        back = jax.linear_transpose(
            lambda updates: eqn.primitive.bind(zeros, indices, updates, **eqn.params),
            jax.ShapeDtypeStruct(updates.shape, zeros.dtype),
        )
        # -1 is what is left out, whatever the configuration is.
        return back(1.0 + jnp.arange(aval.size).reshape(aval.shape))[0] - 1

    distinct, table = _distinct(index.table(choices, targets, order))
    has_limits = eqn.params["mode"] != _MODES.CLIP
    sums = []
    for places in reader.places(updates):
        out = reader.memory.new(aval.size)
        reader.add(Put(out, index.places, table, distinct, places.transpose(order).reshape(len(table), -1), has_limits))
        sums.append(out.reshape(aval.shape))
    value = reader.value(sums)
    constant = None if isinstance(operand, Value) else reader.constant(operand)
    if constant is not None and not constant.any():
        return [value]
    e, more = reader.expressions, reader.parts_of(operand, aval.shape)
    count = max(len(value.parts), len(more))
    both = zip(padded(e, value.parts, count), padded(e, more, count), strict=True)
    return [Value(aval.shape, tuple(e.of("add", a, b) for a, b in both))]


def sort(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """A permutation in order, and what is sorted with it: of others the kernels know no order."""
    keys, *others = inputs
    axis = eqn.params["dimension"]
    if not isinstance(keys, Value) or keys not in reader.permutations or axis != len(keys.shape) - 1:
        raise UnreadableError("the kernels have no 'sort'")
    (index,) = reader.places(keys)
    rows, n = index.reshape(-1, keys.shape[-1]), keys.shape[-1]
    sorted_keys = Constant(np.broadcast_to(np.arange(n, dtype=eqn.outvars[0].aval.dtype), keys.shape))
    results = [reader.as_value(sorted_keys)]
    for v in others:
        parts = []
        for places in reader.places(reader.as_value(v)):
            out = reader.memory.new(index.size)
            targets = (np.arange(len(rows))[:, None] * n + np.arange(n))[..., None]
            table = np.repeat(np.arange(len(rows)), n)
            reader.add(Put(out, rows.ravel(), table, targets, places.reshape(-1, 1), has_limits=False))
            parts.append(out.reshape(keys.shape))
        results.append(reader.value(parts))
    return results


class _Index:
    """Indices of which those along one axis depend on the configuration.

    Attributes:
        axis: the axis.
        places: where they are, ``(R,)``.
    """

    def __init__(self, reader: Reader, indices: Value, axes: Sequence[int]) -> None:
        (places,) = reader.places(indices)
        self._known = np.vectorize(lambda place: reader.numbers_at.get(place, np.nan), otypes=[float])(places)
        is_open = np.isnan(self._known).any(axis=tuple(range(places.ndim - 1)))
        if is_open.sum() != 1:
            raise UnreadableError("it has elements whose places along several axes depend on the configuration")
        self._column = int(np.flatnonzero(is_open)[0])
        self.axis = axes[self._column]
        self.places = places[..., self._column].ravel()

    def check(self, choices: int, size: int) -> None:
        """Raises an :class:`UnreadableError` if so many elements have too many places each."""
        if choices * size > _MOST:
            text = f"{size} of its elements may be at {choices} places each: too many to be listed"
            raise UnreadableError(text, ReasonKind.TOO_LARGE)

    def table(self, choices: int, evaluate: Callable[[Any], Any], order: Sequence[int]) -> np.ndarray:
        """What a function of indices gives if all are one choice: ``(R, choices, ·)``, with its axes in this order."""
        found = []
        with evaluated_eagerly():
            for choice in range(choices):
                indices = self._known.copy()
                indices[..., self._column] = choice
                found.append(np.asarray(evaluate(jnp.asarray(indices, jnp.int32)), np.int64).transpose(order))
        if any((places < 0).any() for places in found):
            raise UnreadableError("it has elements that are out of bounds, whatever the configuration is")
        return np.stack(found).reshape(choices, len(self.places), -1).swapaxes(0, 1)


def _taken(eqn: Any, places: np.ndarray, indices: Any) -> Any:
    """What a gather takes of places; -1 out of bounds."""
    return eqn.primitive.bind(jnp.asarray(places, jnp.int32), indices, **{**eqn.params, "fill_value": -1})


def _distinct(tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tables that differ, and which one each of some is."""
    distinct, which = np.unique(tables.reshape(len(tables), -1), axis=0, return_inverse=True)
    return distinct.reshape(-1, *tables.shape[1:]), which.ravel()
