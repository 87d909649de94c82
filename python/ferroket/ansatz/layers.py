"""Networks of dense layers, read from what a network makes of its first one.

``ln ψ = W_L f_L(... W_1 f_1(s) + b_1 ...) + b_L`` with functions f of single numbers that Rust knows, the sums s of
:class:`~ferroket.ansatz.first_layer.FirstLayer`, and a last layer of one number. Values are followed through the
program. One is a linear function of the output of the function before it, and so a *bias* and a *matrix*; or what
functions of single numbers make of such a value, as an *expression*, which is looked up where it ends. Equal
expressions are one object, so that comparing them takes no longer however often their parts are used.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from jax.extend.core import Jaxpr, Literal

from ferroket.ansatz.equations import CALLS, CUSTOM_CALLS, bind, called
from ferroket.ansatz.first_layer import FirstLayer
from ferroket.ffi import dense_layers

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "selu": jax.nn.selu,
    "softplus": jax.nn.softplus,
    "log_cosh": nk.nn.activation.log_cosh,
}
"""The functions that Rust knows, by its names for them."""

_CALLS = (*CALLS, *CUSTOM_CALLS)
_SAME = ("copy", "copy_p", "reshard", "pvary", "pcast")
"""Primitives that give what they are given."""
_ORDERED = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice")
"""Primitives that keep the order of all elements, if they keep their number."""
_LINEAR = ("add", "add_any", "sub", "mul", "div", "neg", "dot_general", "reduce_sum")
_DENSER = 2
"""The matrices may have so many times more elements than the network makes products and sums: where a layer does the
same at each site they have many more, nearly all of them zeros."""


@dataclass(frozen=True, eq=False)
class _Expression:
    """What functions of single numbers make of a number x. Equal ones are the same object."""


_X = _Expression()
"""The expression of a value that no function was applied to."""


@dataclass
class _Expressions:
    """All expressions there are, by what they are made of."""

    known: dict[Any, _Expression] = field(default_factory=dict)

    def of(self, *parts: Any) -> _Expression:
        """The expression that is made of these parts: a primitive, its settings, and other expressions; or a number."""
        return self.known.setdefault(parts, _Expression())


@dataclass(frozen=True)
class Layers:
    """Dense layers behind a network's first one."""

    activations: tuple[str, ...]
    """The functions before each of them, of :data:`ACTIVATIONS`."""
    dtype: Any
    """That of all numbers, float32 or float64."""
    operands: Callable[[Any], list[jax.Array]]
    """``operands(variables)`` gives the matrix ``(inputs, outputs)`` and the bias ``(outputs,)`` of each layer."""

    def evaluate(self, sums: jax.Array, operands: Sequence[jax.Array]) -> jax.Array:
        """Ln ψ ``(n,)`` from sums ``(n, H)``."""
        return dense_layers(sums, operands, self.activations)

    @property
    def static(self) -> dict[str, Any]:
        """What tells the kernels of chains which functions they have."""
        return {"activations": self.activations}

    def __str__(self) -> str:
        count = len(self.activations)
        layers = "layer behind it is" if count == 1 else f"{count} layers behind it are"
        return f"the {layers} evaluated in Rust"


@dataclass(eq=False)
class _Followed:
    """A linear function of what a function gave, or what functions make of one."""

    stage: int
    """How many functions were before."""
    bias: jax.Array
    """The value where that is zero."""
    matrix: jax.Array | None
    """What each number of it adds; None if they are the numbers of the value, in their order."""
    is_plain: bool
    """Whether it is what the function gave, in whatever shape."""
    expressions: dict["_Followed", _Expression] = field(default_factory=dict)
    """What functions make of values before it, as it may be seen."""
    is_linear: bool = True
    """Whether it is a linear function at all."""

    @property
    def forms(self) -> dict["_Followed", _Expression]:
        """The expressions, and x of itself."""
        return {**self.expressions, self: _X} if self.is_linear else self.expressions


@dataclass(frozen=True, eq=False)
class _Constant:
    """A number, or an array of equal ones, that depends on nothing."""

    value: Any
    expression: _Expression


class _Unknown:
    """A value of another kind."""


