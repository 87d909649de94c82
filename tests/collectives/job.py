"""Run under mpirun on four ranks: one short job, ten collectives from start to finish, compared with numpy.

Each rank prints "right", and the files in shared memory that it has mapped, which are to go away with the job.

`job.py` runs alone. `job.py MINE OTHER` makes a file once the ranks have met, and goes on when the other job has made
its own, so that two jobs are certain to run at the same time.
"""

# ruff: noqa: E402 - fk.initialize() comes before jax

import re
import sys
import time
from pathlib import Path

import ferroket as fk

info = fk.initialize()

import jax
import numpy as np
from cases import COLLECTIVES, Axes, expected, make_mesh, own_position, per_rank, same
from jax.sharding import Mesh


def meet(mine: Path, other: Path) -> None:
    """Waits for another job, which waits for this one."""
    if info.rank == 0:
        mine.touch()
    deadline = time.monotonic() + 60
    while not other.exists():
        assert time.monotonic() < deadline, f"the other job has made no {other} for 60 s"
        time.sleep(0.01)


def compare(mesh: Mesh, axes: Axes, names: list[str]) -> None:
    data = np.random.default_rng(info.size).integers(-9, 10, (*mesh.devices.shape, 4, 1000)).astype(np.float32)

    def program(x: jax.Array) -> list[jax.Array]:
        return [COLLECTIVES[name].jax(x, axes, info.size) for name in names]

    for name, got in zip(names, per_rank(mesh, program, data), strict=True):
        same(got, expected(name, mesh, axes, data, own_position(mesh)), f"{name} over {axes}")


if len(sys.argv) > 1:
    meet(Path(sys.argv[1]), Path(sys.argv[2]))
compare(make_mesh((4,), ("x",)), ("x",), list(COLLECTIVES))
compare(make_mesh((2, 2), ("x", "y")), ("y",), ["psum", "all_gather"])
mapped = set(re.findall(r"/dev/shm/\S+$", Path("/proc/self/maps").read_text(), re.MULTILINE))
print(f"{info.rank}: right {' '.join(sorted(mapped))}\n", end="", flush=True)
