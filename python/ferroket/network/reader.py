"""What is read of a network so far: values, where they are in memory, and the operations that make them."""

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from ferroket._compat.sharding import evaluated_eagerly
from ferroket.network.numbers import Expression, Expressions, within
from ferroket.network.program import Contract, Map, Memory, Operation, Pair, Places, Reduce, Table
from ferroket.reasons import Reason, ReasonKind

_DEEPEST_NAMED = 9
"""A function that the kernels compute at once has no more instructions one behind the other."""


_NOTED = 1 << 12
"""Of no more numbers one behind the other it is remembered what they are."""


class UnreadableError(Exception):
    """A network that the kernels can't evaluate, and why, as the end of a sentence.

    Args:
        reason: The text.
        kind: What kind of reason it is.
    """

    def __init__(self, reason: str, kind: ReasonKind = ReasonKind.OPERATION) -> None:
        super().__init__(reason)
        self.reason = Reason(reason, kind)


@dataclass(frozen=True)
class Value:
    """What depends on the configuration: one expression, or those of the real and the imaginary part."""

    shape: tuple[int, ...]
    parts: tuple[Expression, ...]

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Constant:
    """Numbers that depend on nothing, as a program's literals are."""

    val: np.ndarray

    @property
    def aval(self) -> Any:
        """Their shape and dtype."""
        return jax.ShapeDtypeStruct(self.val.shape, self.val.dtype)


Operand = Value | Any
"""A value, or else a variable or a literal that depends on parameters alone."""


