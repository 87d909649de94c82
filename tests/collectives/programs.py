"""Random programs of collectives and arithmetic, run under mpirun and compared with an interpreter in numpy.

`programs.py FIRST LAST` runs the programs whose seeds are FIRST to LAST - 1. Every value of a program is compared, so
that a failure names the first operation that went wrong.
"""

# ruff: noqa: E402 - fk.initialize() comes before jax

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ferroket as fk

info = fk.initialize()

import jax
import jax.numpy as jnp
import numpy as np
from cases import (
    COLLECTIVES,
    DTYPES,
    Axes,
    each,
    expected,
    group_size,
    is_refused,
    make_mesh,
    own_position,
    per_rank,
    same,
    values,
)
from jax import lax
from jax.sharding import Mesh

jax.config.update("jax_enable_x64", True)

# Values with more elements on all ranks together are not made larger.
_LARGE = 1 << 14


def tame(x: Any, xp: Any) -> Any:
    """Integers from 0 to 7 in place of floats, so that no result is ever rounded; other values as they are."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return (tame(x.real, xp) + 1j * tame(x.imag, xp)).astype(x.dtype)
    return xp.mod(xp.floor(x), xp.asarray(8, x.dtype)) if jnp.issubdtype(x.dtype, jnp.floating) else x


# Arithmetic of each rank on its own, for x and for y of the same dtype.
LOCAL: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x + y": lambda x, y, xp: x + xp.resize(y, x.shape),
    "x * y": lambda x, y, xp: x * xp.resize(y, x.shape),
    "where(x == y, x, x * y)": lambda x, y, xp: xp.where(x == xp.resize(y, x.shape), x, x * xp.resize(y, x.shape)),
    "roll(x)": lambda x, y, xp: xp.roll(x, 1),
    "transpose(x)": lambda x, y, xp: x.T,
    "flatten(x)": lambda x, y, xp: x.reshape(-1),
    "append(x, y)": lambda x, y, xp: xp.concatenate([x.reshape(-1), y.reshape(-1)]),
}


@dataclass(frozen=True)
class Operation:
    """One line of a program: a collective over `axes`, `rounds` times; or arithmetic, then cast to `dtype`."""

    name: str
    x: int
    y: int = 0
    axes: Axes = ()
    rounds: int = 1
    dtype: str = ""

    def __str__(self) -> str:
        if self.axes:
            loop = f", {self.rounds} times in a loop" if self.rounds > 1 else ""
            return f"{self.name}(v{self.x}) over {', '.join(self.axes)}{loop}"
        cast = f", cast to {self.dtype}" if self.dtype else ""
        return re.sub(r"\bx\b", f"v{self.x}", re.sub(r"\by\b", f"v{self.y}", self.name)) + cast

    def local(self, x: Any, y: Any, xp: Any) -> Any:
        """Arithmetic on one rank's values."""
        result = LOCAL[self.name](x, y, xp)
        if self.dtype:
            real = result.real if jnp.issubdtype(result.dtype, jnp.complexfloating) else result
            small = real if real.dtype == bool else xp.mod(real, xp.asarray(8, real.dtype))
            result = small.astype(DTYPES[self.dtype])
        return tame(result, xp)

    def operand(self, x: Any, n: int, xp: Any) -> Any:
        """What the collective takes: the value, or pieces of it where it needs some."""
        has_pieces = x.ndim > 0 and x.shape[0] == n
        return xp.stack([xp.roll(x, i) for i in range(n)]) if COLLECTIVES[self.name].pieces and not has_pieces else x


@dataclass
class Program:
    """A mesh, and operations on the values before them; `inputs` are the first values."""

    seed: int
    mesh: Mesh
    inputs: list[np.ndarray]
    operations: list[Operation]
    results: list[np.ndarray]  # as the interpreter has them, like the inputs with the mesh's dimensions in front

    def __str__(self) -> str:
        def kind(x: np.ndarray) -> str:
            return f"{x.dtype}{list(x.shape[self.mesh.devices.ndim :])}"

        axes = ", ".join(f"{name} = {size}" for name, size in self.mesh.shape.items())
        lines = [f"program {self.seed}: {axes}, ranks {[device.process_index for device in self.mesh.devices.flat]}"]
        lines += [f"  v{i} = {kind(x)}, an input" for i, x in enumerate(self.inputs)]
        rest = zip(self.operations, self.results, strict=True)
        lines += [f"  v{i} = {kind(x)} = {operation}" for i, (operation, x) in enumerate(rest, len(self.inputs))]
        return "\n".join(lines)


