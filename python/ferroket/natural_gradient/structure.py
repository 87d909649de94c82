"""How the parameters of a network enter its log-amplitude, read from its jaxpr.

Where a parameter W meets a sample in a product y = x W, the derivative of ln ψ(σ_s) by W is the outer product
x_s ⊗ δ_s, with δ = ∂ ln ψ/∂y. So a *tap*, a zero, is added to each such y; the derivatives by all taps are the δ, and
no derivative by W is ever formed. This module finds these products: in ``dot_general`` and
``conv_general_dilated``, behind transposes, reshapes and casts of W and products with constants, and inside of
``pjit``, ``remat`` and ``scan``. Determinants of orbitals are such products, too, since to first order ln det A is
tr A⁻¹ A. A parameter that is used in any other way is differentiated as it is, sample by sample.

The network is read for one sample, and evaluated by :func:`jax.vmap` for many: that is how NetKet differentiates it
(:func:`netket.jax.jacobian`), and samples can't mix.

The idea is that of structured derivatives: Novak, Sohl-Dickstein, Schoenholz, arXiv:2206.08720.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ferroket._compat.jax import inputs_of_scan
from ferroket._compat.sharding import evaluated_eagerly
from ferroket.ansatz.determinants import with_primitives
from ferroket.ansatz.equations import CALLS, MOVING, bind, called, opened
from ferroket.ansatz.verification import UNSURE, are_traced, cached_answer, shapes_of
from ferroket.ffi import log_determinants_p
from ferroket.models.pairs import sum_over_pairs, sum_over_pairs_p
from ferroket.natural_gradient.masks import NestedMask, taken_apart
from ferroket.natural_gradient.pairs import with_sums_over_pairs
from ferroket.natural_gradient.signs import is_real_up_to_signs

Step = tuple[Any, tuple[tuple[str, Any], ...], int]
"""What is done to a parameter: the primitive, its settings, and in how many loops over parts of it."""

RESHAPING = (
    *("transpose", "reshape", "squeeze", "expand_dims", "convert_element_type", "copy", "copy_p", "rev"),
    *("pvary", "pcast"),  # which say over which devices values vary
)
"""Primitives that keep all elements of a parameter as they are."""

FOLDED = "transpose", "reshape", "squeeze", "expand_dims", "convert_element_type", "broadcast_in_dim"
"""Primitives by which a constant becomes what a parameter is multiplied with; here they give a constant, too."""

SCALING = "mul", "div"
"""Primitives that multiply them, if their other operand is a constant."""


@dataclass(frozen=True)
class View:
    """A parameter inside of the network, or what :data:`RESHAPING` has made of it."""

    leaf: int
    """Which one, in the order of :func:`jax.tree.leaves`."""
    value: jax.Array
    steps: tuple[Step, ...] = ()
    """From the parameter to this."""
    loops: tuple[bool, ...] = ()
    """The loops that it is in, from the outermost: whether each of their steps has a part of the parameter of its
    own."""
    scale: np.ndarray | None = None
    """What its elements have been multiplied with, in the shape of the value."""

    def then(self, eqn: Any) -> "View":
        """What an equation makes of it."""
        settings = tuple(sorted(eqn.params.items()))
        value = eqn.primitive.bind(self.value, **eqn.params)
        steps = (*self.steps, (eqn.primitive, settings, sum(self.loops)))
        return replace(self, value=value, steps=steps, scale=None if self.scale is None else _known(eqn, [self.scale]))

    def scaled(self, value: jax.Array, by: np.ndarray) -> "View":
        """The same with each element multiplied with a constant."""
        by = np.broadcast_to(by, value.shape)
        return replace(self, value=value, scale=by if self.scale is None else self.scale * by)

    def inside(self, value: jax.Array, has_parts: bool) -> "View":
        """This view, or its part, in the body of a loop."""
        return replace(self, value=value, loops=(*self.loops, has_parts))


@dataclass(frozen=True)
class Product:
    """One place where a parameter meets a sample: y = x W, with all axes in four groups.

    ``W (B, I, O)``, ``x (B, P, I)`` and ``y (B, P, O)``: B are axes that all three have (parts of the parameter, each
    used once), P those of x alone (positions, all of which use the same part), I is summed over, and O are those of W
    alone.
    """

    leaf: int
    steps: tuple[Step, ...]
    loops: tuple[bool, ...]
    order: tuple[int, ...]
    """Of the axes of W: B, I, O."""
    shape: tuple[int, ...]
    """That of W, axes in this order."""
    sizes: tuple[int, int, int]
    """B, I and O."""
    y: jax.ShapeDtypeStruct
    from_y: Callable[[jax.Array], jax.Array]
    """From the shape of y to ``(B, P, O)``."""
    lengths: tuple[int, ...] = ()
    """Of the loops."""
    bias: "Product | None" = None
    """A parameter that is added to y, and to nothing else: one more row of W, with x = 1."""
    is_determinant: bool = False
    """Whether y is ln det W[R], with the occupied modes R, and x its derivative: to first order the two are alike."""
    is_of_pairs: bool = False
    """Whether y is :func:`~ferroket.models.pairs.sum_over_pairs`, and x stands for the products of its pairs."""
    mask: NestedMask | None = None
    """Which elements of ``(I, O)`` there are; all by default. There is one part then."""

    @property
    def n_positions(self) -> int:
        """P, with the loops that share the parameter."""
        shared = math.prod(length for length, own in zip(self.lengths, self.loops, strict=True) if not own)
        return shared * (math.prod(self.y.shape) // (self.sizes[0] * self.sizes[2]))

    @property
    def n_parts(self) -> int:
        """B, with the loops that have parts of the parameter."""
        return self.sizes[0] * math.prod(length for length, own in zip(self.lengths, self.loops, strict=True) if own)

    @property
    def layout(self) -> tuple[Any, ...]:
        """What two products have in common whose outer products may be added."""
        steps = tuple((primitive.name, str(settings), depth) for primitive, settings, depth in self.steps)
        return self.leaf, steps, tuple(own for own in self.loops if own), self.order, self.shape, self.sizes, self.mask

    def group(self, array: jax.Array, n_batch: int) -> jax.Array:
        """``(batch…, loops…, B, P, ·)`` → ``(batch…, B, P, ·)``: loops join the parts or the positions."""
        loops = range(n_batch, n_batch + len(self.loops))
        own = [axis for axis, is_own in zip(loops, self.loops, strict=True) if is_own]
        shared = [axis for axis, is_own in zip(loops, self.loops, strict=True) if not is_own]
        last = n_batch + len(self.loops)
        array = array.transpose(*range(n_batch), *own, last, *shared, last + 1, last + 2)
        return array.reshape(*array.shape[:n_batch], self.n_parts, self.n_positions, array.shape[-1])

    def taps_of(self, cotangents: jax.Array, n_batch: int) -> jax.Array:
        """The derivatives by the tap, ``(batch…, loops…, *y)`` → ``(batch…, B, P, O)``."""
        canonical = self.from_y
        for _ in range(n_batch + len(self.loops)):
            canonical = jax.vmap(canonical)
        return self.group(canonical(cotangents), n_batch)

    def view(self, parameter: jax.Array) -> jax.Array:
        """The parameter as ``(B, I, O)``."""
        for primitive, settings, depth in self.steps:
            step: Callable[[jax.Array], jax.Array] = partial(primitive.bind, **dict(settings))
            for _ in range(depth):
                step = jax.vmap(step)
            parameter = step(parameter)
        n_own = sum(self.loops)
        parameter = parameter.transpose(*range(n_own), *(n_own + axis for axis in self.order))
        parameter = parameter.reshape(self.n_parts, *self.sizes[1:])
        return parameter if self.mask is None else parameter * self.mask.array.astype(parameter.dtype)


@dataclass
class Taps:
    """The taps of a network, one for each product that is found, in the order of its equations."""

    values: Sequence[jax.Array] | None = None
    """None where they are still to be found: zeros are added."""
    products: list[Product] = field(default_factory=list)
    operands: list[jax.Array] = field(default_factory=list)
    """The x of each, ``(loops…, B, P, I)``."""
    direct: dict[int, set[str]] = field(default_factory=dict)
    """The parameters that are used in other ways, with the primitives that use them."""
    reals: dict[int, tuple[jax.Array, jax.Array]] = field(default_factory=dict)
    """Complex values that were real, by their identity, with what they were."""
    zeros: dict[int, jax.Array] = field(default_factory=dict)
    """Arrays of zeros, by their identity."""

    def note_real(self, eqn: Any, inputs: Sequence[Any], result: Any) -> None:
        """Notes the real values that an equation makes complex, or puts elsewhere."""
        name = eqn.primitive.name
        if name == "convert_element_type" and jnp.iscomplexobj(result) and not jnp.iscomplexobj(inputs[0]):
            self.reals[id(result)] = result, jnp.asarray(inputs[0]).astype(result.real.dtype)
        elif name in MOVING and all(id(value) in self.reals for value in inputs):
            moved = eqn.primitive.bind(*map(self.real_of, inputs), **eqn.params)
            self.reals[id(result)] = result, moved

    def has_real(self, values: Sequence[Any]) -> bool:
        """Whether one of some values was real."""
        return any(id(value) in self.reals for value in values)

    def real_of(self, value: Any) -> jax.Array:
        """The value of an equation, or the real one that it was."""
        return jnp.asarray(self.reals.get(id(value), (value, value))[1])

    def next(self, product: Product) -> jax.Array:
        """The tap of a product."""
        place = len(self.products)
        self.products.append(product)
        if self.values is None:
            return jnp.zeros((*product.lengths, *product.y.shape), product.y.dtype)
        return self.values[place]

    def add(self, product: Product, x: jax.Array, y: jax.Array) -> jax.Array:
        """Its result with the tap, for an x in the order of its axes."""
        tap = self.next(product)
        self.operands.append(x)
        return y + tap

    def add_bias(self, place: int, inputs: Sequence[Any]) -> bool:
        """Notes that a parameter is added to the result of a product, which nothing else uses.

        Returns:
            Whether it is: a product of many parts or positions has its bias apart.
        """
        product = self.products[place]
        views = [value for value in inputs if isinstance(value, View)]
        n_out = product.sizes[2]
        if len(views) != 1 or math.prod(product.y.shape) != n_out or product.loops or views[0].loops or product.bias:
            return False
        shape = views[0].value.shape
        if shape != product.y.shape or product.mask is not None or views[0].scale is not None:
            return False
        axes = tuple(range(len(shape)))
        bias = Product(views[0].leaf, views[0].steps, (), axes, shape, (1, 1, n_out), product.y, product.from_y)
        self.products[place] = replace(product, bias=bias)
        return True

    def as_it_is(self, value: Any, user: str = "result") -> Any:
        """A value that is differentiated as it is, if it is a parameter.

        Args:
            value: Anything.
            user: The primitive that takes it.
        """
        if isinstance(value, View):
            self.direct.setdefault(value.leaf, set()).add(user)
            return value.value
        return value


def evaluate(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], taps: Taps) -> list[Any]:
    """A jaxpr with taps. Its arguments are arrays or :class:`View` of parameters, and so are its results."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))
    used = Counter(v for eqn in jaxpr.eqns for v in eqn.invars if not isinstance(v, Literal))
    used.update(v for v in jaxpr.outvars if not isinstance(v, Literal))
    products: dict[Any, int] = {}
    for eqn in jaxpr.eqns:
        inputs = [v.val if isinstance(v, Literal) else values[v] for v in eqn.invars]
        if any(isinstance(value, View) for value in inputs):
            place = next((products[v] for v in eqn.invars if not isinstance(v, Literal) and v in products), None)
            if eqn.primitive.name == "add" and place is not None and taps.add_bias(place, inputs):
                # Its derivatives are those of the product's tap, and it may be used elsewhere, too.
                fixed = (jax.lax.stop_gradient(v.value) if isinstance(v, View) else v for v in inputs)
                results: Sequence[Any] = [sum(fixed)]
            else:
                n_before = len(taps.products)
                results = _with_parameters(eqn, inputs, taps)
                if eqn.primitive.name == "dot_general" and len(taps.products) > n_before and used[eqn.outvars[0]] == 1:
                    products[eqn.outvars[0]] = n_before
        elif eqn.primitive.name in FOLDED and _is_constant(inputs[0]) and not _fills(eqn, inputs):
            results = [_known(eqn, inputs)]
        elif eqn.primitive.name in CALLS and taps.has_real(inputs):
            results = evaluate(*called(eqn), inputs, taps)
        else:
            results = bind(eqn, inputs)
            taps.note_real(eqn, inputs, results[0] if results else None)
            if _fills(eqn, inputs) and _is_constant(inputs[0]) and not np.asarray(inputs[0]).any():
                taps.zeros[id(results[0])] = results[0]
        values.update(zip(eqn.outvars, results, strict=True))
    return [v.val if isinstance(v, Literal) else values[v] for v in jaxpr.outvars]


