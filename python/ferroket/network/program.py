"""A network as the kernels evaluate it: operations on numbers in memory, one after the other, and their tables.

Each number of the network is a place in memory, where the kernels have it for many configurations side by side. Values
are arrays of places, so that to move data is to have other places, and takes no time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket import ffi
from ferroket.ffi import INSTRUCTIONS
from ferroket.network.numbers import Expression

Places = np.ndarray
"""Places in memory, of the shape of a value."""


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers that depend on parameters alone.

    Attributes:
        value: the variable of the network's program, or an array.
        prepare: makes the numbers of it, real ones.
        size: how many there are.
    """

    value: Any
    prepare: Callable[[Any], Any]
    size: int


class _WithOneResult:
    """An operation that writes numbers one behind the other."""

    out: Places

    @property
    def outs(self) -> list[Places]:
        """The places that are written."""
        return [self.out]


@dataclass(frozen=True, eq=False)
class Contract(_WithOneResult):
    """``out[g, p, m] = bias[g, m] + Σ_j memory[places[g, p, j]] weights[g, j, m]``: products with parameters.

    Attributes:
        bias: tables, which ``g, m`` of those one behind the other have a number of each, and its place; zeros if empty.
    """

    out: Places
    places: Places
    weights: Table
    bias: Sequence[tuple[Table, np.ndarray, np.ndarray]] = ()

    def read(self) -> list[Places]:
        """The places that are read."""
        return [self.places]

    def words(self, at: Callable[[Places], Places], offset: Callable[[Table], int]) -> list[Any]:
        """The operation as the kernels read it."""
        depth = self.places.shape[-1]
        taps, length = _runs(at(self.places))
        bias = np.sum([np.where(is_of, offset(table) + number, 0) for table, is_of, number in self.bias], 0, np.int64)
        head = [*self.out.shape, depth, length, at(self.out)[0, 0, 0], offset(self.weights)]
        return [*head, int(bool(self.bias)), bias if self.bias else (), taps]


@dataclass(frozen=True, eq=False)
class Pair(_WithOneResult):
    """``out[b, i, j] = Σ_k memory[left[b, i, k]] memory[right[b, j, k]]``: products of activations.

    Attributes:
        has_steps: whether from one k to the next one the places of `right` go on by the same step.
    """

    out: Places
    left: Places
    right: Places
    has_steps: bool

    def read(self) -> list[Places]:
        """The places that are read."""
        return [self.left, self.right]

    def words(self, at: Callable[[Places], Places], offset: Callable[[Table], int]) -> list[Any]:
        """The operation as the kernels read it."""
        depth = self.left.shape[-1]
        step = int(np.diff(self.right.flat[:2])[0]) if depth > 1 and self.has_steps else 1
        right = self.right[..., 0] if self.has_steps else self.right
        return [*self.out.shape, depth, int(not self.has_steps), step, at(self.out)[0, 0, 0], at(self.left), at(right)]


@dataclass(frozen=True, eq=False)
class Reduce(_WithOneResult):
    """``out[r]``: the sum, product, greatest or least of ``memory[places[r, k]]``."""

    out: Places
    places: Places
    kind: str

    KINDS = ("sum", "max", "min", "prod")

    def read(self) -> list[Places]:
        """The places that are read."""
        return [self.places]

    def words(self, at: Callable[[Places], Places], offset: Callable[[Table], int]) -> list[Any]:
        """The operation as the kernels read it."""
        return [*self.places.shape, self.KINDS.index(self.kind), at(self.out)[0], at(self.places)]


