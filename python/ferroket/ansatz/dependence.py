"""Which part of its input each element of a value of a program depends on.

An input's elements have *labels*: the number of their site, or of their sample. A value of the program has the label of
all that it is made of, :data:`NONE` where it depends on no labelled element, and :data:`SEVERAL` where it depends on
elements of different labels. Labels are arrays of integers of the shape of the value, so that any reordering of its
elements is the same reordering of its labels.

A rule for each primitive says which elements its results are made of. :data:`SEVERAL` is only said where they are
combined for sure; where a rule can't tell which element is taken, and for primitives without a rule, it is
:data:`UNKNOWN`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ferroket._compat.jax import inputs_of_scan
from ferroket.ansatz.equations import CALLS, CUSTOM_CALLS, called, opened

NONE = -1
UNKNOWN = 1 << 30
SEVERAL = UNKNOWN + 1

Labels = np.ndarray
"""int32, of the shape of a value. An array of equal labels needn't take memory."""
Rule = Callable[[Any, Sequence[Labels]], Sequence[Labels]]
"""The labels of the results of an equation, from those of its operands."""


def labels_of(jaxpr: ClosedJaxpr, args: Sequence[Labels | None]) -> dict[Any, Labels]:
    """The labels of all variables of a program, but for those inside of calls and loops.

    Args:
        jaxpr: The program.
        args: The labels of its arguments; None for :data:`NONE`.
    """
    avals = jaxpr.in_avals
    of_args = [_all(NONE, aval.shape) if arg is None else arg for arg, aval in zip(args, avals, strict=True)]
    return _follow(jaxpr.jaxpr, of_args)[1]


def results_of(jaxpr: ClosedJaxpr, args: Sequence[Labels | None]) -> list[Labels]:
    """The labels of the results of a program. See :func:`labels_of`."""
    found = labels_of(jaxpr, args)
    return [_of(v, found) for v in jaxpr.jaxpr.outvars]


def is_of_one(labels: Labels) -> bool:
    """Whether each element depends on elements of one label at most."""
    return bool((labels < UNKNOWN).all())


def _all(label: int, shape: Sequence[int]) -> Labels:
    return np.broadcast_to(np.int32(label), tuple(shape))


def _only(labels: Labels) -> int | None:
    """The label that all elements have; None if there are several, or no elements."""
    if not labels.size:
        return None
    if not any(labels.strides):
        return int(labels.flat[0])
    first = int(labels.flat[0])
    return first if (labels == first).all() else None


def _of(v: Any, found: dict[Any, Labels]) -> Labels:
    return _all(NONE, np.shape(v.val)) if isinstance(v, Literal) else found[v]


def _follow(jaxpr: Jaxpr, args: Sequence[Labels]) -> tuple[list[Labels], dict[Any, Labels]]:
    found: dict[Any, Labels] = {v: _all(NONE, v.aval.shape) for v in jaxpr.constvars}
    found.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        inputs = [_of(v, found) for v in eqn.invars]
        found.update(zip(eqn.outvars, _results(eqn, inputs), strict=True))
    return [_of(v, found) for v in jaxpr.outvars], found


