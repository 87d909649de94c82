"""Measurements that need several ranks: a worker module under mpirun, which reports from rank 0."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from ferroket import _lib
from ferroket.distributed.library import find_mpirun, search_prefixes

Binding = Literal["core", "none", "default"]

# How each launcher is told to bind ranks; "default" says nothing.
_BIND_FLAGS = {"MPICH": "-bind-to", "MPI-5 ABI": "-bind-to", "Open MPI": "--bind-to"}


def run(
    worker: str, ranks: int, *arguments: str, binding: Binding = "default", timeout: float = 600, **env: str
) -> Any:
    """Runs ``python -m ferroket.bench.workers.WORKER ARGUMENTS`` on a number of ranks.

    Args:
        worker: a module of ``ferroket.bench.workers``; its rank 0 writes its result as JSON to the file that it
            finds in FERROKET_BENCH_RESULT.
        ranks: the number of processes.
        arguments: passed on.
        binding: what the launcher is told of cores.
        timeout: seconds.
        env: more variables.

    Returns:
        The worker's result.

    Raises:
        RuntimeError: the job failed; the message ends with what it printed.
    """
    library = _lib.find_mpi(search_prefixes())
    command = [str(find_mpirun(library.path)), "-n", str(ranks)]
    if library.family == "Open MPI":
        command.append("--oversubscribe")
    if binding != "default":
        command += [_BIND_FLAGS[library.family], binding]
    command += [sys.executable, "-m", f"ferroket.bench.workers.{worker}", *arguments]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        # Intel MPI takes its binding from variables, and ignores hydra's flag.
        pin = {} if binding == "default" else {"I_MPI_PIN": "0" if binding == "none" else "1"}
        job = subprocess.run(
            command,
            env={**os.environ, **pin, **env, "FERROKET_BENCH_RESULT": str(result)},
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        if job.returncode or not result.exists():
            raise RuntimeError(f"{' '.join(command)} ended with code {job.returncode}:\n{job.stdout}\n{job.stderr}")
        return json.loads(result.read_text())


def report(result: Any) -> None:
    """A worker's rank 0 hands its result to :func:`run`."""
    Path(os.environ["FERROKET_BENCH_RESULT"]).write_text(json.dumps(result))