@dataclass(frozen=True, eq=False)
class Map:
    """Instructions on registers, for each element.

    Attributes:
        outs: where each of `results` goes.
        operands: the expressions that begin with memory, a table or a number; operand r is register r.
        steps: instruction, register of the result, and registers of its arguments.
        results: the registers that are kept.
    """

    outs: list[Places]
    operands: list[Expression]
    steps: list[tuple[str, int, tuple[int, ...]]]
    results: list[int]
    registers: int

    def read(self) -> list[Places]:
        """The places that are read."""
        return [operand.data for operand in self.operands if operand.name == "elements"]

    def words(self, at: Callable[[Places], Places], offset: Callable[[Table], int]) -> list[Any]:
        """The operation as the kernels read it."""
        size = self.outs[0].size
        words: list[Any] = [size, len(self.operands), self.registers]
        for operand in self.operands:
            if operand.name == "elements":
                places = at(operand.data)
                is_run = (np.diff(places) == 1).all()
                words += [0, places[0]] if is_run else [1, places]
            else:
                table, places = operand.data
                words += [2 if places.size > 1 or size == 1 else 3, offset(table) + places]
        words.append(len(self.steps))
        for name, result, args in self.steps:
            words += [INSTRUCTIONS.index(name), result, *args, *(0,) * (3 - len(args))]
        words.append(len(self.results))
        for register, out in zip(self.results, self.outs, strict=True):
            words += [register, at(out)[0]]
        return words


@dataclass(frozen=True, eq=False)
class Lu:
    """Matrices P A = L U: ``(B, n, n, parts)``, where numbers have a real part or an imaginary one as well.

    Attributes:
        diagonals: ``(B, n (2 + parts))``: with which row each was exchanged, the order of the rows, the diagonal of U.
        triangles: L below the diagonal, and U, of the shape of the matrices; None if nobody reads them.
    """

    diagonals: Places
    triangles: Places | None
    places: Places

    @property
    def outs(self) -> list[Places]:
        """The places that are written."""
        return [self.diagonals, *([] if self.triangles is None else [self.triangles])]

    def read(self) -> list[Places]:
        """The places that are read."""
        return [self.places]

    def words(self, at: Callable[[Places], Places], offset: Callable[[Table], int]) -> list[Any]:
        """The operation as the kernels read it."""
        batch, n, _, parts = self.places.shape
        triangles = [0] if self.triangles is None else [1, _first(at(self.triangles))]
        return [batch, n, parts, _first(at(self.diagonals)), *triangles, at(self.places)]


@dataclass(frozen=True, eq=False)
class Triangular(_WithOneResult):
    """X of L X = B, with matrices L ``(B, n, n, parts)``, of which what is above the diagonal isn't read.

    Attributes:
        out: X, as B ``(B, n, columns, parts)``.
        has_ones: whether the diagonal is 1, whatever there is.
    """

    out: Places
    matrix: Places
    right: Places
    has_ones: bool

    def read(self) -> list[Places]:
        """The places that are read."""
        return [self.matrix, self.right]

    def words(self, at: Callable[[Places], Places], offset: Callable[[Table], int]) -> list[Any]:
        """The operation as the kernels read it."""
        return [*self.right.shape, int(self.has_ones), _first(at(self.out)), at(self.matrix), at(self.right)]


@dataclass(frozen=True, eq=False)
class Pfaffian(_WithOneResult):
    """Factors ``(B, n / 2, parts)`` of the Pfaffians of skew-symmetric matrices ``(B, n, n, parts)``."""

    out: Places
    places: Places

    def read(self) -> list[Places]:
        """The places that are read."""
        return [self.places]

    def words(self, at: Callable[[Places], Places], offset: Callable[[Table], int]) -> list[Any]:
        """The operation as the kernels read it."""
        batch, n, _, parts = self.places.shape
        return [batch, n, parts, _first(at(self.out)), at(self.places)]


@dataclass(frozen=True, eq=False)
class Take(_WithOneResult):
    """``out[r, c] = memory[tables[table[r], memory[index[r]], c]]``: elements whose places depend on the configuration.

    Attributes:
        has_limits: whether what is out of bounds is NaN. Else it is the nearest element.
    """

    out: Places
    index: Places
    table: np.ndarray
    tables: Places
    has_limits: bool

    def read(self) -> list[Places]:
        """The places that are read."""
        return [self.index, self.tables]

    def words(self, at: Callable[[Places], Places], offset: Callable[[Table], int]) -> list[Any]:
        """The operation as the kernels read it."""
        n_tables, choices, columns = self.tables.shape
        head = [len(self.index), choices, columns, int(self.has_limits), n_tables, _first(at(self.out))]
        return [*head, at(self.index), self.table, at(self.tables)]


