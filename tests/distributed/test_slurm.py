"""What ``srun`` says, and jobs that it starts with and without PMI."""

import re
from pathlib import Path

import pytest

from ferroket.distributed import slurm
from support.hosts import Names, as_debian, by_dns, make_hosts
from support.mpi import START, SUM, Finished
from support.srun import run_srun

# As `srun -N2 -n3 --gpus=4` of SLURM 22.05 sets them for its second task.
TASK = {
    "SLURM_JOB_ID": "20",
    "SLURM_STEP_ID": "1",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "n[08-09]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_DISTRIBUTION": "block",
    "SLURM_GPUS_ON_NODE": "4",
}


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("n1", ["n1"]),
        ("node-7.cluster,login", ["node-7.cluster", "login"]),
        ("node[001-003,007]", ["node001", "node002", "node003", "node007"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("a[1,3],b2,c[4]", ["a1", "a3", "b2", "c4"]),
        ("rack[0-1]n[2-3]-ib", ["rack0n2-ib", "rack0n3-ib", "rack1n2-ib", "rack1n3-ib"]),
    ],
)
def test_hostlists(hostlist: str, names: list[str]) -> None:
    assert slurm.expand(hostlist) == names


def test_a_task_of_a_step() -> None:
    step = slurm.step(TASK)
    assert step is not None
    assert (step.rank, step.size, step.local_rank, step.local_size) == (1, 3, 1, 2)
    assert step.hosts == ("n08", "n09")
    assert step.gpus_on_node == 4
    assert (step.host, step.port) == ("n08", 61440 + 20 + 521)
    assert [node.hostname for node in step.nodes] == ["n08", "n09"]
    assert step.nodes[0].network != step.nodes[1].network