def _with_parameters(eqn: Any, inputs: list[Any], taps: Taps) -> Sequence[Any]:
    name = eqn.primitive.name
    views = [value for value in inputs if isinstance(value, View)]
    reshapes = name in RESHAPING or (name == "broadcast_in_dim" and len(inputs) == 1 and _is_reshape(eqn))
    if reshapes and jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact):
        return [views[0].then(eqn)]
    if name in CALLS:
        sums = _sum_over_pairs(eqn, inputs, taps) if eqn.primitive is sum_over_pairs_p else None
        return evaluate(*called(eqn), inputs, taps) if sums is None else [sums]
    if name == "scan":
        return _scan(eqn, inputs, taps)
    scaled = _scaled(eqn, inputs) if name in SCALING else _selected(eqn, inputs, taps) if name == "select_n" else None
    if scaled is not None:
        return [scaled]
    product = _maker(eqn, inputs, views)
    result = None if product is None else product(eqn, inputs, taps)
    if result is not None:
        return [result]
    return bind(eqn, [taps.as_it_is(value, name) for value in inputs])


def _is_constant(value: Any) -> bool:
    """Whether its numbers are known; JAX has several types for them."""
    return not isinstance(value, View | jax.core.Tracer)


def _known(eqn: Any, inputs: Sequence[Any]) -> np.ndarray:
    """What an equation makes of constants."""
    with evaluated_eagerly():
        return np.asarray(eqn.primitive.bind(*map(jnp.asarray, inputs), **eqn.params))


