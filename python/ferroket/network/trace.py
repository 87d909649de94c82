"""The program of a network for one configuration, read as operations of the kernels.

Values that depend on the configuration are followed through the network's jaxpr. What moves numbers gives them other
places; what makes one number of others, element by element, gives expressions, which are written to memory where a sum
or a product needs them; products with parameters, products of such values, and sums are operations. What depends on
parameters alone is a table, which XLA computes.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from ferroket._compat.sharding import evaluated_eagerly
from ferroket.ansatz import dependence
from ferroket.ansatz.equations import evaluate, inlined, needed
from ferroket.ffi.primitives import OwnPrimitive
from ferroket.network import conjugates, integers
from ferroket.network.numbers import Expression, Shapes
from ferroket.network.program import Places, Program, assemble, concatenated, needed_operations
from ferroket.network.reader import Operand, Reader, UnreadableError, Value, real_dtype
from ferroket.network.rules import RULES
from ferroket.network.rules.moving import MOVING, ORDERED
from ferroket.reasons import ReasonKind

_LONGEST = 1 << 24
"""Longer programs take too much memory themselves."""

_FOLDED = 1 << 16
"""Constants of no more elements are computed while the network is read."""


def read(function: Callable[..., jax.Array], variables: Any, numbers: Any, *others: Any) -> Program:
    """The program that computes ``function(variables, *others, numbers)`` from numbers of one configuration.

    Args:
        function: ln ψ from numbers ``(H,)``.
        variables: its variables, or their shapes.
        numbers: the numbers, or their shape: float32 or float64.
        others: what the function doesn't need, or their shapes.

    Raises:
        UnreadableError: the kernels can't evaluate it.
    """
    followed = follow(function, variables, numbers, *others)
    (result,) = followed.results
    if not isinstance(result, Value):
        raise UnreadableError("its value doesn't depend on the configuration", ReasonKind.UNREADABLE)
    return followed.program(np.array([places.item() for places in followed.reader.places(result)]))


@dataclass(frozen=True, eq=False)
class Followed:
    """A program whose values are followed: what it makes of the numbers of a configuration."""

    reader: Reader
    jaxpr: ClosedJaxpr
    shapes: tuple[Any, ...]
    """Variables, other arguments, and numbers."""
    inputs: Places
    results: list[Operand]
    """In the order of the program's results."""

    def program(self, results: Places) -> Program:
        """The program that computes what is at some places.

        Raises:
            UnreadableError: it would be too long.
        """
        reader = self.reader
        with _xla_takes_what_fails():
            operations = needed_operations(reader.memory, results, reader.operations)
            words, tables = assemble(reader.memory, self.inputs, results, operations)
        if len(words) > _LONGEST:
            raise UnreadableError(f"its program has {len(words)} words, more than {_LONGEST}", ReasonKind.TOO_LARGE)
        wanted = [table.value for table in tables if not isinstance(table.value, np.ndarray)]

        def numbers_of(variables: Any) -> jax.Array:
            found = iter(self.of_variables(variables, wanted))
            values = [table.value if isinstance(table.value, np.ndarray) else next(found) for table in tables]
            return concatenated(tables, values, reader.dtype)

        return Program(words, numbers_of, self.inputs.size, results.size, operations)

    def of_variables(self, variables: Any, wanted: Sequence[Any]) -> list[Any]:
        """What depends on variables alone."""
        _, *others, numbers = self.shapes
        unused = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in (*jax.tree.leaves(others), numbers)]
        return evaluate(self.jaxpr, [*jax.tree.leaves(variables), *unused], wanted)


def follow(function: Callable[..., Any], variables: Any, numbers: Any, *others: Any, dtype: Any = None) -> Followed:
    """Follows what a function of variables, others and the numbers of one configuration makes of these.

    Args:
        function: ``function(variables, *others, numbers)`` for numbers ``(H,)`` gives a pytree of arrays.
        variables: its variables, or their shapes.
        numbers: the numbers, or their shape.
        others: what the function doesn't need, or their shapes.
        dtype: that of the real numbers of the program, by default the one of the numbers.

    Raises:
        UnreadableError: the kernels can't evaluate it.
    """
    with _xla_takes_what_fails():
        return _followed(function, variables, numbers, others, dtype)


@contextmanager
def _xla_takes_what_fails() -> Iterator[None]:
    """What isn't understood, as a network that takes integers alone, is an :class:`UnreadableError`."""
    try:
        yield
    except (ArithmeticError, AssertionError, LookupError, NotImplementedError, TypeError, ValueError) as error:
        if isinstance(error, AssertionError):
            message = "reading a network ended in an AssertionError, a defect that you should report: XLA evaluates it"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        reason = str(error).partition("\n")[0][:200]
        text = f"reading it ends in {type(error).__name__}: {reason}"
        raise UnreadableError(text, ReasonKind.UNREADABLE) from error


def _followed(
    function: Callable[..., Any], variables: Any, numbers: Any, others: Sequence[Any], dtype: Any
) -> Followed:
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), (variables, *others, numbers)
    )
    jaxpr = inlined(jax.make_jaxpr(function)(*shapes), with_loops=True)
    dtype = np.dtype(numbers.dtype if dtype is None else dtype)
    if dtype not in (np.float32, np.float64):
        raise UnreadableError(f"its numbers are {dtype}, not float32 or float64", ReasonKind.DTYPE)
    reader = Reader(dtype, _name_of)
    inputs = reader.memory.new(*numbers.shape)
    value = reader.value([inputs])
    if jnp.issubdtype(numbers.dtype, jnp.integer):
        reader.largest[value] = float(jnp.iinfo(numbers.dtype).max)  # no local state is the least integer, one below
    elif numbers.dtype != dtype:
        raise UnreadableError(f"its configurations are {numbers.dtype}, and its numbers {dtype}", ReasonKind.DTYPE)
    results = _follow(reader, jaxpr, value, len(jax.tree.leaves(others)))
    for v in jaxpr.out_avals:
        if real_dtype(v.dtype) != dtype:
            raise UnreadableError(f"it gives {v.dtype} of numbers of {dtype}", ReasonKind.DTYPE)
    return Followed(reader, jaxpr, shapes, inputs, results)


