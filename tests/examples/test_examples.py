"""The examples of arrays and devices run, alone and on several ranks, and print the right numbers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from running import EXAMPLES, FEW_RANKS, RANKS, lines, numbers

from support.mpi import FULL

# Jobs have timeouts of their own, and some tests run several.
pytestmark = pytest.mark.timeout(1200)


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
    rows, columns = {1: (1, 1), 2: (2, 1), 4: (2, 2), 8: (2, 4)}[n]
    values = np.arange(12 * n).reshape(4 * rows, 3 * columns)
    assert lines("mesh", n) == [
        f"{n} devices as {rows} × {columns}; rank 0 holds (4, 3) of {values.shape}",
        f"sum {values.sum()}, of the rows {values.sum(axis=1).tolist()}",
        f"trace of the product {(values**2).sum()}",
    ]


@pytest.mark.quick("2")
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


@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("mpi4jax") is None, reason="mpi4jax is not installed: make examples")
@pytest.mark.parametrize("n", RANKS)
def test_beside_mpi4jax(n: int) -> None:
    total = sum(6 + 40 * rank for rank in range(n))
    assert lines("beside_mpi4jax", n) == [f"mpi4jax {total}, JAX {total}"]


@pytest.mark.mpi
@pytest.mark.parametrize("n", RANKS)
def test_subset(n: int) -> None:
    half = (n + 1) // 2
    assert lines("subset", n) == [
        f"parts of the ranks {[1] * half + [0] * (n - half)}",
        f"sum {sum(range(8 * half))}",
        f"handed on: {[n - 1, *range(n - 1)]}",
    ]


@pytest.mark.mpi
def test_equinox_training_is_that_of_one_process() -> None:
    loss, weights = alone = numbers("equinox_training", 1)
    assert loss < 0.03  # of 1.3 at the start
    assert weights > 40
    for n in FEW_RANKS:
        assert numbers("equinox_training", n) == pytest.approx(alone, rel=1e-9)


def test_there_is_a_test_of_every_example() -> None:
    tested = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    for script in EXAMPLES.glob("*.py"):
        assert f'"{script.stem}"' in tested or f'"{script.name}"' in tested
