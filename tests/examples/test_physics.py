"""The examples of NetKet's run, and find the right energies and expectation values."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from running import EXAMPLES, FEW_RANKS, TIMEOUT, lines, numbers

from support.mpi import FULL, environment, mpirun, run_command

# Jobs have timeouts of their own, and some tests run several.
pytestmark = pytest.mark.timeout(1200)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "at_most"),
    [("ising_vmc", 5e-3), ("heisenberg_j1j2", 2e-2), ("fermi_hubbard", 3e-3), ("bose_hubbard", 1e-3)],
)
def test_ground_states(name: str, at_most: float) -> None:
    """Near the exact energy, and on all numbers of ranks the same to the digits that are printed."""
    for n in FEW_RANKS:
        energy, exact, error = numbers(name, n)
        printed = 5e-5  # how far a number of four places may be off
        assert error == pytest.approx(abs(energy / exact - 1), rel=0.05, abs=2 * printed / abs(exact))
        assert error < at_most
    for n in FEW_RANKS[1:]:
        assert numbers(name, n) == numbers(name, FEW_RANKS[0])


@pytest.mark.mpi
def test_trust_region() -> None:
    """Where updates without it go astray, and by momentum the error is a fraction of what it is without."""
    for n in FEW_RANKS:
        pattern = r"(.*): energy (\S+) above the exact -28.569185"
        found = [re.fullmatch(pattern, line) for line in lines("trust_region", n)]
        errors = {match[1]: float(match[2]) for match in found if match}
        assert errors["long updates"] > 5
        assert abs(errors["in a trust region"]) < 0.5
        assert abs(errors["with momentum"]) < 0.5 * errors["few samples"]


@pytest.mark.thorough
def test_steady_state() -> None:
    found, exact, loss = numbers("steady_state", 1)
    assert exact == pytest.approx(-0.3646, abs=1e-4)
    assert found == pytest.approx(exact, abs=0.03)
    assert 0 < loss < 0.01


@pytest.mark.mpi
def test_full_summation() -> None:
    for n in FEW_RANKS:
        energy, variance, exact, error = numbers("full_summation", n)
        assert exact == pytest.approx(-2 / np.sin(np.pi / 24), rel=1e-10)
        assert exact < energy < exact * (1 - 1e-4)  # from above, as there are no statistical errors
        assert error < 1e-4
        assert 0 < variance < 0.01


def of_evolution(n: int) -> list[list[float]]:
    found = [re.fullmatch(r"t = (\S+): (\S+), exact (\S+)", line) for line in lines("dynamics", n)]
    return [[float(number) for number in match.groups()] for match in found if match]


@pytest.mark.mpi
def test_dynamics() -> None:
    for n in FEW_RANKS:
        times, found, exact = np.transpose(of_evolution(n))
        np.testing.assert_allclose(times, np.linspace(0, 1, 6))
        assert exact.max() - exact.min() > 0.8  # it does move
        np.testing.assert_allclose(found, exact, atol=0.04)


def guide(*command: str, **env: str) -> tuple[list[str], float]:
    """What the guide's script says of its devices, and its energy."""
    words: list[str | Path] = [sys.executable, "-m", "ferroket", *command, EXAMPLES / "netket_guide.py"]
    if command[0] == "run":
        words = [mpirun(), "-n", "2", *words]
    job = run_command(words, environment(**env), TIMEOUT)
    assert job.returncode == 0, job.stdout + job.stderr
    (energy,) = re.findall(r"energy (\S+) ±", job.stdout)
    return sorted(re.findall(r"\[\d/\d\] \d devices, \d here", job.stdout)), float(energy)


@pytest.mark.mpi
def test_the_guides_script_is_the_same_in_all_forms() -> None:
    two = ["[0/2] 2 devices, 1 here", "[1/2] 2 devices, 1 here"]
    devices, accelerated = guide("run")
    assert devices == two
    assert accelerated == pytest.approx(-25.1, abs=0.3)
    assert guide("launch", "-n", "2", "--collectives", "gloo") == (two, pytest.approx(accelerated, rel=1e-8))
    # NetKet's samplers draw other samples, of the same distribution.
    devices, theirs = guide("run", "--no-accelerate")
    assert devices == two
    assert theirs == pytest.approx(accelerated, abs=0.3)
    if FULL:
        one = ["[0/1] 1 devices, 1 here"]
        assert guide("launch", "-n", "1") == (one, pytest.approx(accelerated, rel=1e-8))
        assert guide("launch", "-n", "1", "--no-accelerate") == (one, pytest.approx(theirs, rel=1e-8))


@pytest.mark.mpi
def test_all_devices_that_one_process_sees() -> None:
    """What a node's GPUs are to one process, four CPU devices are here: the samples are spread over them."""
    assert numbers("ising_vmc", 1, JAX_NUM_CPU_DEVICES="4") == numbers("ising_vmc", FEW_RANKS[0])