@dataclass
class Reader:
    """What is read so far."""

    dtype: Any
    """That of real numbers of the network, float32 or float64."""
    name_of: Callable[[Sequence[Expression], Expression], str | None] = lambda order, x: None
    """The function that the kernels compute at once of x, which is the last one of some expressions; or None."""
    memory: Memory = field(default_factory=Memory)
    expressions: Expressions = field(init=False)
    operations: list[Operation] = field(default_factory=list)
    constants: dict[Any, np.ndarray] = field(default_factory=dict)
    """The values of variables that depend on nothing."""
    written: dict[tuple[int, int], Places] = field(default_factory=dict)
    """Where expressions are in memory, by their identity and the number of elements."""
    tables: dict[Any, Table] = field(default_factory=dict)
    origins: dict[Any, tuple[Any, np.ndarray]] = field(default_factory=dict)
    """Of variables that depend on parameters alone: another one, and where in it each element is."""
    contracts: dict[int, Contract] = field(default_factory=dict)
    """Products with parameters, by the first place of their results."""
    products: dict[int, Pair] = field(default_factory=dict)
    """Products of two values each, by the first place of their results."""
    largest: dict[Value, float] = field(default_factory=dict)
    """The greatest modulus that integers may have."""
    numbers_at: dict[int, float] = field(default_factory=dict)
    """Places of numbers that depend on nothing."""
    permutations: set[Value] = field(default_factory=set)
    """Values each of whose rows has all numbers from 0 on once."""
    orders: dict[Value, Value] = field(default_factory=dict)
    """Of which rows were exchanged: the order of all."""
    zeros: Places | None = None
    negatives: dict[int, int] = field(default_factory=dict)
    """Places of imaginary parts, and those where their negatives are: their own if they are zero."""
    conjugates: dict[Any, np.ndarray] = field(default_factory=dict)
    """Of variables that depend on parameters alone: which element the complex conjugate of each is."""

    def __post_init__(self) -> None:
        self.expressions = Expressions(is_single=self.dtype == np.float32)

    # Parameters

    def constant(self, v: Any) -> np.ndarray | None:
        """The value of an operand that depends on nothing; None of others."""
        return np.asarray(v.val) if isinstance(v, Literal | Constant) else self.constants.get(v)

    def largest_of(self, v: Operand) -> float:
        """The greatest modulus that an operand may have."""
        constant = None if isinstance(v, Value) else self.constant(v)
        if constant is not None:
            return float(np.abs(constant).max(initial=0))
        return self.largest.get(v, math.inf) if isinstance(v, Value) else math.inf

    def table(self, v: Any, prepare: Callable[[Any], Any], size: int, key: Any = None) -> Table:
        """A table of an operand that depends on parameters."""
        key = None if key is None or isinstance(v, Literal | Constant) else (v, key)
        if key in self.tables:
            return self.tables[key]
        constant = self.constant(v)
        made = Table(v if constant is None else constant, prepare, size)
        if key is not None:
            self.tables[key] = made
        return made

    def parts_of(self, v: Operand, shape: tuple[int, ...]) -> tuple[Expression, ...]:
        """The expressions of an operand, as elements of a shape or as one for all."""
        if isinstance(v, Value):
            if v.shape == shape:
                return v.parts
            spread = [np.broadcast_to(places, shape) for places in self.places(v)]
            return self.value(spread).parts
        aval = v.aval
        is_complex = jnp.issubdtype(aval.dtype, jnp.complexfloating)
        constant = self.constant(v)
        if constant is not None and constant.size and (constant == constant.flat[0]).all():
            number = constant.flat[0].item()
            of_one = [number.real, number.imag] if is_complex else [number]
            return tuple(self.expressions.number(part) for part in of_one)
        root, where = (v, np.arange(aval.size).reshape(aval.shape)) if constant is not None else self.origin(v)
        where = where if aval.size == 1 else np.broadcast_to(where, shape)
        tables = []
        for place, part in enumerate([jnp.real, jnp.imag] if is_complex else [jnp.asarray]):
            tables.append(self.expressions.table(self.table(root, part, math.prod(root.aval.shape), place), where))
        return tuple(tables)

    def as_value(self, v: Operand) -> Value:
        """An operand as a value, also if it depends on parameters alone."""
        return v if isinstance(v, Value) else Value(v.aval.shape, self.parts_of(v, v.aval.shape))

    def origin(self, v: Any) -> tuple[Any, np.ndarray]:
        """The variable whose elements those of another one are, and where each is in it."""
        return self.origins.get(v) or (v, np.arange(v.aval.size).reshape(v.aval.shape))

    # Memory

    def places(self, value: Value) -> list[Places]:
        """Where the elements of a value are: an array of its shape for each of its parts."""
        found = self.write(list(value.parts), value.size)
        return [places.reshape(value.shape) for places in found]

    def write(self, parts: list[Expression], size: int) -> list[Places]:
        """Where expressions of so many elements are, which are written to memory if they aren't there."""
        open_ones = [
            part for part in dict.fromkeys(parts) if part.name != "elements" and (id(part), size) not in self.written
        ]
        if open_ones:
            self._map(open_ones, size)
        return [part.data if part.name == "elements" else self.written[id(part), size] for part in parts]

    def _map(self, wanted: list[Expression], size: int) -> None:
        """Writes expressions to memory."""
        results = [self._named(expression) for expression in wanted]
        # What is in memory already isn't computed again.
        known: dict[int, Expression] = {}
        order = _needed(results)
        if any(expression.name == "bits" for expression in order):
            raise UnreadableError("it has the bits of numbers")
        for expression in order:
            if expression.args and (id(expression), size) in self.written:
                known[id(expression)] = self.expressions.elements(self.written[id(expression), size])
            elif expression.name == "number":
                table = self.table(Constant(np.array(expression.data)), jnp.asarray, 1)
                known[id(expression)] = Expression("table", (), (table, np.zeros(1, np.int64)))
            elif not expression.args:
                known[id(expression)] = expression
        order = _needed(results, known)
        operands = [expression for expression in order if id(expression) in known]
        register = {id(expression): number for number, expression in enumerate(operands)}
        steps, count, registers = _schedule(order, register, results)
        outs = [self.memory.new(size) for _ in wanted]
        self.operations.append(Map(outs, [known[id(one)] for one in operands], steps, registers, count))
        for expression, out in zip(wanted, outs, strict=True):
            self._note_numbers(expression, out)
            self.written[id(expression), size] = out
            self.written[id(self._named(expression)), size] = out

    def _note_numbers(self, expression: Expression, out: Places) -> None:
        """Remembers numbers that depend on nothing, if there are few."""
        if out.size > _NOTED:
            return
        if expression.name == "number":
            self.numbers_at.update(dict.fromkeys(out.tolist(), expression.data))
        elif expression.name == "table" and isinstance(expression.data[0].value, np.ndarray):
            table, where = expression.data
            with evaluated_eagerly():
                numbers = np.asarray(table.prepare(table.value)).ravel()
            self.numbers_at.update(zip(out.tolist(), np.broadcast_to(numbers[where], out.shape).tolist(), strict=True))

    def _named(self, expression: Expression) -> Expression:
        """An expression with the functions that the kernels compute at once in the place of what makes them up."""
        found: dict[int, Expression] = {}
        for one in within(expression):
            args = [found[id(arg)] for arg in one.args]
            same = (
                one
                if all(a is b for a, b in zip(args, one.args, strict=True))
                else self.expressions.of(one.name, *args)
            )
            order = within(same, _DEEPEST_NAMED)
            for x in order[:-1]:
                if x.name != "number" and (name := self.name_of(order, x)):
                    same = self.expressions.of(name, x)
                    break
            found[id(one)] = same
        return found[id(expression)]

    def value(self, places: Sequence[Places]) -> Value:
        """The value whose elements are at these places."""
        return Value(places[0].shape, tuple(self.expressions.elements(part) for part in places))

    def negative(self, places: Places) -> Places:
        """Where the negatives of numbers are known to be; -1 elsewhere."""
        found = [self.negatives.get(place, -1) for place in places.ravel().tolist()]
        return np.array(found, np.int64).reshape(places.shape)

    def zero(self, count: int) -> Places:
        """So many places of zeros, one behind the other."""
        if self.zeros is None or self.zeros.size < count:
            zero = self.expressions.table(self.table(Constant(np.zeros(())), jnp.asarray, 1), np.zeros(1))
            self.zeros = self.memory.new(count)
            self.operations.append(Map([self.zeros], [zero], [], [0], 1))
        return self.zeros[:count]

    # Operations

    def contract(
        self, places: Sequence[Places], weights: Any, prepare: Callable[[Any], Any], shape: Sequence[int]
    ) -> list[Places]:
        """Products with parameters: places ``(G, P, J)`` of each part, weights that `prepare` makes ``(G, J, M)`` of.

        Returns:
            Places of each part of the result, ``(G, P, M)``.
        """
        groups, depth, width = shape
        if not depth:
            raise UnreadableError("it sums up nothing")
        is_complex = jnp.issubdtype(weights.aval.dtype, jnp.complexfloating)
        positions = places[0].shape[1]
        if is_complex and len(places) > 1:
            both = np.concatenate(places, axis=2)

            def matrix(w: Any) -> Any:
                w = prepare(w)
                rows = [jnp.concatenate([w.real, w.imag], 2), jnp.concatenate([-w.imag, w.real], 2)]
                return jnp.concatenate(rows, 1)

            out = self._contract(both, weights, matrix, (groups, 2 * depth, 2 * width))
            return [out[..., :width], out[..., width:]]
        if is_complex:

            def matrix(w: Any) -> Any:
                w = prepare(w)
                return jnp.concatenate([w.real, w.imag], 2)

            out = self._contract(places[0], weights, matrix, (groups, depth, 2 * width))
            return [out[..., :width], out[..., width:]]
        out = self._contract(np.concatenate(places, axis=1), weights, prepare, shape)
        return [out[:, part * positions : (part + 1) * positions] for part in range(len(places))]

    def add(self, operation: Operation) -> None:
        """Adds an operation whose results have places."""
        self.operations.append(operation)

    def _contract(self, places: Places, weights: Any, prepare: Callable[[Any], Any], shape: Sequence[int]) -> Places:
        groups, depth, width = shape
        table = self.table(weights, prepare, groups * depth * width)
        return self._contracted(Contract(self.memory.new(groups, places.shape[1], width), places, table))

    def _contracted(self, operation: Contract) -> Places:
        self.operations.append(operation)
        if operation.out.size:
            self.contracts[int(operation.out.flat[0])] = operation
        return operation.out

    def with_bias(self, value: Value, v: Any) -> Value | None:
        """What products gave, with parameters added to it that are the same at all positions; None for other sums."""
        biases = self.parts_of(v, value.shape)
        parts = value.parts
        if len(parts) != len(biases) or {part.name for part in parts} != {"elements"} or not value.size:
            return None
        if {bias.name for bias in biases} != {"table"}:
            return None
        places = np.concatenate([part.data for part in parts])
        made = self.contracts.get(int(places.min()))
        if made is None or made.bias or not np.array_equal(np.sort(places), made.out.ravel()):
            return None
        # By group, position and output: which number of which table.
        numbers = np.concatenate([np.broadcast_to(bias.data[1], value.size) for bias in biases])
        number, table = np.empty((2, places.size), np.int64)
        within = places - made.out.flat[0]
        number[within], table[within] = numbers, np.repeat(np.arange(len(biases)), value.size)
        number, table = number.reshape(made.out.shape), table.reshape(made.out.shape)
        if (number != number[:, :1]).any() or (table != table[:, :1]).any():
            return None
        bias = [(one.data[0], table[:, 0].ravel() == which, number[:, 0].ravel()) for which, one in enumerate(biases)]
        out = self._contracted(Contract(self.memory.new(*made.out.shape), made.places, made.weights, bias))
        return self.value(list(out.ravel()[within].reshape(len(parts), *value.shape)))

    def pair(self, left: Places, right: Places) -> Places:
        """Products of places ``(B, I, K)`` and ``(B, J, K)``, summed: ``(B, I, J)``."""
        if not self.memory.has_steps(right):
            if self.memory.has_steps(left):
                return self.pair(right, left).swapaxes(1, 2)
            right = self.copied(right)
        return self._pair(left, right, has_steps=True)

    def _pair(self, left: Places, right: Places, *, has_steps: bool) -> Places:
        operation = Pair(self.memory.new(*left.shape[:2], right.shape[1]), left, right, has_steps)
        self.operations.append(operation)
        if left.shape[-1] == 1 and operation.out.size:
            self.products[int(operation.out.flat[0])] = operation
        return operation.out

    def copied(self, places: Places) -> Places:
        """Other places, one behind the other, with the same numbers."""
        out = self.memory.new(*places.shape)
        self.operations.append(Map([out.ravel()], [self.expressions.elements(places)], [], [0], 1))
        return out

    def _factors(self, rows: Places) -> tuple[Places, Places] | None:
        """The factors of numbers ``(R, K)`` that are products of two, ``(R, 1, K)`` each; None if they aren't."""
        starts = np.unique(np.searchsorted(self.memory.starts, rows.ravel(), "right") - 1)
        product = self.products.get(self.memory.starts[starts[0]]) if len(starts) == 1 else None
        if product is None:
            return None
        batch, i, j = np.unravel_index(rows - product.out.flat[0], product.out.shape)
        return product.left[batch, i, 0][:, None], product.right[batch, j, 0][:, None]

    def reduce(self, places: Places, kind: str) -> Places:
        """The sum, greatest or least of places ``(..., K)`` along the last axis."""
        rows = places.reshape(-1, places.shape[-1])
        if kind == "sum" and (factors := self._factors(rows)):
            return self._pair(*factors, has_steps=False).reshape(places.shape[:-1])
        out = self.memory.new(len(rows))
        self.operations.append(Reduce(out, rows, kind))
        return out.reshape(places.shape[:-1])