@dataclass(frozen=True, eq=False)
class Put(_WithOneResult):
    """``out[targets[table[r], memory[index[r]], c]] += memory[places[r, c]]``, of zeros.

    Attributes:
        has_limits: whether what is out of bounds is left out. Else it is added to the nearest place.
    """

    out: Places
    index: Places
    table: np.ndarray
    targets: np.ndarray
    places: Places
    has_limits: bool

    def read(self) -> list[Places]:
        """The places that are read."""
        return [self.index, self.places]

    def words(self, at: Callable[[Places], Places], offset: Callable[[Table], int]) -> list[Any]:
        """The operation as the kernels read it."""
        n_tables, choices, columns = self.targets.shape
        head = [len(self.index), choices, columns, int(self.has_limits), n_tables, self.out.size, _first(at(self.out))]
        return [*head, at(self.index), self.table, self.targets, at(self.places)]


@dataclass(frozen=True, eq=False)
class Rows(_WithOneResult):
    """``out[r, c] = bias[i, c] + Σ_j memory[places[j]] weights[i, j, c]`` with ``i = memory[index[r]]``.

    Rows of parameters, or of what products with such give, which depend on the configuration: no others are computed.

    Attributes:
        weights: ``(choices, depth, columns)``; None without products.
        bias: what is added up: tables, and which of them has each number and where, ``(choices, columns)``.
        has_limits: whether what is out of bounds is NaN. Else it is the nearest row.
    """

    out: Places
    index: Places
    places: Places
    weights: Table | None
    bias: Sequence[Sequence[tuple[Table, np.ndarray, np.ndarray]]]
    choices: int
    has_limits: bool

    def read(self) -> list[Places]:
        """The places that are read."""
        return [self.index, self.places]

    def words(self, at: Callable[[Places], Places], offset: Callable[[Table], int]) -> list[Any]:
        """The operation as the kernels read it."""
        head = [len(self.index), self.choices, len(self.places), self.out.shape[-1], int(self.has_limits)]
        bias = [
            np.sum([np.where(is_of, offset(table) + number, 0) for table, is_of, number in one], axis=0, dtype=np.int64)
            for one in self.bias
        ]
        places = [_first(at(self.out)), at(self.index), at(self.places)]
        return [*head, *places, 0 if self.weights is None else offset(self.weights), len(bias), *bias]


Operation = Contract | Pair | Reduce | Map | Lu | Triangular | Pfaffian | Take | Put | Rows
_CODES = (Contract, Pair, Reduce, Map, Lu, Triangular, Pfaffian, Take, Put, Rows)


def _first(places: Places) -> Any:
    """The first one of places one behind the other."""
    return places.flat[0]


def _runs(places: Places) -> tuple[Places, int]:
    """Places as the first ones of runs, and the length of these."""
    depth = places.shape[-1]
    flat = places.reshape(-1, depth)
    breaks = np.flatnonzero((np.diff(flat, axis=1) != 1).any(axis=0)) + 1
    length = gcd(depth, *map(int, breaks))
    return places[..., ::length], length


@dataclass
class Memory:
    """The places that there are."""

    starts: list[int] = field(default_factory=list)
    """The first place of each array, as if none were used twice."""
    size: int = 0

    @property
    def sizes(self) -> np.ndarray:
        """How many places each array has."""
        return np.diff([*self.starts, self.size])

    def has_steps(self, places: Places) -> bool:
        """Whether places go on by the same step along the last axis, wherever the arrays are that they belong to."""
        steps = np.unique(np.diff(places, axis=-1))
        first, last = (np.searchsorted(self.starts, places[..., end], "right") for end in (0, -1))
        return steps.size == 0 or bool(steps.size == 1 and steps[0] >= 0 and (first == last).all())

    def new(self, *shape: int) -> Places:
        """An array of places."""
        count = int(np.prod(shape))
        self.starts.append(self.size)
        self.size += count
        return np.arange(self.size - count, self.size, dtype=np.int64).reshape(shape)