def _fills(eqn: Any, inputs: Sequence[Any]) -> bool:
    """Whether an equation fills an array with one number: as a constant it would take memory."""
    return eqn.primitive.name == "broadcast_in_dim" and np.ndim(inputs[0]) == 0


def _selected(eqn: Any, inputs: list[Any], taps: Taps) -> View | None:
    """A parameter of which some elements are replaced by zeros."""
    mask, *cases = inputs
    place = next((place for place, case in enumerate(cases) if isinstance(case, View)), None)
    if place is None or len(cases) != 2 or not _is_constant(mask) or id(cases[1 - place]) not in taps.zeros:  # noqa: PLR2004
        return None
    view = cases[place]
    operands = [case.value if isinstance(case, View) else case for case in cases]
    value = eqn.primitive.bind(mask, *operands, **eqn.params)
    return view.scaled(value, (np.asarray(mask) == bool(place)).astype(view.value.real.dtype))


def _scaled(eqn: Any, inputs: list[Any]) -> View | None:
    """A parameter whose elements an equation multiplies with real constants, or divides by them."""
    which = 0 if isinstance(inputs[0], View) else 1
    view, by = inputs[which], inputs[1 - which]
    if not _is_constant(by) or (which == 1 and eqn.primitive.name == "div"):
        return None
    aval, known = eqn.outvars[0].aval, np.asarray(by)
    if aval.shape != view.value.shape or not jnp.issubdtype(known.dtype, jnp.inexact) or known.imag.any():
        return None
    operands = [view.value, by] if which == 0 else [by, view.value]
    value = eqn.primitive.bind(*operands, **eqn.params)
    return view.scaled(value, 1 / known.real if eqn.primitive.name == "div" else known.real)


