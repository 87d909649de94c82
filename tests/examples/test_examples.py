"""The examples run, alone and on several ranks, and print the right numbers."""

import sys
from pathlib import Path

import pytest

from mpi import FULL, environment, run_command, run_ranks

EXAMPLES = Path(__file__).parents[2] / "examples"
RANKS = [1, 2, 4] if FULL else [1, 2]


def lines(name: str, n: int, *arguments: str, **env: str) -> list[str]:
    """What an example prints on a number of ranks; on one, without a launcher."""
    script = EXAMPLES / f"{name}.py"
    if n == 1:
        job = run_command([sys.executable, script, *arguments], environment(**env), 90)
    else:
        job = run_ranks(script, n, *arguments, timeout=90, **env)
    assert job.returncode == 0, job.stdout + job.stderr
    return job.stdout.splitlines()


def shares(n: int) -> list[float]:
    return [(i + 1) / (n * (n + 1) / 2) for i in range(n)]


@pytest.mark.mpi
@pytest.mark.parametrize("n", RANKS)
def test_devices(n: int) -> None:
    first, second, third = lines("devices", n)
    assert first == f"{n} processes, {n} devices, 1 of each process"
    found = [float(share) for share in second.removeprefix("shares [").split("]")[0].split(", ")]
    assert found == pytest.approx(shares(n), abs=5e-4)
    assert second.endswith("together 1.000")
    assert third == f"by pmap the numbers are {n * (n + 1) // 2} together"


def test_four_devices_of_one_process() -> None:
    first, second, third = lines("devices", 1, JAX_NUM_CPU_DEVICES="4")
    assert first == "1 processes, 4 devices, 4 of each process"
    assert second.endswith("together 1.000")
    assert third == "by pmap the numbers are 10 together"


@pytest.mark.mpi
@pytest.mark.parametrize("n", RANKS)
def test_mesh(n: int) -> None:
    shapes = {1: ("1 × 1", "(8, 12)"), 2: ("2 × 1", "(4, 12)"), 4: ("2 × 2", "(4, 6)")}
    mesh, shard = shapes[n]
    rows = [sum(range(12 * i, 12 * i + 12)) for i in range(8)]
    assert lines("mesh", n) == [
        f"{n} devices as {mesh}; rank 0 holds {shard} of (8, 12)",
        f"sum {sum(range(96))}, of the rows {rows}",
    ]


@pytest.mark.mpi
@pytest.mark.parametrize("n", RANKS)
def test_arrays(n: int) -> None:
    total = float(sum(range(4 * n)))
    assert lines("arrays", n) == [
        f"device_put: {total}",
        f"make_array_from_process_local_data: {total}",
        f"make_array_from_single_device_arrays: {total}",
        "mean of 20 numbers: 9.5",
    ]


@pytest.mark.mpi
def test_checkpoint(tmp_path: Path) -> None:
    """A walk that goes on on another number of ranks is that of one process."""
    alone = [lines("checkpoint", 1, str(tmp_path / "alone")) for _ in range(3)]
    others = [lines("checkpoint", n, str(tmp_path / "others")) for n in (2, 1, 4 if FULL else 2)]
    assert others == alone
    assert [line.split(":")[0] for (line,) in alone] == ["step 10", "step 20", "step 30"]


@pytest.mark.mpi
@pytest.mark.parametrize("n", RANKS)
def test_beside_mpi4py(n: int) -> None:
    total = sum(6 + 40 * rank for rank in range(n))
    names = [f"rank {rank}" for rank in range(n)]
    assert lines("beside_mpi4py", n) == [f"JAX {total}, MPI {total}: {names}"]
