"""Functions and arithmetic, element by element."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ferroket.network.reader import Operand, Reader, Rule, UnreadableError, Value, real_dtype
from ferroket.network.rules import complex_numbers
from ferroket.network.rules.complex_numbers import padded
from ferroket.reasons import ReasonKind

_OF_REALS = (
    *("max", "min", "lt", "le", "gt", "ge", "and", "or", "atan2", "sign", "not", "is_finite", "rsqrt"),
    *("expm1", "log1p", "logistic"),
)

_BOTH = (
    "add",
    "add_any",
    "sub",
    "neg",
    "mul",
    "div",
    "square",
    "integer_pow",
    "sqrt",
    "exp",
    "log",
    "tanh",
    "sin",
    "cos",
    "sinh",
    "cosh",
    "abs",
    "eq",
    "ne",
)

_OF_TRUTH = ("and", "or", "not")

_OF_SIGNED = ("sub", "neg")

_OF_INTEGERS = ("add", "sub", "mul", "neg", "max", "min", "sign", "abs", "lt", "le", "gt", "ge", "eq", "ne", "select_n")

_DEEPEST = 64
"""Longer expressions are written to memory in between."""


def _elementwise(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    aval = eqn.outvars[0].aval
    name, inputs = _by_cheaper(reader, eqn, inputs)
    if name == "add" and (found := _biased(reader, aval.shape, inputs)):
        return [found]
    operands = [reader.parts_of(v, aval.shape) for v in inputs]
    e = reader.expressions
    is_complex = any(len(parts) > 1 for parts in operands)
    check_integers(name, eqn.invars[-1].aval.dtype)
    if name == "integer_pow":
        result = complex_numbers.power(e, operands[0], eqn.params["y"])
    elif name == "real":
        result = operands[0][:1]
    elif name == "imag":
        result = operands[0][1:]
    elif name == "conj":
        re, *im = operands[0]
        result = (re, e.of("neg", *im) if is_complex else e.number(0))
    elif name == "complex":
        result = (*operands[0], *operands[1])
    elif name == "select_n":
        if len(operands) != 3:  # noqa: PLR2004 - a condition and two cases
            raise UnreadableError("it selects one of several cases")
        which, no, yes = operands
        no, yes = (padded(e, parts, max(len(no), len(yes))) for parts in (no, yes))
        result = tuple(e.of("select", which[0], a, b) for a, b in zip(no, yes, strict=True))
    elif name == "clamp":
        low, x, high = (parts[0] for parts in operands)
        result = (e.of("min", e.of("max", x, low), high),)
    elif is_complex:
        result = (
            complex_numbers.FUNCTIONS[name](e, *(padded(e, parts, 2) for parts in operands))
            if name in complex_numbers.FUNCTIONS
            else ()
        )
        if not result:
            raise UnreadableError(f"the kernels have no '{name}' of complex numbers")
    else:
        result = (e.of(name, *(parts[0] for parts in operands)),)
    value = Value(aval.shape, result)
    return [reader.value(reader.places(value)) if max(part.depth for part in result) > _DEEPEST else value]


def _of_division(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """A quotient of integers, or what is left of it: only by numbers that are known, none of which is 0."""
    shape, e, name = eqn.outvars[0].aval.shape, reader.expressions, eqn.primitive.name
    if not jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.signedinteger):
        if name == "div":
            return _elementwise(reader, eqn, inputs)
        raise UnreadableError(f"the kernels have no '{name}' of such numbers")
    divisors = None if isinstance(inputs[1], Value) else reader.constant(inputs[1])
    if divisors is None or not divisors.all():
        raise UnreadableError(f"it has '{name}' by integers that aren't known")
    if (divisors == 1).all():
        return [Value(shape, (reader.parts_of(inputs[0], shape) if name == "div" else (e.number(0),)))]
    (x,), (y,) = (reader.parts_of(v, shape) for v in inputs)
    return [Value(shape, (e.of("quotient" if name == "div" else "rem", x, y),))]


def _one_minus_square(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """(1 + x) (1 - x), as JAX writes it from 0.12 on where it differentiates tanh."""
    shape, e = eqn.outvars[0].aval.shape, reader.expressions
    x = reader.parts_of(inputs[0], shape)
    one = padded(e, (e.number(1),), len(x))
    plus, minus = (tuple(e.of(sign, a, b) for a, b in zip(one, x, strict=True)) for sign in ("add", "sub"))
    times = complex_numbers.FUNCTIONS["mul"]
    return [Value(shape, times(e, plus, minus) if len(x) > 1 else (e.of("mul", *plus, *minus),))]


def _polynomial(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Σ_k a_k x^k by Horner's rule, of JAX 0.12: x, and then the coefficients from the lowest degree on."""
    shape, e = eqn.outvars[0].aval.shape, reader.expressions
    (x, *others), *coefficients = (reader.parts_of(v, shape) for v in inputs)
    if others or any(len(parts) > 1 for parts in coefficients):
        raise UnreadableError("the kernels have no 'polynomial' of complex numbers")
    total = coefficients[-1][0]
    for (coefficient,) in coefficients[-2::-1]:
        total = e.of("add", e.of("mul", total, x), coefficient)
    return [reader.value(reader.places(Value(shape, (total,))))]


