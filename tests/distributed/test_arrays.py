"""Helpers for arrays of many processes: their numbers on one rank and on several, and errors on every rank."""

from pathlib import Path

import jax
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from support.mpi import FULL, Finished, run_alone, run_ranks

START = """
import ferroket as fk
info = fk.initialize()
import os
import sys
import jax
import jax.numpy as jnp
import numpy as np
from ferroket import distributed as fd

n, rank = info.size, info.rank
folder = os.environ["FOLDER"]
"""

NUMBERS = """
assert fd.is_main() == (rank == 0)
fd.print_once("once", n)
fd.barrier("first")
assert fd.broadcast(rank == 0) and not fd.broadcast(rank != 0)
np.testing.assert_array_equal(fd.broadcast(np.arange(3.5) + rank), np.arange(3.5))
local = np.arange(6.0).reshape(3, 2) + 100 * rank
whole = np.concatenate([np.arange(6.0).reshape(3, 2) + 100 * r for r in range(n)])
spread = fd.from_process_local({"x": local, "y": local.astype("int8")})
assert spread["x"].shape == (3 * n, 2) and spread["y"].dtype == np.int8
np.testing.assert_array_equal(fd.gather(spread)["x"], whole)
assert isinstance(fd.gather(spread)["x"], np.ndarray)
assert float(jax.jit(jnp.sum)(spread["x"])) == whole.sum()
for axis in (1, -1):
    columns = fd.from_process_local(local, axis=axis)
    np.testing.assert_array_equal(
        fd.gather(columns), np.concatenate([np.arange(6.0).reshape(3, 2) + 100 * r for r in range(n)], axis=1)
    )
same = fd.replicate({"a": np.arange(4), "b": 2.5})
assert same["a"].is_fully_replicated and len(same["a"].devices()) == n
np.testing.assert_array_equal(np.asarray(same["a"]), np.arange(4))
np.testing.assert_array_equal(fd.gather(same)["b"], 2.5)
function = fd.replicate(jax.tree_util.Partial(lambda x, y: x + y, np.ones(3)))  # of another address on each rank
np.testing.assert_array_equal(function(1), 2 * np.ones(3))
"""

# Twelve rows, which any of these numbers of ranks can share.
TREE = """
rows = np.arange(24.0).reshape(12, 2)
mine = rows.reshape(n, -1, 2)[rank]
tree = {"x": fd.from_process_local(mine), "c": fd.replicate(1 + 2j), "host": np.arange(3)}
"""
SAVE = TREE + 'fd.save(f"{folder}/state", tree)\n'
LOAD = (
    TREE
    + """
like = {"x": fd.from_process_local(0 * mine), "c": fd.replicate(0j), "host": np.zeros(3, int)}
found = fd.load(f"{folder}/state", like)
assert found["x"].sharding == like["x"].sharding
np.testing.assert_array_equal(fd.gather(found["x"]), rows)
assert complex(found["c"]) == 1 + 2j
np.testing.assert_array_equal(found["host"], np.arange(3))
"""
)

# Orbax, with which each rank writes and reads its own part.
ORBAX_SAVE = (
    TREE
    + """
import orbax.checkpoint as ocp

with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(f"{folder}/orbax-{n}", tree)
"""
)
ORBAX_LOAD = (
    TREE
    + """
import orbax.checkpoint as ocp

like = {"x": fd.from_process_local(0 * mine), "c": fd.replicate(0j), "host": np.zeros(3, int)}
with ocp.StandardCheckpointer() as checkpointer:
    found = checkpointer.restore(f"{folder}/orbax-{os.environ['SAVED_ON']}", like)
assert found["x"].sharding == like["x"].sharding
np.testing.assert_array_equal(fd.gather(found["x"]), rows)
assert complex(found["c"]) == 1 + 2j
np.testing.assert_array_equal(found["host"], np.arange(3))
"""
)

# Each rank says what it saw; all have to go on afterwards.
ERRORS = """
def error(call):
    try:
        call()
    except (OSError, TypeError, ValueError) as raised:
        return f"{type(raised).__name__}: {raised}"
    return "none"

found = [
    error(lambda: fd.save(f"{folder}/missing/state", tree)),
    error(lambda: fd.load(f"{folder}/nothing", tree)),
    error(lambda: fd.load(f"{folder}/state", {**tree, "host": np.zeros(4)})),
    error(lambda: fd.load(f"{folder}/state", {"other": tree["x"]})),
    error(lambda: fd.from_process_local(np.zeros(2 + (rank == 1)))),
    error(lambda: fd.replicate(np.full(2, float(rank)))),
    error(lambda: fd.from_process_local(2.5)),
    error(lambda: fd.save(f"{folder}/state", {"x": tree["x"], "other": object()})),
]
if rank == 0:
    import resource
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))  # as a full disk
found.append(error(lambda: fd.save(f"{folder}/state", {"large": np.zeros(1000)})))
if rank == 0:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
for number, text in enumerate(found):
    sys.stdout.write(f"{number} {text}\\n")
    sys.stdout.flush()
fd.barrier("end")
"""


