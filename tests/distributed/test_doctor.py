"""``ferroket doctor``: the facts are right, the page has all of them, and jobs that fail are told from healthy ones."""

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
import psutil
import pytest

from ferroket import limits
from ferroket._compat.jaxlib import is_wrong
from ferroket.distributed import affinity
from ferroket.distributed.doctor.diagnosis import diagnose
from ferroket.distributed.doctor.examination import Examination
from ferroket.distributed.doctor.facts import collect, relevant_variables
from ferroket.distributed.doctor.neighbours import Neighbours
from ferroket.distributed.doctor.present import Page, as_json
from ferroket.distributed.doctor.trial import own_job
from ferroket.distributed.launching.launchers import Command
from support.doctor_examinations import GIB, LIBRARY, RANK, failed, job
from support.hosts import as_debian, make_hosts, run_on_hosts
from support.mpi import PREFIXES, Finished, mpirun, run_alone, run_ranks

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
            assert one.received("facts") == {0: {"a": 0}, 1: {"a": 1}}
            assert (zero.ranks("facts"), zero.received("failures")) == ({0, 1}, {})
        assert one.received("facts") == {1: {"a": 1}}
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_each_is_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with Neighbours(0) as zero:
        zero.tell("facts", {})
        assert zero.received("facts") == {}


# -- the page ----------------------------------------------------------------------------------------------


def page(examination: Examination) -> str:
    out = io.StringIO()
    sheet = Page(out, terminal=False)
    sheet.static(examination.facts, examination.library, examination.library_error)
    info = {"size": 2, "nodes": 1, "collectives": "mpi", "binding": "none", "yielding": False}
    info |= dict.fromkeys(["mpi", "thread_level", "coordinator", "reductions"])
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


@pytest.mark.quick("mpich")
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
    assert [computation["wrong"] for computation in outcome["reductions"]] == [[]] * 24
    assert (outcome["info"]["reductions"] is not None) == is_wrong(version("jaxlib"))
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
    for words in (
        "MPI_THREAD_MULTIPLE",
        "psum of 16 MiB",
        "those of NumPy in 24 computations",
        "http://***@127.0.0.1:9",
        sys.executable,
    ):
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
@pytest.mark.quick
@pytest.mark.skipif(not is_wrong(version("jaxlib")), reason="this jaxlib is right")
def test_a_jaxlib_that_computes_wrong_numbers() -> None:
    """With reductions in YNNPACK, as it is without a flag."""
    finished = doctor("--json", XLA_FLAGS="--xla_cpu_experimental_ynn_fusion_type=individual_dot,reduce")
    assert finished.returncode == 1
    (problem,) = problems(finished)
    assert problem["text"].startswith(f"jaxlib {version('jaxlib')} computes wrong numbers, in ")
    assert "export XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type=individual_dot, or" in problem["mend"]


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
    assert problem["mend"] == f"remove the import from {tmp_path / 'sitecustomize.py'}"


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", PREFIXES)
def test_a_rank_that_never_starts(tmp_path: Path, mpi: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.format(what="import time; time.sleep(600)"))
    finished = doctor("--json", mpi=mpi, PYTHONPATH=str(tmp_path), FERROKET_INIT_TIMEOUT="6")
    assert finished.returncode != 0
    failure = examined(finished)["outcome"]["failures"][0]
    assert (failure["rank"], failure["stage"]) == (0, "fk.initialize()")
    assert "has waited 6 s for the other ranks" in "".join(failure["output"])


@pytest.mark.quick("mpich")
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
    assert f"-n 2 {sys.executable} -P -m ferroket.distributed.doctor.worker" in content["outcome"]["command"]
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