def test_the_second_node_counts_its_own_tasks() -> None:
    step = slurm.step({**TASK, "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "1"})
    assert step is not None
    assert (step.rank, step.local_rank, step.local_size) == (2, 0, 1)
    with pytest.raises(RuntimeError, match="the host name 'n08' doesn't resolve"):
        step.coordinator  # noqa: B018 - the error is what it gives
    assert step._replace(host="localhost").coordinator == f"localhost:{61440 + 20 + 521}"


def test_tasks_per_node_are_abbreviated() -> None:
    task = {**TASK, "SLURM_STEP_NODELIST": "n[1-5]", "SLURM_STEP_TASKS_PER_NODE": "4(x2),2(x3)", "SLURM_NODEID": "2"}
    step = slurm.step(task)
    assert step is not None
    assert step.local_size == 2


def test_one_node_meets_on_loopback() -> None:
    step = slurm.step({**TASK, "SLURM_STEP_NODELIST": "n08", "SLURM_STEP_TASKS_PER_NODE": "3"})
    assert step is not None
    assert step.coordinator.startswith("127.0.0.1:")


def test_steps_that_run_side_by_side_have_ports_of_their_own() -> None:
    tasks = [{**TASK, "SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(i)} for job in range(800, 900) for i in range(5)]
    ports = {step.port for step in map(slurm.step, tasks) if step}
    assert len(ports) == len(tasks)
    assert 61440 <= min(ports) <= max(ports) < 1 << 16


def test_the_coordinator_can_be_named() -> None:
    where = {"FERROKET_COORDINATOR_HOST": "fd00::7", "FERROKET_COORDINATOR_PORT": "7000"}
    step = slurm.step({**TASK, **where, "SLURM_NODEID": "1"})
    assert step is not None
    assert step.coordinator == "[fd00::7]:7000"


def test_no_task_no_step() -> None:
    batch_script = {name: value for name, value in TASK.items() if not name.startswith("SLURM_STEP_")}
    assert slurm.step(batch_script) is None
    assert slurm.step({}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_STEP_NODELIST", "n[1-"),
        ("SLURM_STEP_NODELIST", "n[1-2]]"),
        ("SLURM_STEP_NODELIST", "n[,]"),
        ("SLURM_STEP_NODELIST", ""),
        ("SLURM_STEP_TASKS_PER_NODE", "2(3x)"),
        ("SLURM_LOCALID", "-1"),
        ("SLURM_JOB_ID", "x"),
    ],
)
def test_nonsense_is_an_error_that_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        slurm.step({**TASK, name: value})
    assert str(caught.value).startswith(f"{name} is {value!r}, but srun started this process")


def test_a_missing_variable_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="SLURM_NODEID is not set, but srun started this process"):
        slurm.step({name: value for name, value in TASK.items() if name != "SLURM_NODEID"})


def test_variables_that_contradict_each_other() -> None:
    with pytest.raises(RuntimeError, match=r"SLURM_NODEID is 0, SLURM_STEP_NODELIST names 1 nodes and .* 2"):
        slurm.step({**TASK, "SLURM_STEP_NODELIST": "n08"})


def test_tasks_distributed_by_hand_need_the_coordinator_named() -> None:
    task = {**TASK, "SLURM_DISTRIBUTION": "arbitrary"}
    with pytest.raises(RuntimeError, match=r"which of the nodes n\[08-09\] runs rank 0. Name it in FERROKET_COORD"):
        slurm.step(task)
    step = slurm.step({**task, "FERROKET_COORDINATOR_HOST": "n09"})
    assert step is not None
    assert step.host == "n09"


# Jobs that a stand-in for srun starts.

PSUM = (
    START
    + SUM
    + """
host = info.coordinator.rsplit(":", 1)[0]
line = f"<{info.rank}/{info.size} {info.launcher}, {info.mpi}, {info.collectives}: {value} {host}>"
print(f"{line}\\n", end="", flush=True)
"""
)


# Each rank's traceback in one piece: those of several ranks may come at once.
WHOLE_TRACEBACKS = """
import os, sys, traceback
sys.excepthook = lambda *error: os.write(2, "".join(traceback.format_exception(*error)).encode())
"""


def results(job: Finished) -> list[str]:
    """What the ranks print, by rank; gloo itself prints too, and into their lines."""
    assert job.returncode == 0, job.stdout + job.stderr
    return sorted(re.findall("<(.*?)>", job.stdout))


@pytest.mark.quick
@pytest.mark.mpi
def test_srun_with_pmi_runs_over_mpi() -> None:
    lines = results(run_srun(PSUM, 2, mpi="pmi2"))
    for rank, line in enumerate(lines):
        assert line.startswith(f"{rank}/2 SLURM's srun, MPICH"), line
        assert line.endswith(", mpi: 1 127.0.0.1"), line
    assert len(lines) == 2


@pytest.mark.quick
@pytest.mark.mpi
def test_srun_without_pmi_runs_over_gloo() -> None:
    lines = results(run_srun(PSUM, 3, FERROKET_COLLECTIVES="gloo"))
    assert lines == [f"{rank}/3 SLURM's srun, None, gloo: 3 127.0.0.1" for rank in range(3)]


@pytest.mark.mpi
def test_srun_without_pmi_over_mpi_is_an_error_with_the_mend() -> None:
    job = run_srun(WHOLE_TRACEBACKS + "import ferroket as fk; fk.initialize()", 2, timeout=30)
    assert job.returncode != 0
    for rank in range(2):
        assert f"SLURM's srun says that this is rank {rank} of 2, but MPI says rank 0 of 1" in job.stderr
    assert job.stderr.count("`srun --mpi=pmi2` for MPICH") == 2
    assert job.stderr.count("FERROKET_COLLECTIVES=gloo, which needs no MPI") == 2


@pytest.mark.mpi
def test_one_task_is_a_plain_process() -> None:
    script = "import ferroket as fk; info = fk.initialize(); print(info.size, info.launcher, info.mpi)"
    assert run_srun(script, 1).ok().stdout == "1 None None\n"


@pytest.mark.mpi
@pytest.mark.parametrize(("names", "ipv6"), [(by_dns, False), (as_debian, False), (by_dns, True)])
def test_srun_without_pmi_over_hosts(tmp_path: Path, names: Names, *, ipv6: bool) -> None:
    with make_hosts(tmp_path, names, ipv6=ipv6) as hosts:
        lines = results(run_srun(PSUM, 3, hosts=hosts, FERROKET_COLLECTIVES="gloo"))
    address = f"[{hosts[0].address}]" if ipv6 else hosts[0].address
    # Two of the ranks are on rank 0's host; the third goes by its name.
    coordinators = [address, address, hosts[0].name]
    assert lines == [f"{rank}/3 SLURM's srun, None, gloo: 3 {host}" for rank, host in enumerate(coordinators)]


@pytest.mark.mpi
def test_a_first_host_that_does_not_resolve(tmp_path: Path) -> None:
    with make_hosts(tmp_path, lambda host, hosts: {}) as hosts:
        job = run_srun(WHOLE_TRACEBACKS + PSUM, 2, hosts=hosts, timeout=30, FERROKET_COLLECTIVES="gloo")
        assert job.returncode != 0
        problem = f"the host name '{hosts[0].name}' doesn't resolve to an address"
        assert job.stderr.count(f"RuntimeError: {problem}") == 2, job.stderr
        named = run_srun(PSUM, 2, hosts=hosts, FERROKET_COLLECTIVES="gloo", FERROKET_COORDINATOR_HOST=hosts[0].address)
        assert len(results(named)) == 2
