"""Expressions of single numbers: what functions and arithmetic make of values, element by element.

An expression is the same for all elements of a value. Equal ones are one object, so that what a program computes twice
is computed once, and a function is known by its expression, however a framework writes it.
"""

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Expression:
    """A number for each element of a value.

    Attributes:
        name: one of :data:`~ferroket.ffi.INSTRUCTIONS`; or "elements", "table" or "number" for what it begins with.
        args: the expressions that an instruction takes.
        data: of "elements" their places in memory; of "table" the table, and the place in it of each element or of the
            one number for all; of "number" the number.
        depth: how many instructions are one behind the other in it.
    """

    name: str
    args: tuple["Expression", ...] = ()
    data: Any = None
    depth: int = 0


class Expressions:
    """All expressions of a program."""

    def __init__(self, *, is_single: bool = False) -> None:
        self.is_single = is_single
        self._known: dict[Any, Expression] = {}

    def of(self, name: str, *args: Expression) -> Expression:
        """What an instruction makes of others."""
        if args and all(arg.name == "number" for arg in args):
            return self.number(FUNCTIONS[name](*(np.float64(arg.data) for arg in args)))
        folded = self._folded(name, args)
        if folded is not None:
            return folded
        key = name, *map(id, args)
        depth = 1 + max((arg.depth for arg in args), default=0)
        return self._known.setdefault(key, Expression(name, args, depth=depth))

    def number(self, value: Any) -> Expression:
        """A number that depends on nothing."""
        value = float(value)
        return self._known.setdefault(("number", repr(value)), Expression("number", (), value))

    def elements(self, places: np.ndarray) -> Expression:
        """Numbers in memory, one for each element."""
        flat = np.ascontiguousarray(places.ravel(), np.int64)
        return self._known.setdefault(("elements", flat.tobytes()), Expression("elements", (), flat))

    def table(self, table: Any, places: np.ndarray) -> Expression:
        """Numbers that parameters give, at some places of a table: one for each element, or the same for all."""
        flat = np.ascontiguousarray(places.ravel(), np.int64)
        return self._known.setdefault(("table", id(table), flat.tobytes()), Expression("table", (), (table, flat)))

    def _folded(self, name: str, args: Sequence[Expression]) -> Expression | None:
        """A simpler expression of the same value, if there is one."""
        numbers = [arg.data if arg.name == "number" else None for arg in args]
        found: Expression | None = None
        match name, numbers:
            case ("add" | "sub", [None, 0.0]) | ("mul" | "div", [None, 1.0]):
                found = args[0]
            case ("add", [0.0, None]) | ("mul", [1.0, None]):
                found = args[1]
            case "max", [float(number), None] if number == -math.inf:
                found = args[1]
            case "div", [None, float(number)] if number and math.isfinite(number):
                found = self.of("mul", args[0], self.number(1 / number))
            case "mul", [None, None] if args[0] is args[1]:
                found = self.of("square", args[0])
        return found


SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
"""Klambauer, Unterthiner, Mayr, Hochreiter, arXiv:1706.02515."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "atan2": np.arctan2,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "signbit": np.signbit,
    "not": np.logical_not,
    "is_finite": np.isfinite,
    "square": np.square,
    "reciprocal": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, 0),
    "sin": np.sin,
    "cos": np.cos,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "log_cosh": lambda x: np.abs(x) + np.log1p(np.exp(-2 * np.abs(x))) - np.log(2.0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(x)),
    "rem": np.fmod,
    "quotient": lambda x, y: np.trunc(x / y),
    "select": lambda which, no, yes: np.where(which, yes, no),
}
"""What each instruction computes, in NumPy: the readable twin of the kernels."""


def _rounded(number: float) -> float:
    """To single precision, in which frameworks may write a function's numbers."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


class Shapes:
    """What some expressions make of a number x, each with a number of its own."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}
        self._outermost: set[str] = set()
        """The outermost instructions of the expressions that were added."""

    def add(self, expression: Expression, x: Expression) -> int:
        """The number of an expression, also of one that isn't known."""
        self._outermost.add(expression.name)
        number = self.find(within(expression), x, is_new=True)
        assert number is not None
        return number

    def find(self, order: Sequence[Expression], x: Expression, *, is_new: bool = False) -> int | None:
        """The number of the last one of some expressions; None if it isn't known, or made of something else as well.

        Each of the expressions is behind those that it takes.
        """
        if not is_new and order[-1].name not in self._outermost:
            return None
        found: dict[int, int | None] = {}
        is_after_x = False
        for one in order:
            args = [found.get(id(arg)) for arg in one.args]
            key: Any = "x" if one is x else ("number", _rounded(one.data)) if one.name == "number" else None
            if key is None and args and None not in args:
                key = one.name, *args
            if is_new and key is not None:
                self._known.setdefault(key, len(self._known))
            found[id(one)] = self._known.get(key)
            is_after_x |= one is x
            if is_after_x and found[id(one)] is None:  # the last one takes it, not only by way of x
                return None
        return found[id(order[-1])]


def within(expression: Expression, depth: int | None = None, known: Container[int] = ()) -> list[Expression]:
    """An expression and what it is made of, down to a depth and to known ones, each behind what it takes."""
    found: dict[int, Expression] = {}

    def add(expression: Expression, depth: int | None) -> None:
        if id(expression) not in found:
            for arg in expression.args if depth != 0 and id(expression) not in known else ():
                add(arg, None if depth is None else depth - 1)
            found[id(expression)] = expression

    add(expression, depth)
    return list(found.values())