@dataclass(frozen=True, eq=False)
class Program:
    """A program of operations.

    Attributes:
        words: what the kernels read, int32.
        tables: ``tables(variables)`` gives the numbers that parameters make, of the dtype of the network.
        inputs: how many numbers it takes of each configuration.
        results: how many it gives.
    """

    words: np.ndarray
    tables: Callable[[Any], jax.Array]
    inputs: int
    results: int
    operations: Sequence[Operation]

    def operands(self, variables: Any) -> list[Any]:
        """What the kernels take beside the numbers of configurations."""
        return [self.words, self.tables(variables)]

    def evaluate(self, numbers: jax.Array, operands: Sequence[Any]) -> jax.Array:
        """Ln ψ ``(n,)`` from numbers ``(n, H)``, of a program that gives it in one or two parts."""
        values = ffi.network(numbers, operands[0], operands[1], self.results)
        return jax.lax.complex(values[:, 0], values[:, 1]) if self.results > 1 else values[:, 0]

    def __str__(self) -> str:
        products = sum(isinstance(one, Contract | Pair | Rows) for one in self.operations)
        return f"in Rust, in lanes: {len(self.operations)} operations, {products} of them products"


def assemble(
    memory: Memory, inputs: Places, results: Places, operations: Sequence[Operation]
) -> tuple[np.ndarray, list[Table]]:
    """The words of a program, and its tables in the order in which they stand one behind the other."""
    tables: dict[int, Table] = {}
    offsets: dict[int, int] = {}
    starts = np.array(memory.starts)
    where = _outs_in_order(memory, operations)
    moved, size = _shared_memory(memory, inputs, results, operations)
    total = 0

    def offset(table: Table) -> int:
        nonlocal total
        if id(table) not in offsets:
            tables[id(table)], offsets[id(table)] = table, total
            total += table.size
        return offsets[id(table)]

    def at(places: Places) -> Places:
        array = np.searchsorted(starts, places, "right") - 1
        return where[places] - starts[array] + moved[array]

    bodies = [[_CODES.index(type(one)), *one.words(at, offset)] for one in operations]
    head = [inputs.size, at(inputs).flat[0], results.size, *at(results.ravel()), size, total, len(operations)]
    parts = [np.ravel(word) for words in [head, *bodies] for word in words]
    return np.concatenate(parts).astype(np.int32), list(tables.values())


def _outs_in_order(memory: Memory, operations: Sequence[Operation]) -> Places:
    """For each place the one that takes its part, so that what products and functions give is one behind the other."""
    where = np.arange(memory.size)
    for operation in operations:
        outs = operation.outs
        for out in outs if isinstance(operation, Contract | Map) and outs[0].size else ():
            first = memory.starts[np.searchsorted(memory.starts, out.flat[0], "right") - 1]
            where[out.ravel()] = first + np.arange(out.size)
    return where


def needed_operations(memory: Memory, results: Places, operations: Sequence[Operation]) -> list[Operation]:
    """The operations whose results are needed, in order; of functions the elements, of products the outputs."""
    is_read = np.zeros(memory.size, bool)
    is_read[results] = True
    found: list[Operation] = []
    for operation in reversed(operations):
        if any(is_read[out].any() for out in operation.outs):
            narrowed = _narrowed(operation, is_read)
            found.append(narrowed)
            for places in narrowed.read():
                is_read[places] = True
                if isinstance(narrowed, Pair) and narrowed.has_steps and places is narrowed.right:  # which stay so
                    for array in np.unique(np.searchsorted(memory.starts, places.ravel(), "right") - 1):
                        is_read[memory.starts[array] :][: memory.sizes[array]] = True
    return found[::-1]