def interpret(operation: Operation, known: list[np.ndarray], mesh: Mesh) -> np.ndarray:
    """An operation's result on all ranks, by definition."""
    x, y = known[operation.x], known[operation.y]
    if not operation.axes:
        return each(mesh, lambda at: operation.local(x[at], y[at], np))
    n = group_size(mesh, operation.axes)

    def step(x: np.ndarray) -> np.ndarray:
        operands = each(mesh, lambda at: operation.operand(x[at], n, np))
        return each(mesh, lambda at: tame(expected(operation.name, mesh, operation.axes, operands, at), np))

    for _ in range(operation.rounds):
        x = step(x)
    return x


def compiled(operation: Operation, known: list[jax.Array], mesh: Mesh) -> jax.Array:
    """The same by JAX, on one rank."""
    x = known[operation.x]
    if not operation.axes:
        return operation.local(x, known[operation.y], jnp)
    n = group_size(mesh, operation.axes)

    def step(x: jax.Array) -> jax.Array:
        return tame(COLLECTIVES[operation.name].jax(operation.operand(x, n, jnp), operation.axes, n), jnp)

    return lax.fori_loop(0, operation.rounds, lambda _, x: step(x), x) if operation.rounds > 1 else step(x)


def random_program(seed: int) -> Program:
    """The program of a seed, made while the interpreter runs it: what fits a value depends on its shape and dtype."""
    rng = np.random.default_rng(seed)

    def one(choices: Sequence[Any]) -> Any:
        return choices[rng.integers(len(choices))]

    ranks = jax.device_count()
    shape: tuple[int, ...] = one([(ranks,), (2, ranks // 2), (2, ranks // 2), (1, ranks), (ranks, 1)])
    mesh = make_mesh(shape, one([("x", "y"), ("y", "x")])[: len(shape)], rng.permutation(ranks))

    def random_input() -> np.ndarray:
        local = [int(2 ** rng.uniform(0, 5)) for _ in range(rng.integers(1, 3))]
        local[0] *= one([1, 1, 1, 100])
        return tame(values(rng, DTYPES[one(list(DTYPES))], (*shape, *local)), np)

    inputs = [random_input() for _ in range(rng.integers(1, 3))]
    known, operations = list(inputs), []

    def some_value() -> int:
        """The last value, for a chain, or any."""
        return len(known) - 1 if rng.random() < 0.6 else int(rng.integers(len(known)))

    def collective() -> Operation:
        x = some_value()
        axes: Axes = tuple(rng.permutation(mesh.axis_names)[: rng.integers(1, len(shape) + 1)].tolist())
        grows = [name for name in COLLECTIVES if name == "all_gather" or COLLECTIVES[name].pieces]
        too_large = grows if known[x].size > _LARGE else []
        dtype = known[x].dtype.name
        name = one([name for name in COLLECTIVES if not is_refused(name, dtype) and name not in too_large])
        if name == "ppermute":  # for which JAX takes the axes in the order of the mesh, whatever their order
            axes = tuple(axis for axis in mesh.axis_names if axis in axes)
        once = Operation(name, x, axes=axes)
        result = interpret(once, known, mesh)
        keeps_kind = (result.shape, result.dtype) == (known[x].shape, known[x].dtype)
        return replace(once, rounds=int(rng.integers(2, 5))) if keeps_kind and rng.random() < 0.5 else once

    def arithmetic() -> Operation:
        x = some_value()
        y = one([i for i, value in enumerate(known) if value.dtype == known[x].dtype])
        name = one([name for name in LOCAL if known[x].size <= _LARGE or "append" not in name])
        return Operation(name, x, y, dtype=one(["", "", one(list(DTYPES))]))

    for _ in range(rng.integers(3, 6)):
        for operation in [collective, arithmetic] if rng.random() < 0.7 else [collective]:
            operations.append(operation())
            known.append(interpret(operations[-1], known, mesh))
    return Program(seed, mesh, inputs, operations, known[len(inputs) :])


def run(program: Program) -> None:
    """Compares all values that JAX gives this rank with the interpreter's."""

    def body(*inputs: jax.Array) -> list[jax.Array]:
        known = list(inputs)
        for operation in program.operations:
            known.append(compiled(operation, known, program.mesh))
        return known[len(inputs) :]

    got = per_rank(program.mesh, body, *program.inputs)
    position = own_position(program.mesh)
    for i, (ours, want) in enumerate(zip(got, program.results, strict=True), len(program.inputs)):
        same(ours, want[position], f"v{i}")


def main(first: int, last: int) -> None:
    for seed in range(first, last):
        program = random_program(seed)
        if info.rank == 0:  # before it runs, so that a hang is known by its program too
            print(program, flush=True)
        try:
            run(program)
        except Exception as error:
            error.add_note(f"{program}\nAlone: mpirun -n {info.size} python {__file__} {seed} {seed + 1}")
            raise
    if info.rank == 0:
        print(f"{last - first} programs are right", flush=True)


main(int(sys.argv[1]), int(sys.argv[2]))
