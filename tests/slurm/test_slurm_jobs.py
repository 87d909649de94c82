"""The job scripts, and jobs that fail, are cancelled or requeued, on a real SLURM with two nodes."""

import os
import re
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.mpi import PREFIXES, SOON, START, SUM
from support.slurm_cluster import Cluster, missing, start_cluster

CLUSTER = Path(__file__).parents[2] / "examples" / "cluster"
# The tests' own, where it isn't empty.
PYTHONPATH = ":".join(str(Path(part).absolute()) for part in os.environ.get("PYTHONPATH", "").split(":") if part)

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

SHOWS = (
    START
    + SUM
    + """
cores = ",".join(map(str, info.cores[rank]))
print(f"RANK {rank} {info.hostname} {value} {cores}\\n", end="", flush=True)
"""
)
FAILS = SHOWS + "if rank == n - 1:\n    raise ValueError('the reason')\nwhile True:\n    total(x).block_until_ready()\n"
RUNS = SHOWS + "while True:\n    total(x).block_until_ready()\n"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_cluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


def job(name: str, program: str, cluster: Cluster, *, ranks: int = 2, cores: int = 1, mpi: str = "mpich") -> str:
    """A job script of ours, less what its comments say that a user changes: the size, and the modules."""
    (cluster.home / "job" / "run.py").write_text(textwrap.dedent(program))
    script = (CLUSTER / f"{name}.sh").read_text()
    for old, new in {
        "--ntasks-per-node=64": f"--ntasks-per-node={ranks}",
        "--cpus-per-task=1": f"--cpus-per-task={cores}",
        "--time=02:00:00": "--time=00:05:00",
        "module load mpich\n": "",
    }.items():
        assert script.count(old) >= 1, old
        script = script.replace(old, new)
    source = 'source "$HOME/venv/bin/activate"\n'
    return script.replace(source, f"{source}export PATH={PREFIXES[mpi]}/bin:$PATH PYTHONPATH={PYTHONPATH}\n")


def ranks_of(output: str) -> list[tuple[int, str, int, str]]:
    found = re.findall(r"RANK (\d+) (\w+) (\d+) ([\d,]+)", output)
    return sorted((int(rank), host, int(value), cores) for rank, host, value, cores in found)


FOUR = [(rank, f"n{1 + rank // 2}", 6, str(rank % 2)) for rank in range(4)]


@pytest.mark.parametrize("mpi", PREFIXES)
def test_mpirun_on_two_nodes(mpi: str, slurm: Cluster) -> None:
    number = slurm.submit(job("slurm-mpirun", SHOWS, slurm, mpi=mpi))
    assert slurm.wait(number) == "COMPLETED", slurm.output(number)
    assert ranks_of(slurm.output(number)) == FOUR, slurm.output(number)


@pytest.mark.parametrize("mpi", PREFIXES)
def test_ranks_take_the_cores_that_the_job_gave_them(mpi: str, slurm: Cluster) -> None:
    number = slurm.submit(job("slurm-mpirun", SHOWS, slurm, ranks=1, cores=2, mpi=mpi))
    assert slurm.wait(number) == "COMPLETED", slurm.output(number)
    assert ranks_of(slurm.output(number)) == [(0, "n1", 1, "0,1"), (1, "n2", 1, "0,1")], slurm.output(number)


def test_srun_with_pmi_on_two_nodes(slurm: Cluster) -> None:
    number = slurm.submit(job("slurm-srun", SHOWS, slurm))
    assert slurm.wait(number) == "COMPLETED", slurm.output(number)
    assert ranks_of(slurm.output(number)) == FOUR, slurm.output(number)


@pytest.mark.parametrize("name", ["slurm-mpirun", "slurm-srun"])
def test_eight_ranks_on_a_core_of_each_node(name: str, slurm: Cluster) -> None:
    more = "#SBATCH --ntasks=8\n#SBATCH --overcommit"
    number = slurm.submit(job(name, SHOWS, slurm).replace("#SBATCH --ntasks-per-node=2", more))
    assert slurm.wait(number, 180) == "COMPLETED", slurm.output(number)
    expected = [(rank, f"n{1 + rank // 4}", 28) for rank in range(8)]
    assert [rank[:3] for rank in ranks_of(slurm.output(number))] == expected, slurm.output(number)


