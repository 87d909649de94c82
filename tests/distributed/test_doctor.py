"""``ferroket doctor``: the facts are right, and each classic mistake is named with its mend."""

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import psutil
import pytest

from ferroket.distributed import affinity
from ferroket.distributed.doctor import limits
from ferroket.distributed.doctor.diagnosis import diagnose
from ferroket.distributed.doctor.examination import Examination, Problem
from ferroket.distributed.doctor.facts import Facts, Library, collect, relevant_variables
from ferroket.distributed.doctor.neighbours import Neighbours
from ferroket.distributed.doctor.present import Page, as_json
from ferroket.distributed.doctor.psum import Psum
from ferroket.distributed.doctor.trial import Failure, Outcome, own_job
from ferroket.distributed.doctor.worker import Running
from ferroket.distributed.launching.launchers import Command
from hosts import as_debian, make_hosts, run_on_hosts
from mpi import PREFIXES, Finished, mpirun, run_alone, run_ranks

# -- made-up facts -----------------------------------------------------------------------------------------

GIB = 1 << 30

RANK = Facts(
    rank=0,
    size=2,
    launcher="MPICH's mpirun (hydra)",
    launcher_kind="hydra",
    started_by=["/opt/mpich/bin/hydra_pmi_proxy", "/opt/mpich/bin/mpirun"],
    hostname="node1",
    machine="node1",
    address="10.0.0.1",
    address_error=None,
    versions=dict.fromkeys(["ferroket", "jax", "jaxlib", "netket", "mpi4py", "numpy"], "3.1"),
    lowest={"jax": "0.7", "netket": "3.1"},
    python="3.12.1, /venv/bin/python",
    system="Linux",
    early=[],
    startup_file=None,
    cores=[0, 1, 2, 3],
    physical=["0.0", "0.1", "0.2", "0.3"],
    node_cores=4,
    node_physical=4,
    available_cores=4,
    load=0.5,
    quota=None,
    memory=16 * GIB,
    memory_free=8 * GIB,
    memory_limit=None,
    shm=[8 * GIB, 8 * GIB],
    tmp_error=None,
    mpirun_on_path="/opt/mpich/bin/mpirun",
    proxies={},
    variables={},
)
LIBRARY = Library(
    path="/opt/mpich/lib/libmpi.so.12",
    family="MPICH",
    version="MPICH 5.0.2",
    origin="beside the launcher",
    attempts=[["/opt/mpich/lib/libmpi.so.12 (beside the launcher)", "used"]],
    mpirun="/opt/mpich/bin/mpirun",
    mpirun_error=None,
)
FAST = Psum(bytes=4, seconds=5e-6, mean=6e-6, calls=1000, wrong=[])


def job(*ranks: Facts, bound: list[list[int]] | None = None, threads: int = 1, **changes: Any) -> Examination:
    """A job that ran well, one core for each rank unless said otherwise."""
    ranks = ranks or (RANK, replace(RANK, rank=1))
    bound = bound or [[place] for place in range(len(ranks))]
    running = [
        Running(facts=facts, local_rank=place, cores=own, threads=threads, memory=2 << 27, devices=["cpu:0"])
        for place, (facts, own) in enumerate(zip(ranks, bound, strict=True))
    ]
    nodes = len({facts.machine for facts in ranks})
    defaults: dict[str, Any] = {"library": LIBRARY, "library_error": None, "neighbours": list(ranks)}
    outcome = Outcome(info={"nodes": nodes}, ranks=running, psum=[FAST])
    return Examination(facts=ranks[0], **{**defaults, "outcome": outcome, **changes})


def failed(
    text: str, *ranks: Facts, stage: str = "fk.initialize()", output: list[str] | None = None, **changes: Any
) -> Examination:
    ranks = ranks or (RANK, replace(RANK, rank=1))
    failure = Failure(rank=0, hostname="node1", stage=stage, text=text, output=output or [])
    return job(*ranks, outcome=Outcome(failures=[failure]), **changes)


def alone(**changes: Any) -> Facts:
    return replace(RANK, launcher=None, size=1, started_by=[], **changes)


def the_problem(examination: Examination, severity: str) -> Problem:
    problems = diagnose(examination)
    assert [problem.severity for problem in problems] == [severity], problems
    return problems[0]


def test_a_healthy_job_has_no_problems() -> None:
    assert diagnose(job()) == []
    assert diagnose(job(alone(), replace(alone(), rank=1))) == []
    four = [replace(RANK, rank=rank) for rank in range(4)]
    assert diagnose(job(*four)) == []


INDEPENDENT = "RuntimeError: it says that this is rank 0 of 2, but the ranks would be 2 independent runs. Do it"