def finished(script: str, n: int, folder: Path, **env: str) -> Finished:
    script, env = START + script, {"FOLDER": str(folder), **env}
    job = run_alone(script, **env) if n == 1 else run_ranks(script, n, timeout=150, **env)
    assert job.returncode == 0, job.stdout + job.stderr
    return job


def test_one_process(tmp_path: Path) -> None:
    assert finished(NUMBERS + SAVE + LOAD, 1, tmp_path).stdout == "once 1\n"
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


@pytest.mark.mpi
@pytest.mark.parametrize("n", [2, 4] if FULL else [2])
def test_ranks(tmp_path: Path, n: int) -> None:
    """What some ranks have saved others load."""
    finished(SAVE, 1, tmp_path)
    before = (tmp_path / "state").read_bytes()
    job = finished(NUMBERS + LOAD + SAVE, n, tmp_path)
    assert job.stdout == f"once {n}\n"
    assert (tmp_path / "state").read_bytes() == before
    finished(LOAD, 1, tmp_path)


@pytest.mark.mpi
def test_orbax(tmp_path: Path) -> None:
    """Without a rank that has the whole: what one rank has saved two load, and the other way round."""
    finished(ORBAX_SAVE, 1, tmp_path)
    finished(ORBAX_SAVE + ORBAX_LOAD, 2, tmp_path, SAVED_ON="1")
    finished(ORBAX_LOAD, 1, tmp_path, SAVED_ON="2")


@pytest.mark.quick
@pytest.mark.mpi
def test_errors_are_those_of_every_rank(tmp_path: Path) -> None:
    lines = finished(SAVE + ERRORS, 2, tmp_path).lines()
    differ = "must be the same on all ranks, but those of rank 1 differ from rank 0's"
    expected = [
        f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/missing/.state.",
        f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/nothing'",
        f"ValueError: '{tmp_path}/state' has an array of shape (3,) at ['host'], but `like` has one of (4,)",
        "ValueError: The target dict keys and state dict keys do not match",
        f"ValueError: the shapes and dtypes of the parts {differ}",
        f"ValueError: the values that are to be replicated {differ}",
        "ValueError: a part has shape (), but it must have an axis 0, whose length is a multiple of 1",
        "TypeError: can not serialize 'object' object",
        "OSError: [Errno 27] File too large",
    ]
    for number, text in enumerate(expected):
        found = [line.removeprefix(f"{number} ") for line in lines if line.startswith(f"{number} ")]
        assert len(found) == 2
        assert all(line.startswith(text) for line in found), found
    # The file that was there is still whole, and nothing else is left.
    assert [file.name for file in tmp_path.iterdir()] == ["state"]
    finished(LOAD, 1, tmp_path)


@pytest.mark.mpi
def test_some_ranks_alone_are_found_by_the_watchdog() -> None:
    script = START + "if rank == 0:\n    fd.barrier('alone')\nprint('went on')\n"
    job = run_ranks(script, 2, timeout=120, FOLDER="/")
    assert job.returncode != 0
    assert "rank 1" in job.stderr
    assert "has ended its script" in job.stderr
    assert np.char.count(job.stdout, "went on") == 1


def test_states_with_arrays_of_numpy(tmp_path: Path) -> None:
    """NetKet places what it reads as the state's own parameters are."""
    state = nk.vqs.MCState(nk.sampler.MetropolisLocal(nk.hilbert.Spin(0.5, 4)), nk.models.RBM(), n_samples=16)
    fk.distributed.save(tmp_path / "state", state)
    state.parameters = jax.tree.map(np.asarray, state.parameters)
    if getattr(nk.config, "netket_sharding", False):  # before NetKet 3.21 it is another setting
        with pytest.raises(TypeError, match=r"ndarray, which has no sharding: give states parameters that are JAX's"):
            fk.distributed.load(tmp_path / "state", like=state)
    else:
        assert fk.distributed.load(tmp_path / "state", like=state).n_samples == 16