def _maker(eqn: Any, inputs: list[Any], views: list[View]) -> Callable[[Any, list[Any], Taps], jax.Array | None] | None:
    """What makes products of an equation, if it is one of parameters with what depends on the sample.

    It gives None where it isn't one for what the parameters have been multiplied with.
    """
    name = eqn.primitive.name
    if eqn.primitive is log_determinants_p:
        return None if eqn.params["rows"] else _determinants
    if len(views) == 1 and name == "dot_general":
        return _dot
    if len(views) == 1 and name == "conv_general_dilated" and inputs[1] is views[0] and _is_plain(eqn):
        return _convolution
    return None


def _is_reshape(eqn: Any) -> bool:
    """Whether nothing is repeated."""
    return math.prod(eqn.invars[0].aval.shape) == math.prod(eqn.outvars[0].aval.shape)


def _product_of(
    view: View, order: tuple[int, ...], sizes: tuple[int, ...], y: Any, from_y: Callable[[jax.Array], jax.Array]
) -> tuple[Product, np.ndarray | None] | None:
    """The product of a parameter, whose axes are B, I and O in this order, with something that gives y.

    Returns:
        It, and what its x is multiplied with, ``(B, 1, I)``. None if no x and no mask stand for the constants that the
        parameter has been multiplied with.
    """
    shape = tuple(view.value.shape[axis] for axis in order)
    parts, n_in, n_out = sizes
    result = jax.ShapeDtypeStruct(y.shape, y.dtype)
    product = Product(view.leaf, view.steps, view.loops, order, shape, (parts, n_in, n_out), result, from_y)
    if view.scale is None:
        return product, None
    found = taken_apart(view.scale.transpose(order).reshape(sizes)) if view.value.size else None
    if found is None or (found[1] is not None and view.loops):
        return None
    scale, mask = found
    return replace(product, mask=mask), None if (scale == 1).all() else scale