def test_independent_runs() -> None:
    problem = the_problem(failed(INDEPENDENT), "error")
    assert "MPICH's mpirun (hydra) (/opt/mpich/bin/mpirun) and the MPI library MPICH 5.0.2" in problem.text
    assert "don't belong together: 2 independent runs, each rank 0 of 1" in problem.text
    assert "two families" not in problem.text
    assert "name the library that belongs to the launcher in FERROKET_LIBMPI" in problem.mend


def test_library_and_launcher_of_two_families() -> None:
    other = replace(LIBRARY, family="Open MPI", version="Open MPI v5", mpirun="/opt/ompi/bin/mpirun")
    problem = the_problem(failed("the process ended with exit code 1", library=other), "error")
    assert "which are of two families, don't belong together: ranks that don't find each other" in problem.text
    assert "or start with the library's own launcher, /opt/ompi/bin/mpirun -n 2" in problem.mend
    named = replace(other, origin="named in MPI4PY_LIBMPI")
    facts = replace(RANK, variables={"MPI4PY_LIBMPI": "/opt/ompi/lib/libmpi.so.40"})
    problem = the_problem(failed(INDEPENDENT, facts, library=named), "error")
    assert problem.mend.startswith("unset MPI4PY_LIBMPI")


def test_srun_without_pmi() -> None:
    rank = replace(RANK, launcher="SLURM's srun", launcher_kind="slurm", started_by=[])
    assert "srun --mpi=pmi2" in the_problem(failed(INDEPENDENT, rank), "error").mend


def test_a_launcher_whose_variables_are_lost() -> None:
    facts = replace(alone(), started_by=["/opt/mpich/bin/hydra_pmi_proxy", "/opt/mpich/bin/mpirun"])
    problem = the_problem(job(facts, outcome=None), "error")
    assert "started by /opt/mpich/bin/mpirun, but its environment has none of the variables" in problem.text
    assert "no `env -i`" in problem.mend


def test_no_library() -> None:
    error = "no MPI library was found. Install one beside this package, or name it. Tried: \n  a: not there\n  b: old"
    problem = the_problem(job(library=None, library_error=error, outcome=None), "error")
    assert problem.text == "no MPI library was found"
    assert problem.mend.startswith("Install one beside this package, or name it")
    assert "ferroket launch --collectives gloo" in problem.mend
    gloo = replace(RANK, variables={"FERROKET_COLLECTIVES": "gloo"})
    assert diagnose(job(gloo, library=None, library_error=error)) == []


def test_no_mpirun() -> None:
    missing = replace(LIBRARY, mpirun=None, mpirun_error="no mpirun belongs to it")
    problem = the_problem(job(alone(), library=missing, outcome=None), "error")
    assert problem.text == "no mpirun belongs to it"
    assert diagnose(job(library=missing)) == []  # srun starts it, say


def test_another_mpirun_on_path() -> None:
    problem = the_problem(job(alone(mpirun_on_path="/usr/bin/mpirun"), outcome=None), "warning")
    assert "`mpirun` in this shell is /usr/bin/mpirun" in problem.text
    assert "start with /opt/mpich/bin/mpirun, or put /opt/mpich/bin first on PATH" in problem.mend


def test_a_missing_and_an_old_package() -> None:
    missing = replace(RANK, versions={**RANK.versions, "netket": None})
    problem = the_problem(job(missing, outcome=None), "error")
    assert problem.text == "netket is not installed for Python 3.12.1, /venv/bin/python"
    assert problem.mend == "pip install netket"
    old = replace(RANK, versions={**RANK.versions, "jax": "0.6.12"})
    problem = the_problem(job(old), "warning")
    assert "jax 0.6.12 is older than 0.7" in problem.text
    assert problem.mend == "pip install --upgrade 'jax>=0.7'"
    the_problem(failed("AttributeError: shard_map", old), "error")
    assert diagnose(job(replace(RANK, versions={**RANK.versions, "jax": "0.10.0rc1"}))) == []


def test_an_early_import() -> None:
    early = replace(RANK, early=["jax"], startup_file="/venv/sitecustomize.py")
    problem = the_problem(failed("RuntimeError: rank 0 on a: fk.initialize() came too late", early), "error")
    assert "Python imports jax when it starts (rank 0)" in problem.text
    assert problem.mend == "take the import out of /venv/sitecustomize.py"


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"JAX_NUM_CPU_DEVICES": "4"}, "JAX_NUM_CPU_DEVICES"),
        ({"XLA_FLAGS": "--a=1 --xla_force_host_platform_device_count=4"}, "--xla_force_host_platform_device_count"),
    ],
)
def test_several_devices_a_process(variables: dict[str, str], name: str) -> None:
    facts = replace(RANK, variables=variables)
    problem = the_problem(failed("RuntimeError: this process has 4 CPU devices", facts), "error")
    assert problem.text.startswith(name)
    assert "asks for 4 CPU devices" in problem.text
    assert "start 4 times as many ranks" in problem.mend
    assert diagnose(job(replace(facts, variables={**variables, "FERROKET_COLLECTIVES": "gloo"}), library=None)) == []


