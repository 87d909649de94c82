"""What a rank starts is no rank: it is a process of its own, and ends with the job."""

import time
from pathlib import Path

import psutil
import pytest

from support.mpi import FULL, PREFIXES, SOON, START, SUM, run_ranks

pytestmark = pytest.mark.mpi

CHILDREN = """
import ferroket as fk
info = fk.initialize()
import multiprocessing, os, subprocess, sys

def square(x):
    import jax.numpy as jnp
    return float(jnp.square(x)), fk.runtime_info().size, fk.runtime_info().launcher

if __name__ == "__main__":
    child = [sys.executable, "-c", "import ferroket as fk; print(fk.initialize().size, fk.initialize.__name__)"]
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:  # as loaders of data have
            assert pool.map(square, (7, 8), chunksize=1) == [(49.0, 1, None), (64.0, 1, None)]
    said = subprocess.run(child, text=True, capture_output=True)
    assert (said.returncode, said.stdout.split()[0], said.stderr) == (0, "1", ""), said
    alone = "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"
    said = subprocess.run([sys.executable, "-c", f"import ferroket as fk; fk.initialize(); {alone}"], text=True,
                          capture_output=True)
    assert (said.returncode, said.stdout.split()) == (0, ["1"]), said
    fk.distributed.barrier("end")
"""


@pytest.mark.quick("mpich")
@pytest.mark.parametrize("mpi", [mpi for mpi in PREFIXES if FULL or mpi != "impi-rt"])
def test_a_child_is_one_process_without_a_launcher(mpi: str, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(CHILDREN)
    run_ranks(script, 2, mpi=mpi, timeout=120).ok()


# How a rank starts a job of its own. MPICH's ranks can't do it with their variables; without them they can.
STARTS = {
    "mpirun": """
left = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "HYD", "MPI_LOCAL"))}
assert "FERROKET_RANK_PROCESS" in left
start = dict(args=["mpirun", "-n", "3", sys.executable, sys.argv[1]], env=left)
""",
    "launch": """
launch = [sys.executable, "-m", "ferroket", "launch", "-n", "3", "--collectives", "gloo"]
start = dict(args=[*launch, sys.argv[1]])
""",
}


@pytest.mark.parametrize("way", STARTS)
def test_a_job_of_a_ranks_own_has_ranks(way: str, tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner.py", tmp_path / "outer.py"
    inner.write_text(START + SUM + 'print(f"INNER {value}", flush=True)\n')
    job = """
if info.rank == 0:
    said = subprocess.run(**start, text=True, capture_output=True, stdin=subprocess.DEVNULL)
    assert (said.returncode, said.stdout.count("INNER 3\\n")) == (0, 3), said
"""
    outer.write_text(START + "import os, subprocess, sys\n" + STARTS[way] + job)
    run_ranks(outer, 2, str(inner), timeout=120).ok()


STARTED = """
import ferroket as fk
info = fk.initialize()
import os, signal, subprocess, sys, time, warnings
warnings.simplefilter("ignore")  # JAX warns of forks
quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
sleeper = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"]
own = [subprocess.Popen(["sleep", "60"], **quiet).pid, subprocess.Popen(sleeper, **quiet).pid]
forked = os.fork()
if forked == 0:
    for descriptor in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    time.sleep(60)
    os._exit(0)
unknown = {name: value for name, value in os.environ.items() if name != "FERROKET_TEST_JOB"}
detached = subprocess.Popen(["sleep", "60"], env=unknown, start_new_session=True, **quiet).pid
print(" ".join(map(str, [*own, forked, detached])) + "\\n", end="", flush=True)
fk.distributed.barrier("started")
time.sleep(1)
<end>
"""


@pytest.mark.quick("mpich-fails")
@pytest.mark.parametrize("end", ["", "raise ValueError", "os.kill(os.getpid(), 9)"], ids=["ends", "fails", "is killed"])
@pytest.mark.parametrize("mpi", [mpi for mpi in PREFIXES if FULL or mpi != "impi-rt"])
def test_the_end_of_the_job_is_that_of_what_it_has_started(mpi: str, end: str) -> None:
    script = STARTED.replace("<end>", f"if info.rank == 1:\n    {end or 'pass'}")
    job = run_ranks(script, 2, mpi=mpi)
    assert (job.returncode == 0) == (not end), job.stderr
    lines = [list(map(int, line.split())) for line in job.stdout.splitlines() if line.replace(" ", "").isdigit()]
    assert len(lines) == 2, job.stdout
    try:
        children = {pid for line in lines for pid in line[:-1]}
        deadline = time.monotonic() + SOON
        while children & _running() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not children & _running()
        # One that has begun a session of its own is to outlive its parent.
        assert {line[-1] for line in lines} <= _running()
    finally:
        for line in lines:
            psutil.Process(line[-1]).kill()


def _running() -> set[int]:
    return {process.pid for process in psutil.process_iter(["status"]) if process.info["status"] != "zombie"}