def _times(x: jax.Array, scale: np.ndarray | None) -> jax.Array:
    return x if scale is None else x * scale


def _dot(eqn: Any, inputs: list[Any], taps: Taps) -> jax.Array | None:
    (contracted, batch) = eqn.params["dimension_numbers"]
    which = 0 if isinstance(inputs[0], View) else 1
    view, x = inputs[which], jnp.asarray(inputs[1 - which])
    inner_w, inner_x = tuple(contracted[which]), tuple(contracted[1 - which])
    parts_w, parts_x = tuple(batch[which]), tuple(batch[1 - which])
    outer_w = tuple(axis for axis in range(view.value.ndim) if axis not in inner_w + parts_w)
    outer_x = tuple(axis for axis in range(x.ndim) if axis not in inner_x + parts_x)
    order = parts_w + inner_w + outer_w
    shape = view.value.shape
    sizes = tuple(math.prod(shape[axis] for axis in axes) for axes in (parts_w, inner_w, outer_w))
    n_positions = math.prod(x.shape[axis] for axis in outer_x)
    aval = eqn.outvars[0].aval

    def from_y(y: jax.Array) -> jax.Array:
        if which == 0:  # the free axes of W come first
            return y.reshape(sizes[0], sizes[2], n_positions).swapaxes(1, 2)
        return y.reshape(sizes[0], n_positions, sizes[2])

    found = _product_of(view, order, sizes, aval, from_y)
    if found is None:
        return None
    product, scale = found
    operands = [x, x]
    operands[which] = jax.lax.stop_gradient(view.value)
    y = eqn.primitive.bind(*operands, **eqn.params)
    operand = (
        taps.real_of(inputs[1 - which]).transpose(parts_x + outer_x + inner_x).reshape(sizes[0], n_positions, sizes[1])
    )
    return taps.add(product, jax.lax.stop_gradient(_times(operand, scale)), y)


def _determinants(eqn: Any, inputs: list[Any], taps: Taps) -> jax.Array:
    """The logarithm of a determinant is a product of the orbitals with its derivatives, to first order."""
    values = [jax.lax.stop_gradient(value.value) if isinstance(value, View) else value for value in inputs]
    y, *derivatives = eqn.primitive.bind(*values, rows=True)
    aval = eqn.outvars[0].aval
    for view, of_sector in zip(inputs[1:], derivatives, strict=True):
        if isinstance(view, View) and view.value.size:
            parts, n_in = len(view.value), math.prod(view.value.shape[1:])
            found = _product_of(view, (0, 1, 2), (parts, n_in, 1), aval, lambda y: y.T[..., None])
            assert found is not None  # of one output
            operand = _times(of_sector.swapaxes(0, 1).reshape(parts, -1, n_in), found[1])
            y = taps.add(replace(found[0], is_determinant=True), operand, y)
        elif isinstance(view, View):
            taps.as_it_is(view, eqn.primitive.name)
    return y


def _sum_over_pairs(eqn: Any, inputs: list[Any], taps: Taps) -> jax.Array | None:
    """The sum over the pairs of a sample's numbers, if it is one of a parameter as it is."""
    x, view = inputs
    is_one = not isinstance(x, View) and x.size == x.shape[-1] and not jnp.iscomplexobj(x)
    if not is_one or not isinstance(view, View) or view.steps or view.loops or view.scale is not None:
        return None
    y = sum_over_pairs(x, jax.lax.stop_gradient(view.value))
    found = _product_of(view, (0,), (1, view.value.size, 1), eqn.outvars[0].aval, lambda y: y.reshape(1, 1, 1))
    assert found is not None  # without a scale
    operand = jax.lax.stop_gradient(jnp.asarray(x)).reshape(1, 1, -1)
    return taps.add(replace(found[0], is_of_pairs=True), operand, y)


def _is_plain(eqn: Any) -> bool:
    return eqn.params["feature_group_count"] == 1 and eqn.params["batch_group_count"] == 1