def test_a_failure_of_another_kind_is_shown_with_its_own_mend() -> None:
    text = "ValueError: FERROKET_BIND is 'x'. Choose another"
    problem = the_problem(failed(text), "error")
    assert problem.text == "rank 0 on node1 failed in fk.initialize(): ValueError: FERROKET_BIND is 'x'"
    assert problem.mend == "Choose another"
    killed = failed("the process was killed by SIGKILL")
    assert "start fewer ranks" in the_problem(killed, "error").mend
    assert "pip check" in the_problem(failed("ImportError: cannot import"), "error").mend
    crash = failed("the process was killed by SIGSEGV", stage="psum", output=["bad things"])
    problem = the_problem(crash, "error")
    assert "failed in psum: the process was killed by SIGSEGV" in problem.text
    assert "/opt/mpich/bin/mpirun -n 2 hostname" in problem.mend
    root = failed("the process ended with exit code 1", output=["prterun has detected an attempt to run as root."])
    assert "OMPI_ALLOW_RUN_AS_ROOT=1" in the_problem(root, "error").mend


def test_ranks_on_one_core_while_others_are_idle() -> None:
    problem = the_problem(job(bound=[[2], [2]]), "warning")
    assert problem.text == "ranks 0-1 run on the same core 2, though 4 are there for 2 ranks"
    assert "drop the options by which mpirun, srun or taskset bind the ranks" in problem.mend


def test_ranks_that_nobody_bound() -> None:
    facts = replace(RANK, variables={"FERROKET_BIND": "none"})
    problem = the_problem(job(facts, replace(facts, rank=1), bound=[[0, 1, 2, 3]] * 2, threads=4), "warning")
    assert "FERROKET_BIND is none, and 2 ranks run on the same 4 cores (0-3), with 8 threads of XLA" in problem.text
    assert problem.mend.startswith("unset FERROKET_BIND")


def test_more_ranks_than_cores() -> None:
    ranks = [replace(RANK, rank=rank) for rank in range(8)]
    problem = the_problem(job(*ranks, bound=[[rank % 4] for rank in range(8)]), "warning")
    assert problem.text == "8 ranks share 4 cores"
    assert problem.mend == "start 4 ranks on the node, or ask for more cores"


def test_hyperthreads_of_one_core() -> None:
    facts = replace(RANK, physical=["0.0", "0.0", "0.1", "0.1"], node_physical=2)
    problem = the_problem(job(facts, replace(facts, rank=1), bound=[[0], [1]]), "warning")
    assert problem.text == "2 ranks run on 1 physical core: hyperthreads share a core"
    assert diagnose(job(facts, replace(facts, rank=1), bound=[[0, 1], [2, 3]], threads=2)) == []
    four = [replace(facts, rank=rank) for rank in range(4)]
    problem = the_problem(job(*four, bound=[[0, 1], [2, 3]] * 2), "warning")
    assert problem.text == "4 ranks share 2 physical cores"


def test_ranks_that_never_started_are_not_blamed_for_cores_that_they_would_have_divided() -> None:
    the_problem(failed("ValueError: x"), "error")
    one_core = replace(RANK, cores=[0], physical=["0.0"])
    problems = diagnose(failed("ValueError: x", one_core, replace(one_core, rank=1)))
    assert "run on the same core 0" in problems[1].text


def test_each_node_is_diagnosed_by_itself() -> None:
    ranks = [replace(RANK, rank=rank, machine=f"n{rank // 2}", hostname=f"n{rank // 2}") for rank in range(4)]
    assert diagnose(job(*ranks, bound=[[0], [1], [0], [1]])) == []
    problem = the_problem(job(*ranks, bound=[[0], [1], [3], [3]]), "warning")
    assert problem.text == "ranks 2-3 on n1 run on the same core 3, though 4 are there for 2 ranks"


def test_more_threads_than_cores() -> None:
    problem = the_problem(job(threads=4), "warning")
    assert problem.text == "2 ranks have 8 threads of XLA for 2 cores"
    assert problem.mend.startswith("unset PJRT_NPROC")
    openmp = replace(RANK, variables={"OMP_NUM_THREADS": "4"})
    problem = the_problem(job(openmp, replace(openmp, rank=1), bound=[[0, 1], [2, 3]], threads=2), "warning")
    assert problem.text == "OMP_NUM_THREADS is 4: 2 ranks may start 8 threads on 4 cores"
    assert problem.mend == "OMP_NUM_THREADS=2"
    enough = replace(RANK, variables={"OMP_NUM_THREADS": "2"})
    assert diagnose(job(enough, replace(enough, rank=1), bound=[[0, 1], [2, 3]], threads=2)) == []


