"""A rank is killed at a random moment: the job ends soon, names that rank and no other, and leaves nothing behind."""

import contextlib
import os
import random
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.mpi import PREFIXES, SOON, START, SUM, environment, is_installed, mpirun, processes, run_command

pytestmark = pytest.mark.mpi

JOBS = int(os.environ.get("FERROKET_TEST_JOBS", "4"))

# A start, programs to compile, collectives, and an end.
SCRIPT = (
    START
    + """
print(f"STARTED {info.rank}\\n", end="", flush=True)
"""
    + SUM
    + """
import jax.numpy as jnp
for scale in range(3):
    f = lambda x: jax.lax.psum(scale * jnp.sin(x), "S")
    f = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("S"), out_specs=P()))
    for _ in range(200):
        f(x).block_until_ready()
print(f"DONE {rank}\\n", end="", flush=True)
"""
)
# The longest that a rank runs before it is killed, in seconds: a job takes about as long.
LONGEST = 6.0


def kill_one(number: int, script: Path) -> str:
    """Runs a job of which a rank gets a signal, and checks its end. Returns what it was, for messages."""
    rng = random.Random(number)
    mpi = rng.choice([mpi for mpi in PREFIXES if is_installed(mpi)])
    ranks = rng.choice([2, 3])
    victim, delay = rng.randrange(ranks), rng.uniform(0.05, LONGEST)
    signum = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
    killed: list[float] = []

    def kill(tag: str) -> None:
        time.sleep(delay)
        for pid in processes(tag):
            if is_rank(pid, victim, script):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signum)
                    killed.append(time.monotonic())

    command = [
        mpirun(mpi),
        *(["--oversubscribe"] if mpi == "openmpi" else []),
        "-n",
        str(ranks),
        sys.executable,
        script,
    ]
    job = run_command(command, environment(mpi), 60, kill)
    took = time.monotonic() - killed[0] if killed else 0.0
    what = f"job {number}: rank {victim} of {ranks} on {mpi}, {signum.name} after {delay:.2f} s"
    text = f"{what}, ended {took:.1f} s later with {job.returncode}\n{job.stdout}\n{job.stderr}"
    assert took < SOON, text
    named = re.findall(r"^ferroket: rank (\d+)", job.stderr, re.MULTILINE)
    assert set(named) <= {str(victim)}, text
    is_started = f"STARTED {victim}" in job.stdout
    is_done = all(f"DONE {rank}" in job.stdout for rank in range(ranks))
    if killed and not is_done:
        assert job.returncode != 0, text
        assert len(named) == 1 or not is_started, text
    if not killed:
        assert job.returncode == 0, text
    return what


def is_rank(pid: int, rank: int, script: Path) -> bool:
    """Whether a process is a rank of the job that runs a script."""
    folder = Path("/proc", str(pid))
    with contextlib.suppress(OSError):
        variables = (folder / "environ").read_bytes().split(b"\0")
        is_python = str(script).encode() in (folder / "cmdline").read_bytes().split(b"\0")[1:2]
        return is_python and any(
            f"{name}={rank}".encode() in variables for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK")
        )
    return False


@pytest.mark.timeout(120 + 60 * JOBS)
def test_soak_of_kills(tmp_path: Path) -> None:
    """FERROKET_TEST_JOBS of them, `make soak` runs 200, two at a time."""
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(kill_one, number, script) for number in range(JOBS)]
    failures = [str(job.exception()) for job in jobs if job.exception()]
    assert not failures, f"{len(failures)} of {JOBS} jobs failed\n" + "\n\n".join(failures)
