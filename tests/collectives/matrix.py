"""Run under mpirun on four ranks: every collective in every dtype, over every axis of meshes of all ranks.

`matrix.py SIZE...` takes the sizes, in elements of a rank's operand, and prints the number of comparisons. Up to LARGE
elements every dtype is compared over every axis; above, each dtype over one of them in turn, or all with `--all`.
"""

# ruff: noqa: E402 - fk.initialize() comes before jax

import sys

import ferroket as fk

info = fk.initialize()

from functools import partial

import contexts
import jax
import numpy as np
import pytest
from cases import (
    COLLECTIVES,
    DTYPES,
    REFUSED,
    Axes,
    expected,
    group_size,
    is_refused,
    make_mesh,
    own_position,
    per_rank,
    same,
    values,
)
from jax.sharding import Mesh

jax.config.update("jax_enable_x64", True)

# More elements than this go to a program of their own, which would need too much memory with all dtypes in it.
LARGE = 1 << 20


def compare(mesh: Mesh, axes: Axes, size: int, dtypes: list[str], rng: np.random.Generator) -> int:
    """One program with all collectives in all the dtypes. Returns the number of comparisons."""
    n = group_size(mesh, axes)
    cases = [(name, dtype) for name in COLLECTIVES for dtype in dtypes if not is_refused(name, dtype)]
    # A rank's operand, without pieces and with them.
    shapes = {False: (size,), True: (n, size if size < LARGE else size // n)}
    data = {
        dtype: {key: values(rng, DTYPES[dtype], (*mesh.devices.shape, *shape)) for key, shape in shapes.items()}
        for dtype in dtypes
    }

    def program(x: dict[str, dict[bool, jax.Array]]) -> list[jax.Array]:
        return [COLLECTIVES[name].jax(x[dtype][COLLECTIVES[name].pieces], axes, n) for name, dtype in cases]

    for (name, dtype), got in zip(cases, per_rank(mesh, program, data), strict=True):
        want = expected(name, mesh, axes, data[dtype][COLLECTIVES[name].pieces], own_position(mesh))
        same(got, want, f"{name} over {axes} of {dict(mesh.shape)}, {size} {dtype}")
    return len(cases)


def refusals(mesh: Mesh) -> int:
    """What XLA refuses is an error with the message of the table, on every rank, and the next program works."""
    (n,), axes = mesh.devices.shape, mesh.axis_names
    count = 0
    for dtype, (names, message) in REFUSED.items():
        data = np.ones((n, n, 3), dtype)
        for name, collective in COLLECTIVES.items():
            program = partial(collective.jax, axes=axes, n=n)
            if name in names.split():
                with pytest.raises((TypeError, jax.errors.JaxRuntimeError), match=message):
                    per_rank(mesh, program, data)
                count += 1
            elif dtype not in DTYPES:
                want = expected(name, mesh, axes, data, own_position(mesh))
                same(per_rank(mesh, program, data), want, f"{name} of {dtype}")
    return count


def main(sizes: list[int], *, everything: bool) -> None:
    programs = contexts.run_all()
    row, square = make_mesh((4,), ("x",)), make_mesh((2, 2), ("x", "y"))
    groups: list[tuple[Mesh, Axes]] = [(row, ("x",)), (square, ("x",)), (square, ("y",)), (square, ("x", "y"))]
    refused = refusals(row)
    rng = np.random.default_rng(0)
    count = 0
    for size in sizes:
        for i, (mesh, axes) in enumerate(groups):
            if size <= LARGE:
                count += compare(mesh, axes, size, list(DTYPES), rng)
            else:
                own = list(DTYPES) if everything else list(DTYPES)[i :: len(groups)]
                count += sum(compare(mesh, axes, size, [dtype], rng) for dtype in own)
    if info.rank == 0:
        print(f"{programs} contexts, {refused} refusals, {count} comparisons on {info.mpi}, {info.mpi_path}")


main([int(size) for size in sys.argv[1:] if size.isdigit()], everything="--all" in sys.argv)