def test_srun_without_pmi(slurm: Cluster) -> None:
    script = job("slurm-srun", SHOWS, slurm).replace("--mpi=pmi2", "--mpi=none")
    number = slurm.submit(script)
    assert slurm.wait(number) == "FAILED"
    assert "srun has to be told how MPI finds the other ranks: `srun --mpi=pmi2`" in slurm.output(number)
    number = slurm.submit(script.replace("\nsrun --mpi", "\nexport FERROKET_COLLECTIVES=gloo\nsrun --mpi"))
    assert slurm.wait(number) == "COMPLETED", slurm.output(number)
    assert [rank[:3] for rank in ranks_of(slurm.output(number))] == [rank[:3] for rank in FOUR], slurm.output(number)


def test_an_mpirun_that_slurm_has_bound_is_told(slurm: Cluster) -> None:
    """What the script's own lines prevent: all ranks of a node on one core."""
    script = job("slurm-mpirun", SHOWS, slurm).replace("export SLURM_CPU_BIND=none", "export")
    number = slurm.submit(script)
    assert slurm.wait(number) == "COMPLETED", slurm.output(number)
    output = slurm.output(number)
    shared = len({rank[3] for rank in ranks_of(output)}) == 1
    assert ("share core 0, but the job has 2 cores there" in output) == shared, output


@pytest.mark.parametrize("name", ["slurm-mpirun", "slurm-srun"])
def test_a_rank_that_fails_fails_the_job_with_one_message(name: str, slurm: Cluster) -> None:
    number = slurm.submit(job(name, FAILS, slurm))
    assert slurm.wait(number) == "FAILED", slurm.output(number)
    output = slurm.output(number)
    ours = [line for line in output.splitlines() if line.startswith("ferroket: ")]
    assert ours == ["ferroket: rank 3 of 4 on n2: uncaught ValueError, so the whole job is aborted"], output
    assert_nothing_is_left(slurm)


@pytest.mark.parametrize("name", ["slurm-mpirun", "slurm-srun"])
def test_scancel_leaves_nothing_behind(name: str, slurm: Cluster) -> None:
    number = slurm.submit(job(name, RUNS, slurm))
    slurm.wait_for(number, "RANK", 4)
    slurm.command("scancel", number)
    assert slurm.wait(number) == "CANCELLED"
    assert_nothing_is_left(slurm)


def test_a_job_that_is_requeued_goes_on_writing(slurm: Cluster) -> None:
    number = slurm.submit(job("slurm-mpirun", RUNS, slurm))
    slurm.wait_for(number, "RANK", 4)
    slurm.command("scontrol", "requeue", number)
    slurm.wait_for(number, "RANK", 8, seconds=150)
    slurm.command("scancel", number)
    assert slurm.wait(number) == "CANCELLED"
    assert_nothing_is_left(slurm)


def test_the_time_limit_leaves_nothing_behind(slurm: Cluster) -> None:
    number = slurm.submit(job("slurm-mpirun", RUNS, slurm), "--time=1")
    assert slurm.wait(number, 150) == "TIMEOUT", slurm.output(number)
    assert_nothing_is_left(slurm)


def test_a_job_that_is_suspended_goes_on(slurm: Cluster) -> None:
    program = SHOWS + "import time\nfor _ in range(100):\n    total(x)\n    time.sleep(0.1)\n"
    number = slurm.submit(job("slurm-mpirun", program, slurm))
    slurm.wait_for(number, "RANK", 4)
    for process in slurm.processes():
        process.suspend()
    time.sleep(5)
    for process in slurm.processes():
        process.resume()
    assert slurm.wait(number) == "COMPLETED", slurm.output(number)


def test_salloc(slurm: Cluster) -> None:
    (slurm.home / "job" / "run.py").write_text(textwrap.dedent(SHOWS))
    command = (
        'source "$HOME/venv/bin/activate"; export SLURM_CPU_BIND=none SLURM_MPI_TYPE=none '
        f"PYTHONPATH={PYTHONPATH}; mpirun python run.py"
    )
    done = slurm.command("salloc", "--nodes=2", "--ntasks-per-node=2", "bash", "-c", command)
    assert done.returncode == 0, done.stderr
    assert ranks_of(done.stdout) == FOUR, done.stdout + done.stderr


def test_the_doctor_in_a_job(slurm: Cluster) -> None:
    script = job("slurm-mpirun", SHOWS, slurm).replace("mpirun python run.py", "mpirun ferroket doctor")
    number = slurm.submit(script)
    state, output = slurm.wait(number, 150), slurm.output(number)
    assert state == "COMPLETED", output
    assert "MPICH" in output
    assert re.search(r"^3 +n2 ", output, re.MULTILINE), output


def assert_nothing_is_left(cluster: Cluster) -> None:
    deadline = time.monotonic() + SOON
    while cluster.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert cluster.processes() == []
