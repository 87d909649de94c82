"""Made-up examinations of ``ferroket doctor``, for tests: a healthy job, and changes of it."""

from dataclasses import replace
from typing import Any

from ferroket.distributed.doctor.diagnosis import diagnose
from ferroket.distributed.doctor.examination import Examination, Problem
from ferroket.distributed.doctor.facts import Facts, Library
from ferroket.distributed.doctor.psum import Psum
from ferroket.distributed.doctor.trial import Failure, Outcome
from ferroket.distributed.doctor.worker import Running

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
    lowest={"jax": "0.8", "netket": "3.1"},
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