def test_less_time_than_cores() -> None:
    problem = the_problem(job(replace(RANK, quota=1.5), replace(RANK, rank=1)), "warning")
    assert "allows 1.5 cores' worth of time, but 2 ranks on 2 cores may use more" in problem.text
    assert "docker run --cpus=2" in problem.mend
    assert diagnose(job(replace(RANK, quota=2.0))) == []


def test_little_memory() -> None:
    small = replace(RANK, shm=[64 << 20, 20 << 20])
    problem = the_problem(job(small, replace(RANK, rank=1)), "warning")
    assert "/dev/shm has 20 MiB free of 64, but MPI may take 16 for each of 2 ranks" in problem.text
    assert "docker run --shm-size=1g" in problem.mend
    problem = the_problem(job(replace(RANK, memory_limit=GIB), replace(RANK, rank=1)), "warning")
    assert "1024 MiB of memory are 512 for each of 2 ranks" in problem.text
    problem = the_problem(job(replace(RANK, tmp_error="No space left")), "warning")
    assert "TMPDIR" in problem.mend


def test_other_settings() -> None:
    trampoline = replace(RANK, variables={"MPITRAMPOLINE_LIB": "/nowhere/libmpiwrapper.so"})
    problem = the_problem(job(trampoline), "warning")
    assert problem.text.startswith("MPITRAMPOLINE_LIB is /nowhere/libmpiwrapper.so, which isn't ferroket's")
    assert "though fk.initialize() puts its own in its place" in problem.text
    assert problem.mend == "unset MPITRAMPOLINE_LIB"
    crash = failed("the process ended with exit code 1", trampoline, output=["MPItrampoline: Could not dlopen"])
    assert "and jaxlib can't load it" in the_problem(crash, "error").text
    problem = the_problem(job(replace(RANK, variables={"FERROKET_COLLECTIVES": "gloo"})), "warning")
    assert "gloo, which is slower than MPI" in problem.text
    assert problem.mend == "unset FERROKET_COLLECTIVES"


def test_ranks_that_differ() -> None:
    other = replace(RANK, rank=1, versions={**RANK.versions, "numpy": "1.26"})
    problem = the_problem(job(RANK, other), "warning")
    assert problem.text == "numpy is 3.1 on rank 0, but 1.26 on rank 1"
    other = replace(RANK, rank=1, variables={"XLA_FLAGS": "--x"})
    problem = the_problem(job(RANK, other), "warning")
    assert problem.text == "XLA_FLAGS is missing on rank 0, but --x on rank 1"
    assert "same environment" in problem.mend


def test_a_slow_psum() -> None:
    slow = replace(FAST, mean=2.5e-3)
    outcome = job().outcome
    assert outcome
    problem = the_problem(job(outcome=replace(outcome, psum=[slow])), "warning")
    assert problem.text.startswith("a psum of 4 B takes 2.5 ms on one node, where 0.05 ms are usual; the node's load")
    several = replace(outcome, psum=[slow], info={"nodes": 2})
    assert diagnose(job(outcome=several)) == []
    one_core = [replace(facts, available_cores=1) for facts in (RANK, replace(RANK, rank=1))]
    shared = job(*one_core, bound=[[0], [0]])
    assert shared.outcome
    problem = the_problem(replace(shared, outcome=replace(shared.outcome, psum=[slow])), "warning")
    assert problem.text == "2 ranks share 1 core"


def test_a_name_that_does_not_resolve_matters_on_several_nodes_only() -> None:
    lost = replace(RANK, address=None, address_error="Name or service not known")
    assert diagnose(job(lost)) == []
    other = replace(lost, rank=1, hostname="node2", machine="node2")
    problem = the_problem(job(RANK, other, bound=[[0], [0]]), "warning")
    assert "the host name node2 doesn't resolve on its own node (Name or service not known)" in problem.text
    assert "FERROKET_COORDINATOR_HOST" in problem.mend


def test_errors_come_first() -> None:
    facts = replace(RANK, shm=[0, 0], early=["jax"])
    assert [problem.severity for problem in diagnose(failed("x", facts))] == ["error", "warning"]


# -- facts -------------------------------------------------------------------------------------------------


def test_the_facts_of_this_process() -> None:
    facts = collect()
    assert facts.cores == sorted(os.sched_getaffinity(0))
    assert facts.physical == ["{}.{}".format(*affinity.physical_core(cpu)) for cpu in facts.cores]
    assert facts.versions["numpy"] == numpy.__version__
    assert facts.node_cores == os.cpu_count()
    assert 0 < facts.memory_free <= facts.memory
    assert json.loads(json.dumps(facts.__dict__)) == facts.__dict__