def _follow(reader: Reader, jaxpr: ClosedJaxpr, numbers: Value, n_others: int) -> list[Operand]:
    """The results of a program whose last argument are the numbers."""
    program = jaxpr.jaxpr
    values: dict[Any, Any] = {program.invars[-1]: numbers}
    unusable = set(program.invars[len(program.invars) - 1 - n_others : -1])
    constants = zip(program.constvars, jaxpr.consts, strict=True)
    reader.constants.update({v: np.asarray(value) for v, value in constants if not isinstance(value, jax.core.Tracer)})
    for eqn in needed(program, program.outvars):
        inputs = [v if isinstance(v, Literal) else values.get(v, v) for v in eqn.invars]
        if any(v in unusable for v in eqn.invars if not isinstance(v, Literal)):
            text = "what comes behind the first layer takes the configuration as well"
            raise UnreadableError(text, ReasonKind.UNREADABLE)
        if not any(isinstance(value, Value) for value in inputs):
            _fold(reader, eqn, inputs)
            continue
        rule = RULES.get(eqn.primitive.name)
        if rule is None:
            is_own = isinstance(eqn.primitive, OwnPrimitive)
            text = "'{}' is a call of its own" if is_own else "the kernels have no '{}'"
            raise UnreadableError(text.format(eqn.primitive.name))
        results = rule(reader, eqn, inputs)
        for v, value in zip(eqn.outvars, results, strict=True):
            assert value.shape == v.aval.shape, (eqn.primitive.name, value.shape, v.aval.shape)
            values[v] = value
        _check_largest(reader, eqn, inputs, results)
    return [v if isinstance(v, Literal) else values.get(v, v) for v in program.outvars]


def _check_largest(reader: Reader, eqn: Any, inputs: Sequence[Operand], results: Sequence[Value]) -> None:
    """Raises :class:`UnreadableError` if an integer may be too large."""
    dtype = eqn.outvars[0].aval.dtype
    if not (jnp.issubdtype(dtype, jnp.integer) or dtype == np.bool_):
        return
    found = integers.largest(eqn, [reader.largest_of(v) for v in inputs])
    if dtype != np.bool_ and found > integers.most(dtype, reader.dtype):
        raise UnreadableError(f"its integers of {dtype} may be too large ('{eqn.primitive.name}')")
    reader.largest.update(dict.fromkeys(results, found))


def _fold(reader: Reader, eqn: Any, inputs: Sequence[Any]) -> None:
    """Computes what depends on nothing."""
    known = [reader.constant(v) for v in inputs]
    if len(inputs) == 1 and eqn.primitive.name in (*ORDERED, *MOVING) and not isinstance(inputs[0], Literal):
        root, where = reader.origin(inputs[0])
        moved = dependence.RULES[eqn.primitive.name](eqn, [where])
        reader.origins.update({v: (root, np.asarray(places)) for v, places in zip(eqn.outvars, moved, strict=True)})
    if (conjugate := conjugates.of(reader, eqn, inputs)) is not None:
        reader.conjugates[eqn.outvars[0]] = conjugate
    if any(value is None for value in known) or sum(v.aval.size for v in eqn.outvars) > _FOLDED:
        return
    if eqn.primitive.name.startswith("random") or eqn.effects:
        return
    with evaluated_eagerly():
        values = [jnp.asarray(value, v.aval.dtype) for value, v in zip(known, eqn.invars, strict=True)]
        # Not as `bind` does, which is of the mesh under which the network was traced.
        results = eqn.primitive.bind(*values, **eqn.params)
    results = results if eqn.primitive.multiple_results else [results]
    reader.constants.update({v: np.asarray(value) for v, value in zip(eqn.outvars, results, strict=True)})


def _name_of(order: Sequence[Expression], x: Expression) -> str | None:
    """The function that the kernels compute at once of x, which is the last one of some expressions; or None."""
    names, shapes = named()
    return names.get(shapes.find(order, x))


@lru_cache
def named() -> tuple[dict[int | None, str], Shapes]:
    """The functions that the kernels compute at once, by what they make of x as JAX and NetKet write them."""
    functions = {
        "gelu": jax.nn.gelu,
        "silu": jax.nn.silu,
        "softplus": jax.nn.softplus,
        "log_cosh": nk.nn.activation.log_cosh,
        "relu": jax.nn.relu,
        "elu": jax.nn.elu,
        "selu": jax.nn.selu,
    }
    found: dict[int | None, str] = {}
    shapes = Shapes()
    for name, function in functions.items():
        reader = Reader(np.dtype(jnp.result_type(float)))
        jaxpr = inlined(jax.make_jaxpr(function)(jax.ShapeDtypeStruct((2,), jnp.result_type(float))))
        x = reader.value([reader.memory.new(2)])
        (result,) = _follow(reader, jaxpr, x, 0)
        found[shapes.add(result.parts[0], x.parts[0])] = name
    return found, shapes
