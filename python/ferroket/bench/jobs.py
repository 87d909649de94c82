"""Measurements that need several ranks: a worker module under mpirun, which reports from rank 0."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ferroket import _lib
from ferroket.bench import progress
from ferroket.distributed import affinity
from ferroket.distributed.launching import launchers
from ferroket.distributed.launching.launchers import Binding
from ferroket.distributed.library import search_prefixes
from ferroket.distributed.scripts import PYTHON
from ferroket.usage import UsageError

THREADS = {"NPROC": str(2 * len(affinity.allowed()))}
"""For jobs in which JAX decomposes matrices: XLA's threads, twice as many as cores.

In jaxlib 0.10 the decompositions of two spin sectors may wait for each other for ever if each has one of two threads.
"""


def run(
    worker: str,
    ranks: int,
    *arguments: str,
    binding: Binding = "ferroket",
    timeout: float = 600,
    env: Mapping[str, str] | None = None,
) -> Any:
    """Runs ``python -m ferroket.bench.workers.WORKER ARGUMENTS`` on a number of ranks.

    Args:
        worker: a module of ``ferroket.bench.workers``; its rank 0 writes its result as JSON to the file that it
            finds in FERROKET_BENCH_RESULT.
        ranks: the number of processes.
        arguments: passed on.
        binding: who binds the ranks to cores.
        timeout: seconds.
        env: more variables.

    Returns:
        The worker's result.

    Raises:
        UsageError: there is no MPI library, or no launcher of it.
        RuntimeError: the job failed; the message ends with what it printed.
        subprocess.TimeoutExpired: it took longer.
    """
    program = [*PYTHON, "-m", f"ferroket.bench.workers.{worker}", *arguments]
    try:
        command = launchers.mpirun(_lib.find_mpi(search_prefixes()), ranks, program, binding=binding)
    except (RuntimeError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error
    progress.starting(f"{worker} on {ranks} rank{'s' * (ranks > 1)}")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        job = subprocess.run(
            command.arguments,
            env={**_environment(), **command.variables, **(env or {}), "FERROKET_BENCH_RESULT": str(result)},
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        if job.returncode or not result.exists():
            raise RuntimeError(f"{command} ended with code {job.returncode}:\n{job.stdout}\n{job.stderr}")
        return json.loads(result.read_text())


def _environment() -> dict[str, str]:
    """The environment of this process, without what a benchmark sets itself."""
    own = ("FERROKET_BIND", "FERROKET_YIELD", "FERROKET_COLLECTIVES", "FERROKET_CHECK")
    return {name: value for name, value in os.environ.items() if name not in own}


def report(result: Any) -> None:
    """A worker's rank 0 hands its result to :func:`run`."""
    Path(os.environ["FERROKET_BENCH_RESULT"]).write_text(json.dumps(result))