def test_variables_that_bear_on_a_run_and_no_secrets() -> None:
    relevant = ["FERROKET_BIND", "JAX_PLATFORMS", "SLURM_PROCID", "FI_PROVIDER", "I_MPI_PIN", "OMPI_MCA_pml"]
    others = ["HOME", "SLURM_JWT_TOKEN", "JAX_SECRET_KEY", "I_MPI_INFO_LCPU", "OMPI_MCA_num_procs"]
    assert dict(relevant_variables(dict.fromkeys(relevant + others, "1"))) == dict.fromkeys(relevant, "1")


def cgroups(folder: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    (folder / "membership").write_text(membership + "\n")
    return folder, folder / "membership"


def test_limits_of_control_groups_version_2(tmp_path: Path) -> None:
    files = {
        "a/cpu.max": "max 100000",
        "a/b/cpu.max": "150000 100000",
        "a/memory.max": str(GIB),
        "a/b/memory.max": "max",
        "a/b/cpuset.cpus.effective": "0-3,8",
    }
    where = cgroups(tmp_path, "0::/a/b", files)
    assert (limits.cpu_quota(*where), limits.memory_limit(*where), limits.core_count(*where)) == (1.5, GIB, 5)
    inside = cgroups(tmp_path / "container", "0::/", {"cpu.max": "max 100000", "memory.max": "max"})
    assert (limits.cpu_quota(*inside), limits.memory_limit(*inside), limits.core_count(*inside)) == (None, None, None)


def test_limits_of_control_groups_version_1(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/job/cpu.cfs_quota_us": "200000",
        "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
        "memory/memory.limit_in_bytes": str(2 * GIB),
        "memory/job/memory.limit_in_bytes": str((1 << 63) - 4096),
    }
    where = cgroups(tmp_path, "3:cpu,cpuacct:/job\n2:memory:/job\n1:cpuset:/elsewhere", files)
    assert (limits.cpu_quota(*where), limits.memory_limit(*where), limits.core_count(*where)) == (2.0, 2 * GIB, None)


def test_neighbours_hear_of_each_other_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Neighbours(1) as one:
        one.tell("facts", {"a": 1})
        with Neighbours(0) as zero:
            zero.tell("facts", {"a": 0})
            assert one.told("facts") == {0: {"a": 0}, 1: {"a": 1}}
            assert (zero.ranks("facts"), zero.told("failures")) == ({0, 1}, {})
        assert one.told("facts") == {1: {"a": 1}}
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_each_is_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with Neighbours(0) as zero:
        zero.tell("facts", {})
        assert zero.told("facts") == {}


# -- the page ----------------------------------------------------------------------------------------------


def page(examination: Examination) -> str:
    out = io.StringIO()
    sheet = Page(out, terminal=False)
    sheet.static(examination.facts, examination.library, examination.library_error)
    info = {"size": 2, "nodes": 1, "collectives": "mpi", "binding": "none", "yielding": False}
    info |= dict.fromkeys(["mpi", "thread_level", "coordinator"])
    outcome = examination.outcome
    shown = replace(examination, outcome=replace(outcome, info=outcome.info and info) if outcome else None)
    sheet.running(shown)
    sheet.problems(shown, diagnose(examination))
    return out.getvalue()


def test_the_page_is_plain_and_cuts_nothing() -> None:
    long = "/a" * 200 + "/libmpi.so.12"
    text = page(job(library=replace(LIBRARY, path=long)))
    assert long in text
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    assert text.endswith("A run works, and no problem was found.\n")


def test_the_page_names_each_rank_and_what_failed() -> None:
    text = page(failed("ValueError: bad", output=["the last words of MPI"]))
    assert "ERROR: rank 0 on node1 failed in fk.initialize(): ValueError: bad" in text
    assert "  | the last words of MPI" in text
    assert [line.split() for line in text.splitlines() if "not started" in line] == [
        [str(rank), "node1", "0-3", "4", "0-3", "not", "started"] for rank in range(2)
    ]
    assert text.endswith("A run would fail: 1 error, 0 warnings.\n")


def test_places_without_a_library_are_listed() -> None:
    error = "no MPI library was found. Install one. Tried: \n  /a/libmpi.so.12: not there\n  libmpi.so.40: wrong class"
    text = page(job(library=None, library_error=error, outcome=None))
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "library none: no MPI library was found" in rows
    assert "tried /a/libmpi.so.12: not there" in rows
    assert "tried libmpi.so.40: wrong class" in rows


def test_json_has_everything() -> None:
    examination = failed("ValueError: bad. Mend it")
    content = json.loads(as_json(examination, diagnose(examination)))
    assert content["ok"] is False
    assert content["problems"][0]["severity"] == "error"
    assert content["problems"][0]["mend"] == "Mend it"
    assert content["facts"]["versions"] == RANK.versions
    assert content["outcome"]["failures"][0]["rank"] == 0
    assert json.loads(as_json(job(), []))["ok"] is True


# -- for real ----------------------------------------------------------------------------------------------

PHYSICAL_CORES = len({affinity.physical_core(cpu) for cpu in affinity.allowed()})

DOCTOR = "from ferroket.cli import app; app({arguments!r})"

# With a file of this name on PYTHONPATH, something happens on rank 1 before a script begins.
SITECUSTOMIZE = """
import os, sys
rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK")
if rank == "1" and any("doctor.worker" in argument for argument in sys.orig_argv):
    {what}
"""


def doctor(*arguments: str, n: int = 2, mpi: str = "mpich", **env: str) -> Finished:
    script = DOCTOR.format(arguments=["doctor", *arguments])
    return run_ranks(script, n, mpi=mpi, **env)


def examined(finished: Finished) -> dict[str, Any]:
    content, _ = json.JSONDecoder().raw_decode(finished.stdout)  # launchers add to it when a job fails
    assert isinstance(content, dict)
    return content


def problems(finished: Finished) -> list[dict[str, str]]:
    found = examined(finished)["problems"]
    # What the machine of the tests does is no business of theirs.
    machine = ("a psum of 4 B takes", "the control group")
    return [problem for problem in found if not problem["text"].startswith(machine)]


@contextmanager
def only_core(cpu: int) -> Iterator[None]:
    """What this process starts may use one core only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


AFFINITY = """
import os
import ferroket as fk
info = fk.initialize()
print(f"{info.rank} {sorted(os.sched_getaffinity(0))}\\n", end="", flush=True)
"""


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", PREFIXES)
def test_a_healthy_job(mpi: str) -> None:
    finished = doctor("--json", mpi=mpi).ok()
    content = examined(finished)
    assert content["ok"] is True
    masks = [json.loads(line.split(" ", 1)[1]) for line in run_ranks(AFFINITY, 2, mpi=mpi).ok().lines()]
    outcome = content["outcome"]
    assert [rank["cores"] for rank in outcome["ranks"]] == masks
    assert [rank["facts"]["rank"] for rank in outcome["ranks"]] == [0, 1]
    assert content["library"]["path"] == outcome["info"]["mpi_path"]
    assert Path(content["library"]["mpirun"]).samefile(mpirun(mpi)) or mpi == "impi-rt"
    assert content["library"]["attempts"][-1][1] == "used"
    assert Path(content["facts"]["started_by"][-1]).parent.samefile(PREFIXES[mpi] / "bin")
    assert outcome["info"]["thread_level"] == "MPI_THREAD_MULTIPLE"
    assert outcome["info"]["coordinator"].startswith("127.0.0.1:")
    small, large = outcome["psum"]
    assert (small["bytes"], large["bytes"]) == (4, 1 << 24)
    assert 1e-7 < small["seconds"] < large["seconds"] < 60
    assert small["wrong"] == large["wrong"] == outcome["failures"] == []
    for rank in outcome["ranks"]:
        assert rank["threads"] in (None, len(rank["cores"]))
        assert 50 << 20 < rank["memory"] < 2 * GIB
    if PHYSICAL_CORES >= 2:
        assert problems(finished) == []


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", PREFIXES)
def test_one_page_for_the_whole_job(mpi: str) -> None:
    text = doctor(mpi=mpi, http_proxy="http://me:password@127.0.0.1:9").ok().stdout
    assert text.count("ferroket doctor") == 1
    assert "\x1b" not in text
    for words in ("MPI_THREAD_MULTIPLE", "psum of 16 MiB", "http://***@127.0.0.1:9", sys.executable):
        assert words in text
    assert "password" not in text
    assert "A run works" in text


@pytest.mark.mpi
@pytest.mark.parametrize(("launcher", "library"), [("mpich", "openmpi"), ("openmpi", "mpich")])
def test_two_families(launcher: str, library: str) -> None:
    name = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}[library]
    file = mpirun(library).parents[1] / "lib" / name
    finished = doctor("--json", mpi=launcher, FERROKET_LIBMPI=str(file))
    assert finished.returncode == 1
    content = examined(finished)
    (problem,) = content["problems"]
    assert problem["severity"] == "error"
    assert "which are of two families, don't belong together" in problem["text"]
    if launcher == "mpich":
        assert "2 independent runs, each rank 0 of 1" in problem["text"]
    assert problem["mend"].startswith("unset FERROKET_LIBMPI")
    assert "/bin/mpirun -n 2" in problem["mend"]
    assert [facts["rank"] for facts in content["neighbours"]] == [0, 1]
    assert content["outcome"]["failures"][0]["others"] == [1]


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_variables_that_get_lost_on_the_way(mpi: str) -> None:
    script = "import os\n[os.environ.pop(name) for name in list(os.environ) if name.startswith(('PMI', 'OMPI_C'))]\n"
    finished = run_ranks(script + DOCTOR.format(arguments=["doctor", "--json"]), 2, mpi=mpi)
    assert finished.returncode == 1
    (problem,) = problems(finished)
    assert problem["text"].startswith("independent runs: this process was started by")
    assert "no `env -i`" in problem["mend"]


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_ranks_on_one_core(mpi: str) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if PHYSICAL_CORES < 2:
        pytest.skip("there is one core only")
    with only_core(allowed[-1]):
        finished = doctor("--json", mpi=mpi)
    assert finished.returncode == 0
    (problem,) = problems(finished)
    assert problem["severity"] == "warning"
    assert problem["text"].startswith(f"ranks 0-1 run on the same core {allowed[-1]}, though")
    assert "taskset" in problem["mend"]


@pytest.mark.mpi
def test_binding_turned_off_and_too_many_threads() -> None:
    allowed = len(os.sched_getaffinity(0))
    if PHYSICAL_CORES < 2:
        pytest.skip("there is one core only")
    finished = doctor("--json", FERROKET_BIND="none", OMP_NUM_THREADS="1000")
    assert finished.returncode == 0
    texts = [problem["text"] for problem in problems(finished)]
    assert texts[0].startswith(f"FERROKET_BIND is none, and 2 ranks run on the same {allowed} cores")
    assert texts[1].startswith("OMP_NUM_THREADS is 1000: 2 ranks may start 2000 threads")


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("variable", "value"),
    [("JAX_NUM_CPU_DEVICES", "2"), ("XLA_FLAGS", "--xla_force_host_platform_device_count=2")],
)
def test_two_devices_a_process(variable: str, value: str) -> None:
    finished = doctor("--json", **{variable: value})
    assert finished.returncode != 0
    (problem,) = problems(finished)
    assert "asks for 2 CPU devices in each process" in problem["text"]
    assert f"unset {value.split('=', maxsplit=1)[0] if value.startswith('--') else variable}" in problem["mend"]


@pytest.mark.mpi
def test_a_library_that_is_not_there() -> None:
    finished = doctor("--json", FERROKET_LIBMPI="/nowhere/libmpi.so")
    assert finished.returncode == 1
    (problem,) = problems(finished)
    assert problem["text"].startswith("FERROKET_LIBMPI names /nowhere/libmpi.so")
    assert "or unset FERROKET_LIBMPI" in problem["mend"]


@pytest.mark.mpi
def test_settings_that_only_cost() -> None:
    finished = doctor("--json", FERROKET_COLLECTIVES="gloo")
    assert finished.returncode == 0, finished.stderr
    (problem,) = problems(finished)
    assert problem["text"].startswith("FERROKET_COLLECTIVES is gloo")
    assert examined(finished)["outcome"]["info"]["collectives"] == "gloo"
    finished = doctor("--json", MPITRAMPOLINE_LIB="/nowhere/libmpiwrapper.so")
    assert finished.returncode == 0, finished.stderr
    (problem,) = problems(finished)
    assert problem["text"].startswith("MPITRAMPOLINE_LIB is /nowhere/libmpiwrapper.so")


@pytest.mark.mpi
def test_jax_imported_by_sitecustomize(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import jax\n")
    finished = doctor("--json", PYTHONPATH=str(tmp_path))
    assert finished.returncode != 0
    (problem,) = problems(finished)
    assert "Python imports jax, jaxlib when it starts (ranks 0-1)" in problem["text"]
    assert problem["mend"] == f"take the import out of {tmp_path / 'sitecustomize.py'}"


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", PREFIXES)
def test_a_rank_that_never_starts(tmp_path: Path, mpi: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.format(what="import time; time.sleep(600)"))
    finished = doctor("--json", mpi=mpi, PYTHONPATH=str(tmp_path), FERROKET_INIT_TIMEOUT="6")
    assert finished.returncode != 0
    failure = examined(finished)["outcome"]["failures"][0]
    assert (failure["rank"], failure["stage"]) == (0, "fk.initialize()")
    assert "has waited 6 s for the other ranks" in "".join(failure["output"])


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", PREFIXES)
def test_a_rank_that_dies_at_the_start(tmp_path: Path, mpi: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.format(what="os.kill(os.getpid(), 11)"))
    finished = doctor("--json", mpi=mpi, PYTHONPATH=str(tmp_path))
    assert finished.returncode != 0
    failure = examined(finished)["outcome"]["failures"][0]
    assert (failure["rank"], failure["text"]) == (1, "the process was killed by SIGSEGV")


@pytest.mark.mpi
def test_an_mpi_that_aborts_leaves_the_facts_on_the_page() -> None:
    finished = doctor(mpi="openmpi", OMPI_MCA_pml="nonsense")
    assert finished.returncode != 0
    for words in ("ferroket doctor", "Open MPI v", "OMPI_MCA_pml"):
        assert words in finished.stdout


@pytest.mark.mpi
def test_two_hosts(tmp_path: Path) -> None:
    with make_hosts(tmp_path, as_debian) as hosts:
        finished = run_on_hosts(DOCTOR.format(arguments=["doctor", "--json"]), hosts).ok()
    content = examined(finished)
    ranks = content["outcome"]["ranks"]
    assert [rank["facts"]["hostname"] for rank in ranks] == [host.name for host in hosts]
    assert [rank["facts"]["address"] for rank in ranks] == ["127.0.1.1"] * 2
    assert content["outcome"]["info"]["coordinator"].startswith(f"{hosts[0].address}:")


@pytest.mark.mpi
def test_a_rank_that_dies_on_another_host_says_so_itself(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.format(what="os.kill(os.getpid(), 11)"))
    env = {"PYTHONPATH": str(tmp_path), "FERROKET_INIT_TIMEOUT": "6"}
    with make_hosts(tmp_path) as hosts:
        finished = run_on_hosts(DOCTOR.format(arguments=["doctor"]), hosts, **env)
    assert finished.returncode != 0
    where = f"rank 1 on {hosts[1].name} failed in starting Python"
    assert f"ferroket doctor: {where}: the process was killed by SIGSEGV" in finished.stderr
    assert finished.stdout.startswith("ferroket doctor")


def by_itself(*arguments: str, **env: str) -> Finished:
    return run_alone(DOCTOR.format(arguments=["doctor", *arguments]), **env)


@pytest.mark.mpi
def test_alone_it_tries_a_job_of_two() -> None:
    mpirun()
    finished = by_itself("--json").ok()
    content = examined(finished)
    assert content["facts"]["launcher"] is None
    assert f"-n 2 {sys.executable} -m ferroket.distributed.doctor.worker" in content["outcome"]["command"]
    assert content["outcome"]["info"]["size"] == len(content["outcome"]["ranks"]) == 2
    assert content["outcome"]["psum"][0]["wrong"] == []


@pytest.mark.mpi
def test_alone_it_reports_a_job_that_fails(tmp_path: Path) -> None:
    mpirun()
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.format(what="os.kill(os.getpid(), 11)"))
    finished = by_itself("--json", PYTHONPATH=str(tmp_path))
    assert finished.returncode == 1
    (failure,) = examined(finished)["outcome"]["failures"]
    assert failure["rank"] is None
    assert any("signal 11" in line for line in failure["output"])


@pytest.mark.mpi
def test_alone_it_tries_gloo_without_any_mpi() -> None:
    finished = by_itself("--json", FERROKET_COLLECTIVES="gloo", FERROKET_LIBMPI="/nowhere/libmpi.so")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    outcome = examined(finished)["outcome"]
    assert "ferroket launch -n 2 --collectives gloo" in outcome["command"]
    assert (outcome["info"]["collectives"], outcome["info"]["mpi"]) == ("gloo", None)
    assert [rank["facts"]["rank"] for rank in outcome["ranks"]] == [0, 1]


def sleep_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of a job of ranks."""
    command = Command([sys.executable, "-c", "import time; print('so far', flush=True); time.sleep(600)"])
    monkeypatch.setattr("ferroket.distributed.launching.launchers.mpirun", lambda *_: command)
    monkeypatch.setattr("ferroket._lib.find_mpi", lambda _: None)


def test_a_trial_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep_for_ever(monkeypatch)
    monkeypatch.setattr("ferroket.distributed.doctor.trial._OWN_JOB", 1.0)
    (failure,) = own_job(RANK).failures
    assert (failure.stage, failure.text, failure.output) == ("starting the ranks", "no end after 1 s", ["so far"])
    assert psutil.Process().children() == []


def test_a_trial_ends_when_the_doctor_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    sleep_for_ever(monkeypatch)
    threading.Timer(1.0, os.kill, [os.getpid(), signal.SIGTERM]).start()
    (failure,) = own_job(RANK).failures
    assert "ended from outside (SIGTERM)" in failure.text
    assert psutil.Process().children() == []


def test_alone_without_a_trial(tmp_path: Path) -> None:
    by_itself("--no-trial", str(tmp_path / "page.txt"), FERROKET_LIBMPI="/nowhere/libmpi.so")
    text = (tmp_path / "page.txt").read_text()
    assert "ERROR: FERROKET_LIBMPI names /nowhere/libmpi.so" in text
    finished = by_itself("--no-trial", "--json", FERROKET_LIBMPI="/nowhere/libmpi.so")
    assert finished.returncode == 1
    assert examined(finished)["outcome"] is None