def _narrowed(operation: Operation, is_read: np.ndarray) -> Operation:
    """Products without the outputs that nothing reads, and functions without such elements."""
    if isinstance(operation, Map):
        return _narrowed_map(operation, is_read)
    if isinstance(operation, Lu) and operation.triangles is not None and not is_read[operation.triangles].any():
        return replace(operation, triangles=None)
    if not isinstance(operation, Contract):
        return operation
    which = np.flatnonzero(is_read[operation.out].any(axis=(0, 1)))
    groups, depth, width = operation.out.shape[0], operation.places.shape[-1], operation.out.shape[-1]
    if len(which) == width:
        return operation
    weights = operation.weights

    def prepare(value: Any) -> Any:
        return weights.prepare(value)[..., which]

    of_bias = np.add.outer(np.arange(groups) * width, which).ravel()
    bias = [(table, is_of[of_bias], number[of_bias]) for table, is_of, number in operation.bias]
    table = Table(weights.value, prepare, groups * depth * len(which))
    return Contract(operation.out[..., which], operation.places, table, bias)


def _narrowed_map(operation: Map, is_read: np.ndarray) -> Map:
    """Functions of the elements that something reads."""
    which = np.flatnonzero(np.any([is_read[out.ravel()] for out in operation.outs], axis=0))
    size = operation.outs[0].size
    if len(which) == size:
        return operation

    def narrowed(operand: Expression) -> Expression:
        if operand.name == "elements":
            return Expression("elements", (), operand.data.ravel()[which])
        table, places = operand.data
        return Expression("table", (), (table, places.ravel()[which] if places.size == size else places))

    outs = [out.ravel()[which] for out in operation.outs]
    return replace(operation, outs=outs, operands=[*map(narrowed, operation.operands)])


def _shared_memory(
    memory: Memory, inputs: Places, results: Places, operations: Sequence[Operation]
) -> tuple[np.ndarray, int]:
    """The first place of each array, where memory that is free again is used again; and how many places there are."""
    starts = np.array(memory.starts)
    sizes = memory.sizes

    def arrays(places: Places) -> list[int]:
        return np.unique(np.searchsorted(starts, places.ravel(), "right") - 1).tolist()

    # The last operation that needs each.
    (own,) = arrays(inputs)
    last = {own: 0}
    written: list[list[int]] = []
    for number, operation in enumerate(operations):
        written.append([array for out in operation.outs for array in arrays(out)])
        for array in [*written[-1], *(array for places in operation.read() for array in arrays(places))]:
            last[array] = number
    last.update(dict.fromkeys(arrays(results), len(operations)))
    rooms = _Rooms()
    moved = np.zeros(len(starts), np.int64)
    moved[own] = rooms.take(int(sizes[own]))
    taken = {own}
    for number, of_operation in enumerate(written):
        for array in of_operation:
            moved[array] = rooms.take(int(sizes[array]))
        taken.update(of_operation)
        for array in [array for array in taken if last[array] <= number]:
            rooms.release(int(moved[array]), int(sizes[array]))
            taken.remove(array)
    return moved, rooms.size


@dataclass
class _Rooms:
    """Memory, of which parts are taken and released."""

    size: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)
    """The first place of each part that is free, and its size."""

    def take(self, size: int) -> int:
        """The first place of a part of this size, the smallest one that is large enough."""
        fitting = min((room for room in self.free if room[1] >= size), key=lambda room: room[1], default=None)
        if fitting is None:
            self.size += size
            return self.size - size
        self.free.remove(fitting)
        if fitting[1] > size:
            self.free.append((fitting[0] + size, fitting[1] - size))
        return fitting[0]

    def release(self, first: int, size: int) -> None:
        """Gives a part back."""
        merged: list[tuple[int, int]] = []
        for room in sorted([*self.free, (first, size)]):
            if merged and sum(merged[-1]) == room[0]:
                merged[-1] = (merged[-1][0], merged[-1][1] + room[1])
            else:
                merged.append(room)
        self.free = merged


def concatenated(tables: Sequence[Table], values: Sequence[Any], dtype: Any) -> jax.Array:
    """The numbers of tables, one behind the other."""
    parts = [jnp.ravel(table.prepare(value)).astype(dtype) for table, value in zip(tables, values, strict=True)]
    for part, table in zip(parts, tables, strict=True):
        assert part.size == table.size, (part.size, table.size)
    return jnp.concatenate(parts) if parts else jnp.zeros(0, dtype)