def _needed(wanted: list[Expression], known: Container[int] = ()) -> list[Expression]:
    """Expressions and what they are made of, each behind what it takes; but not what known ones are made of."""
    found: dict[int, Expression] = {}
    for expression in wanted:
        found.update({id(one): one for one in within(expression, known=known)})
    return list(found.values())


def _schedule(
    order: list[Expression], operands: dict[int, int], wanted: list[Expression]
) -> tuple[list[tuple[str, int, tuple[int, ...]]], int, list[int]]:
    """The steps that make expressions, with registers that are used again. What is an operand isn't made."""
    made = [one for one in order if id(one) not in operands]
    last = {id(arg): number for number, one in enumerate(made) for arg in one.args}
    last.update({id(one): len(made) for one in wanted})
    register, count = dict(operands), len(set(operands.values()))
    free: list[int] = []
    steps = []
    for number, one in enumerate(made):
        if free:
            register[id(one)] = free.pop()
        else:
            register[id(one)], count = count, count + 1
        steps.append((one.name, register[id(one)], tuple(register[id(arg)] for arg in one.args)))
        for arg in dict.fromkeys(map(id, one.args)):
            if last[arg] == number and arg not in operands:
                free.append(register[arg])
    return steps, count, [register[id(one)] for one in wanted]


def real_dtype(dtype: Any) -> Any:
    """The dtype of the parts of numbers."""
    return np.zeros(0, dtype).real.dtype


Rule = Callable[[Reader, Any, Sequence[Operand]], Sequence[Value]]