def _convolution(eqn: Any, inputs: list[Any], taps: Taps) -> jax.Array | None:
    """A convolution is a product with the patches that the kernel covers."""
    x, view = jnp.asarray(inputs[0]), inputs[1]
    settings = eqn.params
    numbers = settings["dimension_numbers"]
    kernel = view.value.shape
    n_out, n_in = (kernel[axis] for axis in numbers.rhs_spec[:2])
    window = tuple(kernel[axis] for axis in numbers.rhs_spec[2:])
    order = (*numbers.rhs_spec[2:], numbers.rhs_spec[1], numbers.rhs_spec[0])
    aval = eqn.outvars[0].aval
    y_spec = numbers.out_spec
    n_positions = math.prod(aval.shape) // n_out

    def from_y(y: jax.Array) -> jax.Array:
        return y.transpose(y_spec[0], *y_spec[2:], y_spec[1]).reshape(1, n_positions, n_out)

    found = _product_of(view, order, (1, math.prod(window) * n_in, n_out), aval, from_y)
    if found is None:
        return None
    product, scale = found
    y = eqn.primitive.bind(x, jax.lax.stop_gradient(view.value), **settings)
    data = taps.real_of(inputs[0]).transpose(numbers.lhs_spec[0], *numbers.lhs_spec[2:], numbers.lhs_spec[1])
    patches = _patches(data, window, settings).reshape(1, n_positions, math.prod(window) * n_in)
    return taps.add(product, jax.lax.stop_gradient(_times(patches, scale)), y)


def _patches(x: jax.Array, window: tuple[int, ...], settings: dict[str, Any]) -> jax.Array:
    """What a kernel covers: ``(batch, *space, channels)`` → ``(batch, *positions, *window, channels)``."""
    gaps = [dilation - 1 for dilation in settings["lhs_dilation"]]
    padding = [(low, high, gap) for (low, high), gap in zip(settings["padding"], gaps, strict=True)]
    x = jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), *padding, (0, 0, 0)])
    space = x.shape[1:-1]
    dilations, strides = settings["rhs_dilation"], settings["window_strides"]
    positions, offsets = [], []
    for size, width, dilation, stride in zip(space, window, dilations, strides, strict=True):
        count = (size - (width - 1) * dilation - 1) // stride + 1
        positions.append(np.arange(count) * stride)
        offsets.append(np.arange(width) * dilation)
    n_dims = len(space)
    index = np.zeros((1,) * (2 * n_dims), int)
    for axis in range(n_dims):
        along = positions[axis].reshape(tuple(-1 if d == axis else 1 for d in range(2 * n_dims)))
        within = offsets[axis].reshape(tuple(-1 if d == n_dims + axis else 1 for d in range(2 * n_dims)))
        index = index * space[axis] + along + within
    flat = x.reshape(x.shape[0], math.prod(space), x.shape[-1])
    return jnp.take(flat, index, axis=1)


def _is_unscaled(value: Any) -> bool:
    return not isinstance(value, View) or value.scale is None


def _scan(eqn: Any, inputs: list[Any], taps: Taps) -> Sequence[Any]:
    """A loop: a parameter that all its steps use has their positions together, one of parts has a part for each."""
    settings = eqn.params
    length = settings["length"]
    n_consts, n_carry = inputs_of_scan(settings)
    consts = inputs[:n_consts]
    carry = [taps.as_it_is(value, "scan") for value in inputs[n_consts : n_consts + n_carry]]
    parts = inputs[n_consts + n_carry :]
    parts = [value if _is_unscaled(value) else taps.as_it_is(value, "scan") for value in parts]
    values = [value.value if isinstance(value, View) else value for value in parts]
    body, body_consts = opened(settings["jaxpr"])

    def step(carry: Any, step_inputs: Any, inner: Taps) -> tuple[Any, Any]:
        args = [value.inside(value.value, False) if isinstance(value, View) else value for value in consts]
        args += carry
        args += [
            outer.inside(value, True) if isinstance(outer, View) else value
            for outer, value in zip(parts, step_inputs, strict=True)
        ]
        results = [inner.as_it_is(value) for value in evaluate(body, body_consts, args, inner)]
        return results[:n_carry], (results[n_carry:], inner.operands)

    found = Taps()
    first = [jax.ShapeDtypeStruct(value.shape[1:], value.dtype) for value in map(jnp.asarray, values)]
    jax.eval_shape(partial(step, inner=found), carry, first)
    for leaf, users in found.direct.items():
        taps.direct.setdefault(leaf, set()).update(users)
    products = [replace(product, lengths=(length, *product.lengths)) for product in found.products]
    inner_taps = [taps.next(product) for product in products]

    def tapped(carry: Any, step_inputs: Any) -> tuple[Any, Any]:
        step_values, step_taps = step_inputs
        return step(carry, step_values, Taps(step_taps))

    loop = {name: settings[name] for name in ("reverse", "unroll")}
    carry, (results, operands) = jax.lax.scan(tapped, carry, (values, inner_taps), length, **loop)
    taps.operands += operands
    return [*carry, *results]


