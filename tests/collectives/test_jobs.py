"""Many short jobs, two at a time, on different MPIs: each ends cleanly and leaves nothing behind."""

import os
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.mpi import installed, run_ranks

pytestmark = pytest.mark.mpi

JOB = Path(__file__).parent / "job.py"
JOBS = int(os.environ.get("FERROKET_TEST_JOBS", "8"))


def run_job(mpi: str, *files: Path, **env: str) -> None:
    """One job with a clean exit, and with no temporary file and no shared memory left."""
    with tempfile.TemporaryDirectory(prefix="fk") as folder:
        arguments = [str(file) for file in files]
        job = run_ranks(JOB, 4, *arguments, mpi=mpi, timeout=240, TMPDIR=folder, **env).ok()
        assert list(Path(folder).iterdir()) == []
    lines = [line.split() for line in job.lines()]
    assert [line[:2] for line in lines] == [[f"{rank}:", "right"] for rank in range(4)]
    assert [path for line in lines for path in line[2:] if Path(path).exists()] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("hash_seed", ["0", "random"])
def test_two_jobs_at_once_on_two_mpis(hash_seed: str, tmp_path: Path) -> None:
    first, second = (installed() * 2)[:2] if hash_seed == "0" else (installed() * 2)[-2:]
    files = tmp_path / "first", tmp_path / "second"
    with ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(run_job, first, *files, PYTHONHASHSEED=hash_seed),
            pool.submit(run_job, second, *reversed(files), PYTHONHASHSEED=hash_seed),
        ]
    for job in jobs:
        job.result()


@pytest.mark.timeout(120 + 60 * JOBS)
def test_soak() -> None:
    """FERROKET_TEST_JOBS of them, `make soak` runs 200."""
    rng = random.Random(0)
    rounds = [rng.sample(installed(), len(installed())) for _ in range(JOBS)]
    mpis = [mpi for order in rounds for mpi in order][:JOBS]
    assert mpis, "no MPI is installed: make mpis"
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(run_job, mpi, PYTHONHASHSEED="0") for mpi in mpis]
    failures = [f"job {i} on {mpis[i]}: {job.exception()}" for i, job in enumerate(jobs) if job.exception()]
    assert not failures, f"{len(failures)} of {JOBS} jobs failed\n" + "\n\n".join(failures)