@dataclass
class _Stages:
    """The layers that are found on the way."""

    dtype: Any
    """That of the network's numbers."""
    named: dict[_Expression, str]
    """The functions that there are, by their expressions."""
    expressions: _Expressions
    activations: list[str] = field(default_factory=list)
    tables: list[jax.Array] = field(default_factory=list)
    settled: dict[_Followed, "_Followed | _Unknown"] = field(default_factory=dict)

    def constant(self, number: Any) -> _Constant:
        """A number of the program, as precise as those of the network."""
        value = np.asarray(number)
        number_of_network = (value.astype(self.dtype) if value.dtype.kind == "f" else value).item()
        return _Constant(number, self.expressions.of(repr(number_of_network)))

    def settle(self, value: _Followed) -> "_Followed | _Unknown":
        """A value as a linear function of what the last function gave: its expression is looked up, and ends."""
        if value not in self.settled:
            self.settled[value] = self._settle(value)
        return self.settled[value]

    def _settle(self, value: _Followed) -> "_Followed | _Unknown":
        found = ((start, self.named[form]) for start, form in value.expressions.items() if form in self.named)
        start, name = next(found, (None, None))
        if start is None or name is None:
            return value if value.is_linear else _Unknown()
        if start.stage != len(self.activations) or not (self._add(start) if self.activations else start.is_plain):
            return _Unknown()
        self.activations.append(name)
        return _Followed(len(self.activations), jnp.zeros_like(value.bias), None, True)

    def _add(self, value: _Followed) -> bool:
        """Adds the layer that gives a value; False if there is none."""
        if value.matrix is None:
            return False
        self.tables += [value.matrix.reshape(len(value.matrix), -1), value.bias.ravel()]
        return True

    def end(self, value: Any) -> bool:
        """Whether a value is what a last layer gives."""
        if not isinstance(value, _Followed):
            return False
        last = self.settle(value)
        if not isinstance(last, _Followed) or last.bias.size != 1:
            return False
        return last.stage == len(self.activations) > 0 and self._add(last)