@dataclass(frozen=True, eq=False)
class Network:
    """A log-amplitude for one sample, with what is known of how its parameters enter."""

    jaxpr: ClosedJaxpr
    treedef: Any
    """Of the parameters."""
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    products: tuple[Product, ...]
    direct: dict[int, set[str]]
    """The parameters that are differentiated as they are, alone or beside their products, and what uses them."""
    dtype: np.dtype[Any]
    """Of ln ψ."""
    is_holomorphic: bool
    is_real: bool = False
    """Whether ln ψ is complex, and its imaginary part is known to have no derivatives."""
    lanes: dict[str, Any] = field(default_factory=dict)
    """By mode, what the kernels make of its derivatives."""

    @property
    def is_sum_over_pairs(self) -> bool:
        """Whether ln ψ is a sum over pairs alone, as NetKet's Jastrow factor is: its derivative by that sum is 1."""
        makers = {id(v): eqn for eqn in self.jaxpr.eqns for v in eqn.outvars}
        eqn = makers.get(id(self.jaxpr.jaxpr.outvars[0]))
        while eqn is not None and eqn.primitive.name in ("reshape", "squeeze"):
            eqn = makers.get(id(eqn.invars[0]))
        return eqn is not None and eqn.primitive is sum_over_pairs_p and len(self.products) == 1

    @property
    def tree(self) -> Any:
        """The shapes of the parameters."""
        return jax.tree.unflatten(self.treedef, self.leaves)

    def __call__(
        self, taps: Sequence[jax.Array], leaves: Sequence[jax.Array], state: Any, x: jax.Array
    ) -> tuple[jax.Array, list[jax.Array]]:
        """The log-amplitude of a sample, and the x of each product."""
        found = Taps(taps)
        args = [View(place, leaf) for place, leaf in enumerate(leaves)]
        (log_psi,) = evaluate(self.jaxpr.jaxpr, self.jaxpr.consts, [*args, *jax.tree.leaves(state), x], found)
        return found.as_it_is(log_psi), found.operands


def read(
    log_psi: Callable[..., Any], parameters: Any, state: Any, x: Any, is_holomorphic: bool | None = None
) -> Network:
    """Reads how parameters enter a log-amplitude, once for each.

    Args:
        log_psi: ``log_psi({"params": parameters, **state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: The parameters, or their shapes.
        state: Other collections of variables, or their shapes.
        x: A sample ``(N,)``, or its shape.
        is_holomorphic: Whether ln ψ is to be taken as holomorphic; by default, whether it is found to be. False also
            leaves out to look whether ψ is real: then there are rows for real and imaginary parts, as NetKet has them.

    Raises:
        ValueError: There are no parameters.
    """
    variables, like = shapes_of(((parameters, state), x))
    made: list[Network] = []

    def answer() -> Any:
        made.append(_read(log_psi, variables[0], variables[1], like, is_holomorphic))
        return UNSURE if are_traced(made[0].jaxpr.consts) else made[0]

    subject = log_psi, is_holomorphic, like.shape, str(like.dtype), jax.sharding.get_abstract_mesh()
    found: Any = cached_answer("how parameters enter", subject, variables, answer)
    return made[0] if found is UNSURE else found