def _by_cheaper(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> tuple[str, Sequence[Operand]]:
    """A primitive with its operands, or a faster one."""
    name = "add" if eqn.primitive.name == "add_any" else eqn.primitive.name
    aval = eqn.outvars[0].aval
    is_quotient = name == "div" and jnp.issubdtype(aval.dtype, jnp.inexact)
    if is_quotient and (reciprocal := _reciprocal(reader, aval.size, inputs[1])):
        return "mul", [inputs[0], reciprocal]
    return name, inputs


def _biased(reader: Reader, shape: tuple[int, ...], inputs: Sequence[Operand]) -> Value | None:
    """A sum of products with parameters, and others: these begin with the latter."""
    for value, v in (inputs, inputs[::-1]):
        if isinstance(value, Value) and not isinstance(v, Value) and value.shape == shape:
            return reader.with_bias(value, v)
    return None


def _reciprocal(reader: Reader, size: int, v: Operand) -> Value | None:
    """1/x of a real value whose elements are repeated: division takes longer than multiplication."""
    if not isinstance(v, Value) or len(v.parts) > 1 or v.parts[0].name != "elements":
        return None
    places, inverse = np.unique(v.parts[0].data, return_inverse=True)
    if 2 * places.size > size:
        return None
    e = reader.expressions
    (of_each,) = reader.write([e.of("reciprocal", e.elements(places))], places.size)
    return reader.value([of_each[inverse].reshape(v.shape)])


def check_integers(name: str, dtype: Any) -> None:
    """Integers that stand for truth values and signs have not all in common with other numbers."""
    if name in _OF_TRUTH and not jnp.issubdtype(dtype, np.bool_):
        raise UnreadableError(f"it has '{name}' of the bits of integers")
    if jnp.issubdtype(dtype, jnp.integer) and name not in _OF_INTEGERS:
        raise UnreadableError(f"it has '{name}' of integers")
    if jnp.issubdtype(dtype, jnp.unsignedinteger) and name in _OF_SIGNED:
        raise UnreadableError(f"it has '{name}' of integers without a sign")


def _convert(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """Numbers of another type: of integers there are those only that stand for truth values and signs."""
    (value,), before, after = inputs, eqn.invars[0].aval.dtype, eqn.params["new_dtype"]
    if jnp.issubdtype(after, np.bool_) and not jnp.issubdtype(before, np.bool_):
        zero = reader.expressions.number(0)
        return [Value(value.shape, (reader.expressions.of("ne", value.parts[0], zero),))]
    if jnp.issubdtype(after, jnp.complexfloating):
        if real_dtype(after) != reader.dtype:
            raise UnreadableError(f"it has numbers of {after} among those of {reader.dtype}", ReasonKind.DTYPE)
        parts = value.parts if len(value.parts) > 1 else (*value.parts, reader.expressions.number(0))
        return [Value(value.shape, parts)]
    if jnp.issubdtype(after, jnp.floating) and after != reader.dtype:
        raise UnreadableError(f"it has numbers of {after} among those of {reader.dtype}", ReasonKind.DTYPE)
    if jnp.issubdtype(after, jnp.integer) and jnp.issubdtype(before, jnp.inexact):
        raise UnreadableError("it makes integers of numbers")
    if jnp.issubdtype(after, jnp.unsignedinteger) and before != np.bool_:
        raise UnreadableError("it makes integers without a sign of others")
    return [Value(value.shape, value.parts[:1])]


def _bits(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """The bits of numbers, which the kernels have no instruction for: only their sign may be asked for."""
    return [Value(inputs[0].shape, (reader.expressions.of("bits", *inputs[0].parts),))]


def _shift(reader: Reader, eqn: Any, inputs: Sequence[Operand]) -> Sequence[Value]:
    """The sign of bits: all ones, which is -1, or zeros."""
    places = reader.constant(inputs[1]) if not isinstance(inputs[1], Value) else None
    value, dtype = inputs[0], eqn.outvars[0].aval.dtype
    is_of_bits = isinstance(value, Value) and value.parts[0].name == "bits"
    is_sign = places is not None and bool((places == 8 * dtype.itemsize - 1).all())
    if not is_of_bits or not is_sign or not jnp.issubdtype(dtype, jnp.signedinteger):
        raise UnreadableError("it shifts the bits of numbers")
    e = reader.expressions
    return [Value(value.shape, (e.of("neg", e.of("signbit", *value.parts[0].args)),))]


RULES: dict[str, Rule] = {
    **dict.fromkeys((*_OF_REALS, *_BOTH, "real", "imag", "conj", "complex", "select_n", "clamp"), _elementwise),
    **dict.fromkeys(("div", "rem"), _of_division),
    "one_minus_square": _one_minus_square,
    "polynomial": _polynomial,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bits,
    "shift_right_arithmetic": _shift,
}