def read(first: FirstLayer, variables: Any, x: Any) -> Layers | None:
    """The layers behind a network's first one; None if it has something else.

    Args:
        first: The first layer, and the rest of the network.
        variables: The variables of the network, or their shapes.
        x: A configuration ``(N,)``, or its shape.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), (variables, x))
    sums = jax.eval_shape(first.sums, *shapes)
    jaxpr = jax.make_jaxpr(first.rest)(*shapes, sums)
    if sums.dtype not in (jnp.float32, jnp.float64) or jaxpr.out_avals[0].dtype != sums.dtype:
        return None

    named, known = _named(sums.dtype)

    def stages() -> _Stages:
        return _Stages(sums.dtype, named, _Expressions(dict(known)))

    def follow(stages: _Stages, variables: Any) -> bool:
        given = _Followed(0, jnp.zeros(sums.shape, sums.dtype), None, True)
        args = [*jax.tree.leaves(variables), _Unknown(), given]
        return stages.end(_evaluate(jaxpr.jaxpr, jaxpr.consts, args, stages)[0])

    found, is_known = stages(), []
    jax.eval_shape(lambda variables: is_known.append(follow(found, variables)), shapes[0])
    n_elements = sum(math.prod(matrix.shape) for matrix in found.tables[::2])
    if not is_known[0] or n_elements > _DENSER * _n_operations(jaxpr.jaxpr):
        return None

    def tables(variables: Any) -> list[jax.Array]:
        made = stages()
        follow(made, variables)
        return made.tables

    return Layers(tuple(found.activations), sums.dtype, tables)


def _n_operations(jaxpr: Jaxpr) -> int:
    """How many products and sums a program makes of numbers."""
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in _CALLS:
            total += _n_operations(called(eqn)[0])
        elif eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            total += math.prod(eqn.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracted)
        else:
            total += sum(math.prod(v.aval.shape) for v in eqn.invars)
    return total


@lru_cache
def _named(dtype: Any) -> tuple[dict[_Expression, str], dict[Any, _Expression]]:
    """The functions of :data:`ACTIVATIONS` by their expressions, for numbers of a dtype, and what these consist of."""
    names: dict[_Expression, str] = {}
    all_expressions = _Expressions()
    for name, function in ACTIVATIONS.items():
        jaxpr = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((2,), dtype))
        expressions: list[_Expression] = []

        def follow(numbers: jax.Array, jaxpr: Any = jaxpr, expressions: list[_Expression] = expressions) -> None:
            x = _Followed(0, numbers, None, True)
            (value,) = _evaluate(jaxpr.jaxpr, jaxpr.consts, [x], _Stages(dtype, {}, all_expressions))
            expressions.append(value.forms[x])

        jax.eval_shape(follow, *jaxpr.in_avals)
        names.update(dict.fromkeys(expressions, name))
    return names, all_expressions.known


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], stages: _Stages) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))

    def value_of(v: Any) -> Any:
        return stages.constant(v.val) if isinstance(v, Literal) else values[v]

    for eqn in jaxpr.eqns:
        inputs = [value_of(v) for v in eqn.invars]
        results: Sequence[Any]
        if any(isinstance(value, _Followed) for value in inputs) and eqn.primitive.name in _CALLS:
            results = _evaluate(*called(eqn), inputs, stages)
        elif any(isinstance(value, _Unknown) for value in inputs):
            results = [_Unknown() for _ in eqn.outvars]
        elif any(isinstance(value, _Followed) for value in inputs):
            results = [_followed(eqn, inputs, stages)] if len(eqn.outvars) == 1 else [_Unknown() for _ in eqn.outvars]
        else:
            results = bind(eqn, [_plain(value) for value in inputs])
            if inputs and all(isinstance(value, _Constant) for value in inputs) and len(results) == 1:
                results = [_Constant(results[0], _made_by(eqn, inputs, stages))]
        values.update(zip(eqn.outvars, results, strict=True))
    return [value_of(v) for v in jaxpr.outvars]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _Constant) else value


def _made_by(eqn: Any, inputs: list[Any], stages: _Stages, start: _Followed | None = None) -> _Expression:
    """What an equation makes of numbers, or of arrays of equal ones, and of what functions make of a value."""
    name = eqn.primitive.name
    if name in (*_SAME, *_ORDERED, "convert_element_type") and isinstance(inputs[0], _Constant):
        return inputs[0].expression
    parts = [value.forms[start] if start and isinstance(value, _Followed) else value.expression for value in inputs]
    return stages.expressions.of(name, str(sorted(eqn.params.items(), key=str)), *parts)


def _followed(eqn: Any, inputs: list[Any], stages: _Stages) -> "_Followed | _Unknown":
    """What an equation gives, of which some inputs are followed."""
    name = eqn.primitive.name
    found = [value for value in inputs if isinstance(value, _Followed)]
    aval = eqn.outvars[0].aval
    is_copy = name == "convert_element_type" and aval.dtype == found[0].bias.dtype
    if name in _SAME or is_copy:
        return found[0]
    alike = all(value.bias.shape == aval.shape for value in found)
    is_linear = _is_linear(eqn, inputs)
    ends = is_linear and len(found) == 1 and any(form in stages.named for form in found[0].expressions.values())
    is_of_numbers = all(isinstance(value, _Followed | _Constant) for value in inputs)
    if is_of_numbers and alike and name not in (*_ORDERED, "dot_general") and not ends:
        expression = _expression(eqn, inputs, found, stages)
        if expression is not None:
            return expression
    settled = [stages.settle(value) if isinstance(value, _Followed) else _plain(value) for value in inputs]
    linear = [value for value in settled if isinstance(value, _Followed)]
    is_known = len(linear) == len(found) and len({value.stage for value in linear}) == 1
    if not is_known or aval.dtype != linear[0].bias.dtype or not is_linear:
        return _Unknown()
    return _linear(eqn, settled, linear)


def _expression(eqn: Any, inputs: list[Any], found: list[_Followed], stages: _Stages) -> _Followed | None:
    """What an equation makes of single numbers, the same for all; None if they are not of one value."""
    starts = [start for start in found[0].forms if all(start in value.forms for value in found)]
    expressions = {start: _made_by(eqn, inputs, stages, start) for start in starts}
    if not expressions:
        return None
    if all(value.is_linear for value in found) and _is_linear(eqn, inputs):
        linear = _linear(eqn, [_plain(value) for value in inputs], found)
        return replace(linear, expressions=expressions)
    (bias,) = bind(eqn, [value.bias if isinstance(value, _Followed) else _plain(value) for value in inputs])
    return _Followed(found[0].stage, bias, None, False, expressions, False)


def _is_linear(eqn: Any, inputs: list[Any]) -> bool:
    """Whether a result is linear in the values that are followed together, but for a constant."""
    name = eqn.primitive.name
    n_found = sum(isinstance(value, _Followed) for value in inputs)
    if name in _ORDERED:
        return n_found == 1 and eqn.outvars[0].aval.size == eqn.invars[0].aval.size
    if name == "div":
        return n_found == 1 and isinstance(inputs[0], _Followed)
    return name in _LINEAR and (n_found == 1 or name in ("add", "add_any", "sub"))


def _linear(eqn: Any, inputs: list[Any], found: list[_Followed]) -> _Followed:
    """What a linear equation gives."""

    def given(*values: jax.Array) -> jax.Array:
        rest = iter(values)
        (result,) = bind(eqn, [next(rest) if isinstance(value, _Followed) else value for value in inputs])
        return result

    biases = [value.bias for value in found]
    bias = given(*biases)
    first = found[0]
    if eqn.primitive.name in _ORDERED and first.matrix is None:
        return replace(first, bias=bias)
    matrix = _matrix_of(eqn, inputs) if first.matrix is None else None
    if matrix is None:

        def change(*changes: jax.Array) -> Any:
            return jax.jvp(given, tuple(biases), changes)[1]

        matrix = jax.vmap(change)(*(_explicit(value) for value in found))
    return _Followed(first.stage, bias, matrix.reshape(len(matrix), *bias.shape), False)


def _explicit(value: _Followed) -> jax.Array:
    """The matrix of a value, ``(inputs, *shape)``."""
    if value.matrix is not None:
        return value.matrix
    size = value.bias.size
    return jnp.eye(size, dtype=value.bias.dtype).reshape(size, *value.bias.shape)


def _matrix_of(eqn: Any, inputs: list[Any]) -> jax.Array | None:
    """What a product with all numbers of a value multiplies them with, ``(inputs, outputs)``."""
    if eqn.primitive.name != "dot_general":
        return None
    contracted, batch = eqn.params["dimension_numbers"]
    which = 0 if isinstance(inputs[0], _Followed) else 1
    value, weights = inputs[which], jnp.asarray(inputs[1 - which])
    n_in = int(np.prod([value.bias.shape[axis] for axis in contracted[which]]))
    if batch[0] or n_in != value.bias.size:
        return None
    order = [axis for _, axis in sorted(zip(contracted[which], contracted[1 - which], strict=True))]
    others = [axis for axis in range(weights.ndim) if axis not in order]
    return weights.transpose(*order, *others).reshape(n_in, -1)