def _read(log_psi: Callable[..., Any], parameters: Any, state: Any, x: Any, is_holomorphic: bool | None) -> Network:
    shapes = parameters, state, x

    @with_primitives
    @with_sums_over_pairs
    def one(parameters: Any, state: Any, x: jax.Array) -> jax.Array:
        value: jax.Array = log_psi({"params": parameters, **state}, x[None]).reshape(())
        return value

    jaxpr = jax.make_jaxpr(one)(*shapes)
    leaves, treedef = jax.tree.flatten(shapes[0])
    if not leaves:
        raise ValueError("the network has no parameters: stochastic reconfiguration has nothing to update")
    (out,) = jaxpr.out_avals

    found = Taps()

    def discover(leaves: Sequence[jax.Array], state: Any, x: jax.Array) -> jax.Array:
        args = [View(place, leaf) for place, leaf in enumerate(leaves)]
        (result,) = evaluate(jaxpr.jaxpr, jaxpr.consts, [*args, *jax.tree.leaves(state), x], found)
        return found.as_it_is(result)

    jax.eval_shape(discover, leaves, *shapes[1:])
    is_complex = jnp.issubdtype(out.dtype, jnp.complexfloating)
    is_real = is_holomorphic is None and bool(is_complex) and is_real_up_to_signs(jaxpr)
    if is_holomorphic is None:
        is_holomorphic = _is_holomorphic(one, *shapes)
    products = tuple(found.products)
    plain = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
    return Network(jaxpr, treedef, plain, products, found.direct, out.dtype, is_holomorphic, is_real)


# Holomorphic functions


def _is_holomorphic(function: Callable[..., Any], parameters: Any, state: Any, x: Any) -> bool:
    """Whether a function of complex parameters is holomorphic, by what its backward pass consists of.

    The backward pass of a holomorphic function is complex-linear in the cotangent. What could be otherwise are a
    conjugate, and what passes through real numbers.
    """
    leaves = jax.tree.leaves(parameters)
    out = jax.eval_shape(function, parameters, state, x)
    if not leaves or not all(jnp.iscomplexobj(leaf) for leaf in leaves) or not jnp.iscomplexobj(out):
        return False

    def backward(cotangent: jax.Array, parameters: Any, state: Any, x: jax.Array) -> Any:
        _, pullback = jax.vjp(lambda p: function(p, state, x), parameters)
        return pullback(cotangent)

    jaxpr = jax.make_jaxpr(backward)(out, parameters, state, x)
    args = [True] + [False] * (len(jaxpr.jaxpr.invars) - 1)
    is_linear, _ = _spread(jaxpr.jaxpr, args)
    return is_linear


REAL_LINEAR = ("conj", "real", "imag", "complex", "abs", "pure_callback", "io_callback", "ffi_call", "custom_call")


ADDING = ("scatter", "scatter-add")
"""Linear primitives with a program among their settings, which says how elements that meet are put together."""


def _spread(jaxpr: Jaxpr, args: Sequence[bool]) -> tuple[bool, list[bool]]:
    """Whether all that depends on some arguments depends on them complex-linearly, and which results do depend."""
    depends = dict(zip(jaxpr.invars, args, strict=True))
    is_linear = True
    for eqn in jaxpr.eqns:
        inputs = [not isinstance(v, Literal) and depends.get(v, False) for v in eqn.invars]
        if not any(inputs):
            continue
        results = [True] * len(eqn.outvars)
        inner = [value for value in eqn.params.values() if isinstance(value, ClosedJaxpr | Jaxpr)]
        if eqn.primitive.name in CALLS and len(inner) == 1:
            inner_linear, results = _spread(opened(inner[0])[0], inputs)
            is_linear &= inner_linear
        elif eqn.primitive.name == "scan":
            body = opened(eqn.params["jaxpr"])[0]
            n_consts, n_carry = inputs_of_scan(eqn.params)
            while True:
                inner_linear, results = _spread(body, inputs)
                carried = [a or b for a, b in zip(inputs[n_consts:][:n_carry], results, strict=False)]
                grown = [*inputs[:n_consts], *carried, *inputs[n_consts + n_carry :]]
                if grown == inputs:
                    break
                inputs = grown
            is_linear &= inner_linear
        elif eqn.primitive.name in REAL_LINEAR or not (eqn.primitive.name in ADDING or _is_known(eqn)):
            is_linear = False
        outs = zip(eqn.outvars, results, strict=True)
        depends.update({v: dependent for v, dependent in outs if dependent})
        is_linear &= all(
            jnp.issubdtype(v.aval.dtype, jnp.complexfloating)
            for v, dependent in zip(eqn.outvars, results, strict=True)
            if dependent
        )
    return is_linear, [not isinstance(v, Literal) and depends.get(v, False) for v in jaxpr.outvars]


def _is_known(eqn: Any) -> bool:
    """Whether a primitive has no subprograms that were not looked into."""
    return not any(
        isinstance(item, ClosedJaxpr | Jaxpr)
        for value in eqn.params.values()
        for item in (value if isinstance(value, tuple | list) else (value,))
    )