def _results(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    shapes = [getattr(v.aval, "shape", ()) for v in eqn.outvars]
    # Of operands that all have the same label so are the results, whatever the primitive.
    labels = {_only(labels) for labels in inputs if labels.size} - {NONE}
    if not labels:
        return [_all(NONE, shape) for shape in shapes]
    if len(labels) == 1 and None not in labels:
        (label,) = labels
        return [_all(label or 0, shape) for shape in shapes]
    rule = RULES.get(eqn.primitive.name)
    results = None if rule is None else rule(eqn, inputs)
    if results is None or [labels.shape for labels in results] != shapes:
        some = _some(inputs)
        return [_all(some, shape) for shape in shapes]
    return results


def _some(inputs: Iterable[Labels]) -> int:
    """The label of what may be made of any of these elements."""
    label = NONE
    for labels in inputs:
        if labels.size:
            label = int(_join(np.int32(label), _along(labels.ravel(), (0,))))
    return _unsure(np.int32(label)).item()


def _unsure(labels: Any) -> Any:
    """What several elements may make, and one alone may as well."""
    return np.where(labels == SEVERAL, UNKNOWN, labels).astype(np.int32)


def _join(*labels: Any) -> Labels:
    """What is made of all of these elements, element by element."""
    joined = np.asarray(labels[0], np.int32)
    for other in labels[1:]:
        either = np.maximum(joined, other)
        is_one = (joined == other) | (joined == NONE) | (other == NONE)
        is_known = (joined < UNKNOWN) & (other < UNKNOWN)
        is_sure = is_known | (joined == SEVERAL) | (other == SEVERAL)
        joined = np.where(is_one, either, np.where(is_sure, SEVERAL, UNKNOWN)).astype(np.int32)
    return joined


def _along(labels: Labels, axes: Sequence[int], keepdims: bool = False) -> Labels:
    """What is made of all elements along some axes."""
    axes = tuple(axes)
    if not math.prod(labels.shape[axis] for axis in axes):
        shape = np.empty(labels.shape, bool).all(axis=axes, keepdims=keepdims).shape
        return _all(NONE, shape)
    most = labels.max(axis=axes, keepdims=True)
    least = np.where(labels == NONE, most, labels).min(axis=axes, keepdims=True)
    joined = np.where((most == least) | (most >= UNKNOWN), most, SEVERAL).astype(np.int32)
    return joined if keepdims else joined.squeeze(axes)


# Rules


def _elementwise(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    """Operands of other shapes are scalars."""
    (out,) = eqn.outvars
    joined = _join(*inputs)
    return [joined] if joined.shape == out.aval.shape else [_all(_some(inputs), out.aval.shape)]


def _each(_: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    return inputs


def _transpose(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    return [inputs[0].transpose(eqn.params["permutation"])]


def _reshape(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    order = eqn.params.get("dimensions") if eqn.primitive.name == "reshape" else None
    labels = inputs[0] if order is None else inputs[0].transpose(order)
    return [labels.reshape(eqn.outvars[0].aval.shape)]


def _broadcast_in_dim(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    shape, places = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    own = [1] * len(shape)
    for place, size in zip(places, inputs[0].shape, strict=True):
        own[place] = size
    return [np.broadcast_to(inputs[0].reshape(own), shape)]


def _slice(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    starts, limits = eqn.params["start_indices"], eqn.params["limit_indices"]
    strides = eqn.params["strides"] or (1,) * len(starts)
    return [inputs[0][tuple(map(slice, starts, limits, strides))]]


def _concatenate(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    return [np.concatenate(inputs, axis=eqn.params["dimension"])]


def _split(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    return np.split(inputs[0], np.cumsum(eqn.params["sizes"])[:-1], axis=eqn.params["axis"])


def _rev(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    return [np.flip(inputs[0], eqn.params["dimensions"])]


def _stack(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    return [np.stack(inputs, axis=eqn.params["axis"])]


def _unstack(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    return list(np.moveaxis(inputs[0], eqn.params["axis"], 0))


def _tile(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    return [np.tile(inputs[0], eqn.params["reps"])]


def _pad(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    labels, filled = inputs
    config = eqn.params["padding_config"]
    between = [max(size + (size - 1) * gap, 0) for size, (_, _, gap) in zip(labels.shape, config, strict=True)]
    spread = np.full(between, filled, np.int32)
    spread[tuple(slice(None, None, gap + 1) for _, _, gap in config)] = labels
    added = [(max(low, 0), max(high, 0)) for low, high, _ in config]
    padded = np.pad(spread, added, constant_values=int(filled))
    cut = tuple(
        slice(max(-low, 0), size - max(-high, 0)) for size, (low, high, _) in zip(padded.shape, config, strict=True)
    )
    return [padded[cut]]


def _reduce(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    axes = eqn.params["axes"] if "axes" in eqn.params else eqn.params["dimensions"]
    n_results = len(eqn.outvars)
    joined = _join(*inputs[:n_results], *(labels for labels in inputs[n_results:] if labels.ndim == inputs[0].ndim))
    return [_along(joined, axes)] * n_results


def _whether(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    """Whether all, or any: mostly asked for the sake of an error, or of a loop that goes on, which changes no value."""
    return [_unsure(labels) for labels in _reduce(eqn, inputs)]


def _along_axis(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    """Primitives whose results depend on all elements along an axis: sorts."""
    axis = eqn.params["axis"] if "axis" in eqn.params else eqn.params["dimension"]
    joined = _along(_join(*inputs), (axis,), keepdims=True)
    return [np.broadcast_to(joined, v.aval.shape) for v in eqn.outvars]


def _cumulative(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    """What is made of the elements up to each place along an axis."""
    axis = eqn.params["axis"]
    labels = np.flip(inputs[0], axis) if eqn.params["reverse"] else inputs[0]
    most = np.maximum.accumulate(labels, axis)
    least = np.minimum.accumulate(np.where(labels == NONE, SEVERAL, labels), axis)
    joined = np.where((most == NONE) | (most == least) | (most >= UNKNOWN), most, SEVERAL).astype(np.int32)
    return [np.flip(joined, axis) if eqn.params["reverse"] else joined]


def _top_k(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    axis = eqn.params.get("axis", inputs[0].ndim - 1)
    joined = _along(inputs[0], (axis,), keepdims=True)
    return [np.broadcast_to(joined, v.aval.shape) for v in eqn.outvars]


def _last_axes(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    """Linear algebra of matrices, which are the last two axes, or of vectors and matrices with the same other axes."""
    batch = inputs[0].shape[:-2]
    joined = _join(*(_along(labels.reshape(*batch, -1), (len(batch),)) for labels in inputs))
    return [
        np.broadcast_to(joined.reshape(*batch, *[1] * (len(v.aval.shape) - len(batch))), v.aval.shape)
        for v in eqn.outvars
    ]


def _pivots(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    (out,) = eqn.outvars
    return [np.broadcast_to(_along(inputs[0], (-1,), keepdims=True), out.aval.shape)]


def _fft(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    n_axes = len(eqn.params["fft_lengths"])
    axes = tuple(range(inputs[0].ndim - n_axes, inputs[0].ndim))
    return [np.broadcast_to(_along(inputs[0], axes, keepdims=True), eqn.outvars[0].aval.shape)]


def _dot_general(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    (contracted, batch) = eqn.params["dimension_numbers"]
    sides = []
    for which, labels in enumerate(inputs):
        free = [axis for axis in range(labels.ndim) if axis not in (*contracted[which], *batch[which])]
        summed = _along(labels, contracted[which], keepdims=True)
        shape = [labels.shape[axis] for axis in (*batch[which], *free)]
        sides.append((summed.transpose(*batch[which], *free, *contracted[which]).reshape(shape), len(free)))
    (left, n_left), (right, n_right) = sides
    n_batch = len(batch[0])
    left = left.reshape(*left.shape, *[1] * n_right)
    right = right.reshape(*right.shape[:n_batch], *[1] * n_left, *right.shape[n_batch:])
    return [_join(left, right)]


def _conv_general_dilated(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels] | None:
    numbers = eqn.params["dimension_numbers"]
    if eqn.params["batch_group_count"] != 1:
        return None
    batch_axis, out_axis = numbers.lhs_spec[0], numbers.out_spec[0]
    others = [axis for axis in range(inputs[0].ndim) if axis != batch_axis]
    # A position at the edge may have fewer elements than these.
    of_batch = _unsure(_along(inputs[0], others))
    shape = [1] * inputs[0].ndim
    shape[out_axis] = len(of_batch)
    kernel = _some(inputs[1:])
    return [np.broadcast_to(_join(of_batch.reshape(shape), np.int32(kernel)), eqn.outvars[0].aval.shape)]


def _gather(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    operand, indices = inputs[:2]
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    shape = eqn.outvars[0].aval.shape
    operand_batch = tuple(getattr(numbers, "operand_batching_dims", ()))
    indices_batch = tuple(getattr(numbers, "start_indices_batching_dims", ()))
    outer = [axis for axis in range(len(shape)) if axis not in numbers.offset_dims]
    of_index = _along(indices, (indices.ndim - 1,))
    own = [1] * len(shape)
    for place, axis in enumerate(outer):
        own[axis] = of_index.shape[place]
    result = np.broadcast_to(of_index.reshape(own), shape)
    # Of an axis from which a part is taken, it may be any.
    partial = [axis for axis in range(operand.ndim) if axis not in operand_batch and sizes[axis] != operand.shape[axis]]
    taken = _unsure(_along(operand, partial, keepdims=True)) if partial else operand
    kept = [axis for axis in range(operand.ndim) if axis not in (*numbers.collapsed_slice_dims, *operand_batch)]
    places = dict(zip(kept, numbers.offset_dims, strict=True))
    places |= {axis: outer[place] for axis, place in zip(operand_batch, indices_batch, strict=True)}
    dropped = tuple(axis for axis in range(operand.ndim) if axis not in places)
    taken = taken.squeeze(tuple(axis for axis in dropped if taken.shape[axis] == 1))
    if taken.ndim != len(places):
        return [_all(_some(inputs), shape)]
    left = sorted(places)
    order = sorted(range(len(left)), key=lambda at: places[left[at]])
    own = [1] * len(shape)
    for at in order:
        own[places[left[at]]] = taken.shape[at]
    return [_join(result, np.broadcast_to(taken.transpose(order).reshape(own), shape))]


def _scatter(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    operand, indices, updates = inputs
    numbers = eqn.params["dimension_numbers"]
    operand_batch = tuple(getattr(numbers, "operand_batching_dims", ()))
    indices_batch = tuple(getattr(numbers, "scatter_indices_batching_dims", ()))
    outer = [axis for axis in range(updates.ndim) if axis not in numbers.update_window_dims]
    of_index = _along(indices, (indices.ndim - 1,))
    own = [1] * updates.ndim
    for place, axis in enumerate(outer):
        own[axis] = of_index.shape[place]
    updates = _join(updates, np.broadcast_to(of_index.reshape(own), updates.shape))
    window = [axis for axis in range(operand.ndim) if axis not in (*numbers.inserted_window_dims, *operand_batch)]
    places = dict(zip(window, numbers.update_window_dims, strict=True))
    places |= {axis: outer[place] for axis, place in zip(operand_batch, indices_batch, strict=True)}
    whole = {axis: place for axis, place in places.items() if operand.shape[axis] == updates.shape[place]}
    # An update may come to any place along the other axes, and there be put together with others.
    summed = [axis for axis in range(updates.ndim) if axis not in whole.values()]
    anywhere = _unsure(_along(updates, summed)) if summed else updates
    left = sorted(whole.values())
    order = sorted(whole, key=lambda axis: axis)
    anywhere = anywhere.transpose([left.index(whole[axis]) for axis in order])
    own = [operand.shape[axis] if axis in whole else 1 for axis in range(operand.ndim)]
    joined = _join(operand, np.broadcast_to(anywhere.reshape(own), operand.shape))
    return [np.where(joined == SEVERAL, np.maximum(operand, UNKNOWN), joined).astype(np.int32)]


def _dynamic_slice(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    operand, starts = inputs[0], inputs[1:]
    shape = eqn.outvars[0].aval.shape
    partial = [axis for axis in range(operand.ndim) if operand.shape[axis] != shape[axis]]
    taken = np.broadcast_to(_unsure(_along(operand, partial, keepdims=True)) if partial else operand, shape)
    return [_join(taken, np.int32(_some(starts)))]


def _dynamic_update_slice(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    operand, update, *starts = inputs
    partial = [axis for axis in range(operand.ndim) if operand.shape[axis] != update.shape[axis]]
    anywhere = np.broadcast_to(_along(update, partial, keepdims=True) if partial else update, operand.shape)
    return [_unsure(_join(operand, anywhere, np.int32(_some(starts))))]


def _call(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    jaxpr, _ = called(eqn)
    return _follow(jaxpr, inputs)[0]


def _scan(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    """All steps are taken to be alike: what one of them makes of any element, each does."""
    n_consts, n_carry = inputs_of_scan(eqn.params)
    body, _ = opened(eqn.params["jaxpr"])
    consts, carry = list(inputs[:n_consts]), list(inputs[n_consts : n_consts + n_carry])
    parts = [_unsure(_along(labels, (0,))) for labels in inputs[n_consts + n_carry :]]
    while True:
        results = _follow(body, [*consts, *carry, *parts])[0]
        grown = [_join(before, after) for before, after in zip(carry, results[:n_carry], strict=True)]
        if all(map(np.array_equal, carry, grown)):
            break
        carry = grown
    out = [v.aval.shape for v in eqn.outvars[n_carry:]]
    return [*carry, *(np.broadcast_to(labels, shape) for labels, shape in zip(results[n_carry:], out, strict=True))]


def _while(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    settings = eqn.params
    n_test, n_body = settings["cond_nconsts"], settings["body_nconsts"]
    (test, _), (body, _) = opened(settings["cond_jaxpr"]), opened(settings["body_jaxpr"])
    of_test, of_body = list(inputs[:n_test]), list(inputs[n_test : n_test + n_body])
    carry = list(inputs[n_test + n_body :])
    while True:
        results = _follow(body, [*of_body, *carry])[0]
        # How often it runs may depend on elements, too. A loop of many samples goes on as long as one of them does,
        # which needn't change the others.
        (goes_on,) = _follow(test, [*of_test, *carry])[0]
        goes_on = _unsure(goes_on)
        is_known = int(goes_on) < UNKNOWN
        more = [_join(labels, goes_on) if is_known else np.where(labels == NONE, NONE, UNKNOWN) for labels in results]
        grown = [_join(before, after).astype(np.int32) for before, after in zip(carry, more, strict=True)]
        if all(map(np.array_equal, carry, grown)):
            return carry
        carry = grown


def _cond(eqn: Any, inputs: Sequence[Labels]) -> Sequence[Labels]:
    index, *operands = inputs
    branches = [_follow(opened(branch)[0], operands)[0] for branch in eqn.params["branches"]]
    return [_join(*labels, index) for labels in zip(*branches, strict=True)]


_ELEMENTWISE = (
    *("neg", "sign", "floor", "ceil", "round", "is_finite", "exp", "exp2", "log", "expm1", "log1p", "tanh", "logistic"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "lgamma", "digamma"),
    *(
        "polygamma",
        "igamma",
        "igammac",
        "zeta",
        "bessel_i0e",
        "bessel_i1e",
        "erf",
        "erfc",
        "erf_inv",
        "regularized_incomplete_beta",
    ),
    *("real", "imag", "complex", "conj", "abs", "pow", "integer_pow", "square", "sqrt", "rsqrt", "cbrt"),
    *("one_minus_square", "polynomial"),
    *("not", "and", "or", "xor", "population_count", "clz", "shift_left", "shift_right_arithmetic"),
    *("shift_right_logical", "add", "add_any", "sub", "mul", "div", "rem", "max", "min", "atan2", "nextafter"),
    *("eq", "ne", "lt", "le", "gt", "ge", "eq_to", "lt_to", "le_to", "convert_element_type", "bitcast_convert_type"),
    *("select_n", "clamp", "reduce_precision", "copy", "copy_p", "pvary", "pcast", "sharding_constraint", "reshard"),
    *("mesh_cast", "stop_gradient"),
)
"""Primitives whose results have at each place what they make of the operands there."""

RULES: dict[str, Any] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    "optimization_barrier": _each,
    "transpose": _transpose,
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
    "broadcast_in_dim": _broadcast_in_dim,
    "slice": _slice,
    "concatenate": _concatenate,
    "split": _split,
    "rev": _rev,
    "stack": _stack,
    "unstack": _unstack,
    "tile": _tile,
    "pad": _pad,
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_xor", "reduce"),
        _reduce,
    ),
    **dict.fromkeys(("reduce_and", "reduce_or"), _whether),
    **dict.fromkeys(("argmax", "argmin"), _reduce),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _cumulative),
    "sort": _along_axis,
    "top_k": _top_k,
    **dict.fromkeys(
        ("lu", "cholesky", "eigh", "eig", "svd", "qr", "geqrf", "householder_product", "triangular_solve", "schur"),
        _last_axes,
    ),
    **dict.fromkeys(("lu_pivots_to_permutation", "pfaffian_factors"), _pivots),
    **dict.fromkeys(("slogdet", "slogpfaffian"), _call),
    "fft": _fft,
    "dot_general": _dot_general,
    "conv_general_dilated": _conv_general_dilated,
    "gather": _gather,
    **dict.fromkeys(("scatter", "scatter-add", "scatter_add", "scatter-mul", "scatter_mul"), _scatter),
    **dict.fromkeys(("scatter-min", "scatter_min", "scatter-max", "scatter_max", "scatter-sub"), _scatter),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    **dict.fromkeys((*CALLS, *CUSTOM_CALLS), _call),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
"""What each primitive makes its results of, by its name. A rule may give None where it can't tell."""
