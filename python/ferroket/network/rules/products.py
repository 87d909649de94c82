"""Products that are summed: of values with parameters, and of values with each other."""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ferroket.network.program import Places
from ferroket.network.reader import Operand, Reader, Rule, UnreadableError, Value
from ferroket.network.rules.fourier import contract_or_transform
from ferroket.network.rules.softmax import normalized, without_normalization


def _dot_general(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    (left_sum, right_sum), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    shape = eqn.outvars[0].aval.shape
    sides = [(inputs[0], left_sum, left_batch), (inputs[1], right_sum, right_batch)]
    if all(isinstance(v, Value) for v, *_ in sides):
        factors = []
        for which, (v, summed, batch) in enumerate(sides):
            if (found := without_normalization(reader, v, summed)) is not None:
                weights, factor = found
                sides[which] = weights, summed, batch
                of_rows = _as_rows(factor, summed, batch)  # (batch, others, 1)
                factors.append(of_rows if which == 0 else of_rows.swapaxes(1, 2))
        left, right = ([_as_rows(places, summed, batch) for places in reader.places(v)] for v, summed, batch in sides)
        products = _pairs(reader, left, right)
        result = reader.value([part.reshape(shape) for part in products])
        for factor in factors:
            result = normalized(reader, result, np.broadcast_to(factor, products[0].shape).reshape(shape))
        return [result]
    which = 0 if isinstance(inputs[0], Value) else 1
    value, summed, batch = sides[which]
    weights, of_weights, batch_of_weights = sides[1 - which]
    assert isinstance(value, Value)
    assert not isinstance(weights, Value)
    rows = [_as_rows(places, summed, batch) for places in reader.places(value)]
    dims = weights.aval.shape
    free = [axis for axis in range(len(dims)) if axis not in (*of_weights, *batch_of_weights)]
    groups, depth = rows[0].shape[0], rows[0].shape[2]
    width = math.prod(dims[axis] for axis in free)

    def prepare(w: Any) -> Any:
        return jnp.asarray(w).transpose(*batch_of_weights, *of_weights, *free).reshape(groups, depth, width)

    out = contract_or_transform(reader, rows, weights, prepare, (groups, depth, width))
    own = [axis for axis in range(len(value.shape)) if axis not in (*summed, *batch)]
    sizes = [*(value.shape[axis] for axis in (*batch, *own)), *(dims[axis] for axis in free)]
    results = []
    for places in out:
        full = places.reshape(sizes)
        if which == 1:  # the parameters' axes come first
            n_batch, n_own = len(batch), len(own)
            order = [*range(n_batch), *range(n_batch + n_own, full.ndim), *range(n_batch, n_batch + n_own)]
            full = full.transpose(order)
        results.append(full.reshape(shape))
    return [reader.value(results)]


def _as_rows(places: Places, summed: Sequence[int], batch: Sequence[int]) -> Places:
    """Places as ``(batch, others, summed)``."""
    others = [axis for axis in range(places.ndim) if axis not in (*summed, *batch)]
    sizes = [math.prod(places.shape[axis] for axis in axes) for axes in (batch, others, summed)]
    return places.transpose(*batch, *others, *summed).reshape(sizes)


def _pairs(reader: Reader, left: list[Places], right: list[Places]) -> list[Places]:
    """Products of values of one or two parts."""
    products = [[reader.pair(a, b) for b in right] for a in left]
    if len(left) == len(right) == 1:
        return products[0]
    e, size = reader.expressions, products[0][0].size

    def combined(name: str, a: Places, b: Places) -> Places:
        (places,) = reader.write([e.of(name, e.elements(a), e.elements(b))], size)
        return places.reshape(a.shape)

    if len(left) == 1:
        return products[0]
    if len(right) == 1:
        return [products[0][0], products[1][0]]
    return [combined("sub", products[0][0], products[1][1]), combined("add", products[0][1], products[1][0])]


def _convolution(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    value, kernel = inputs
    numbers, params = eqn.params["dimension_numbers"], eqn.params
    if not isinstance(value, Value) or isinstance(kernel, Value) or params["batch_group_count"] != 1:
        raise UnreadableError("it convolves parameters, or values with each other")
    if not params["window_strides"]:
        raise UnreadableError("it convolves without space")
    groups, shape = params["feature_group_count"], eqn.outvars[0].aval.shape
    n_space = len(params["window_strides"])
    lhs = [places.transpose(numbers.lhs_spec) for places in reader.places(value)]  # batch, channels, space
    n_batch = lhs[0].shape[0]
    kernel_shape = [kernel.aval.shape[axis] for axis in numbers.rhs_spec]  # features, channels of a group, space
    features, of_group, window = kernel_shape[0], kernel_shape[1], kernel_shape[2:]
    out_space = [shape[axis] for axis in numbers.out_spec[2:]]
    # Where each tap of each position is, along each axis of space: -1 in the padding.
    where = []
    for axis in range(n_space):
        at = np.arange(out_space[axis])[:, None] * params["window_strides"][axis] - params["padding"][axis][0]
        at = at + np.arange(window[axis]) * params["rhs_dilation"][axis]
        dilation = params["lhs_dilation"][axis]
        size = lhs[0].shape[2 + axis]
        is_inside = (at >= 0) & (at % dilation == 0) & (at // dilation < size)
        where.append(np.where(is_inside, at // dilation, -1))
    # By position and tap: positions first, then taps, for each axis of space.
    of_axes = []
    for axis, places in enumerate(where):
        own = [1] * (2 * n_space)
        own[axis], own[n_space + axis] = places.shape
        of_axes.append(places.reshape(own))
    grids: list[Any] = list(np.broadcast_arrays(*of_axes))
    is_outside = np.any([grid < 0 for grid in grids], axis=0)
    n_positions, n_taps = math.prod(out_space), math.prod(window)
    zeros = reader.zero(of_group) if is_outside.any() else None
    rows = []
    for part in lhs:
        where_inside: tuple[Any, ...] = (slice(None), slice(None), *(np.maximum(grid, 0) for grid in grids))
        taken = part[where_inside]
        taken = taken.reshape(n_batch, groups, of_group, n_positions, n_taps)
        if zeros is not None:
            outside = is_outside.reshape(n_positions, n_taps)
            taken = np.where(outside, zeros[:, None, None], taken)
        rows.append(taken.transpose(1, 0, 3, 4, 2).reshape(groups, n_batch * n_positions, n_taps * of_group))
    width = features // groups

    def prepare(w: Any) -> Any:
        w = jnp.asarray(w).transpose(*numbers.rhs_spec).reshape(groups, width, of_group, n_taps)
        return w.transpose(0, 3, 2, 1).reshape(groups, n_taps * of_group, width)

    out = reader.contract(rows, kernel, prepare, (groups, n_taps * of_group, width))
    results = []
    for places in out:
        full = places.reshape(groups, n_batch, n_positions, width).transpose(1, 0, 3, 2)
        full = full.reshape(n_batch, features, *out_space)
        results.append(full.transpose(np.argsort(numbers.out_spec)))
    return [reader.value(results)]


RULES: dict[str, Rule] = {"dot_general": _dot_general, "conv_general_dilated": _convolution}
