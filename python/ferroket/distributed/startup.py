"""``fk.initialize()``: from processes that a launcher started to one JAX program over MPI.

The order matters, and is the reason for this module: MPI first, since over it the ranks agree on everything else;
then the cores, before XLA makes its threads; then jaxlib with MPItrampoline's variable set, and last JAX's own
start. Ranks exchange what they found before anyone acts on it, so that an error is raised on all of them.

Where no MPI is needed (on GPUs, or with gloo) and the launcher itself says who is who, the ranks meet over JAX's
coordinator instead, which comes first then.
"""

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction

from ferroket import _lib
from ferroket._compat.jaxlib import FLAG, setting_of_reductions
from ferroket.distributed import affinity, compile_cache, failure, gpus, info, jax_start, programs, rendezvous
from ferroket.distributed.coordinator import Coordinator
from ferroket.distributed.gpus import Gpus
from ferroket.distributed.info import RuntimeInfo
from ferroket.distributed.node import Node, this_node
from ferroket.distributed.process_group import MpiProcessGroup, ProcessGroup
from ferroket.distributed.watchdog import Watchdog, limit_from_environment

_COLLECTIVES = ("mpi", "gloo")
_BINDINGS = ("auto", "none")
_YIELDS = ("auto", "always", "never")
_CHECKS = ("on", "off")


@dataclass(frozen=True)
class _Report:
    """What a rank tells the others before anyone acts."""

    settings: dict[str, str]
    node: Node
    mask: affinity.Cores
    gpus: Gpus
    beacon: tuple[int, int] | None
    problem: str | None


def initialize(*, collectives: str | None = None) -> RuntimeInfo:
    """Prepares this process to be one of many: the first lines of a script, above ``import jax`` or ``import netket``.

    Started by ``mpirun`` or ``srun``, it starts MPI, binds the rank to its own cores, and starts JAX's distributed
    runtime with its collectives over MPI. On a node with GPUs, each rank gets its own, and the collectives are NCCL's.
    Started without a launcher, it does nothing but report, and needs no MPI. All ranks have to call it. From then on
    a rank that ends before its script does, or by an error, ends the whole job.

    Args:
        collectives: "mpi", or "gloo" for JAX's own over TCP; None takes FERROKET_COLLECTIVES, else "mpi".

    Returns:
        What runs, as :func:`ferroket.runtime_info` does.

    Raises:
        RuntimeError: called twice or too late; no MPI library; launcher, MPI and JAX disagree on the number of
            processes; the ranks disagree on versions or settings; the coordinator finds no address or port.
        ValueError: an unknown setting.

    Environment:
        FERROKET_COLLECTIVES: "mpi" (the default) or "gloo".
        FERROKET_BIND: "auto" (the default) gives each rank cores of its own, "none" leaves the cores as they are.
        FERROKET_YIELD: whether a rank that waits leaves its core to others: "always", "never", or "auto" (the default),
            where ranks share cores.
        FERROKET_CHECK: "on" (the default) compares which programs the ranks run with each collective over MPI; "off"
            does not.
        FERROKET_WATCHDOG: seconds without progress after which a job that hangs is ended (600; 0 is off).
        FERROKET_CACHE: the folder where compiled programs are kept for the next run (``~/.cache/ferroket``), or "off".
        FERROKET_SIMD: the vector instructions that the kernels run on, "avx512", "avx2", "neon" or "scalar", for
            benchmarks and tests; "auto" (the default) takes the best that the processor has.
        FERROKET_LIBMPI: the MPI library to use.
        FERROKET_COORDINATOR_HOST, FERROKET_COORDINATOR_PORT: where JAX's coordinator listens.
        FERROKET_INIT_TIMEOUT: seconds to wait for the other ranks (60; 0 waits for ever).
        XLA_FLAGS: ``import ferroket`` adds ``--xla_cpu_experimental_ynn_fusion_type=individual_dot`` where jaxlib
            computes wrong sums on CPUs without it (0.10.2 to 0.12.0.1), unless the flag is there. All ranks need
            the same.
    """
    if info.is_initialized():
        raise RuntimeError("fk.initialize() was called twice in this process: remove the second call")
    launcher = _lib.detect_launcher()
    if launcher is None:
        return info.remember(info.single_process())
    settings = {
        "FERROKET_COLLECTIVES": _setting("FERROKET_COLLECTIVES", _COLLECTIVES, collectives),
        "FERROKET_BIND": _setting("FERROKET_BIND", _BINDINGS),
        "FERROKET_YIELD": _setting("FERROKET_YIELD", _YIELDS),
        "FERROKET_CHECK": _setting("FERROKET_CHECK", _CHECKS),
        "FERROKET_WATCHDOG": f"{limit_from_environment():g}",
        # A program that was kept may run its collectives in another order.
        "FERROKET_CACHE": "on" if compile_cache.folder(os.environ) else "off",
        "JAX_ENABLE_COMPILATION_CACHE": os.environ.get("JAX_ENABLE_COMPILATION_CACHE", "true").lower(),
    }
    with _deadline(launcher):
        own_gpus, problem = _look_around()
        mpi: _lib.Mpi | None = None
        if rendezvous.needs_mpi(launcher, settings["FERROKET_COLLECTIVES"], own_gpus):
            mpi, origin = rendezvous.over_mpi(launcher)
            group: ProcessGroup = MpiProcessGroup(mpi)
        elif problem:
            raise RuntimeError(problem)
        else:
            group, address = rendezvous.over_jax(launcher, own_gpus)
        reports = _agree(group, settings, own_gpus, problem)
        rank = group.rank
        failure.end_job_with_this_rank(group, _name(reports, rank))
        _watch_node(rank, reports)
        by_rank, binding = _bind(reports, rank, settings["FERROKET_BIND"])
        _lib.keep_freed_memory()  # in a thread on the rank's own cores
        yielding = _yields(reports, by_rank, settings["FERROKET_YIELD"])
        _lib.set_yielding(yielding)
        local_gpus = _plan_gpus(reports)[rank]  # without MPI, what it supposed of the others; they may share one GPU
        if mpi:
            with _shared_coordinator(group, reports) as address:
                jax_start.connect(
                    rank,
                    group.size,
                    address=address,
                    bind_address=address,
                    collectives=settings["FERROKET_COLLECTIVES"],
                    gpus=local_gpus,
                )
        compile_cache.start(rank)
        compares = settings["FERROKET_CHECK"] == "on"
        complete = jax_start.start(group.size, settings["FERROKET_COLLECTIVES"] if mpi else "gloo", compares=compares)
        if complete and compares:
            programs.end_if_ranks_differ(rank, [report.node.hostname for report in reports])
        _end_together(group, reports, settings, complete)
    gc.freeze()  # what JAX has imported stays: each collection during further imports would look at it again
    own = reports[rank].node
    neighbours = [other for other, report in enumerate(reports) if report.node.machine == own.machine]
    platform = own_gpus.platform
    return info.remember(
        RuntimeInfo(
            rank=rank,
            size=group.size,
            local_rank=neighbours.index(rank),
            local_size=len(neighbours),
            hostname=own.hostname,
            nodes=len({report.node.machine for report in reports}),
            launcher=launcher.name,
            mpi=mpi.library.version if mpi else None,
            mpi_path=str(mpi.library.path) if mpi else None,
            mpi_origin=origin if mpi else None,
            thread_level=mpi.thread_level if mpi else None,
            collectives=gpus.COLLECTIVES[platform] if platform else settings["FERROKET_COLLECTIVES"],
            coordinator=address,
            cores=by_rank,
            binding=binding,
            yielding=yielding,
            kernels=info.kernels(),
            versions=info.versions(),
        )
    )


def _look_around() -> tuple[Gpus, str | None]:
    """This rank's GPUs, and what is wrong in this process, if anything is."""
    problem = jax_start.too_late()
    try:
        return gpus.find(os.environ), problem
    except RuntimeError as error:
        return Gpus(None, ()), problem or str(error)


def _plan_gpus(reports: list[_Report]) -> list[list[int] | None]:
    """The numbers of each rank's GPUs among those that it sees; None for all of them."""
    ids: list[list[int] | None] = [None] * len(reports)
    for machine in {report.node.machine for report in reports if report.gpus.platform}:
        ranks = [rank for rank, report in enumerate(reports) if report.node.machine == machine]
        planned = gpus.plan([reports[rank].gpus.devices for rank in ranks], reports[ranks[0]].node.hostname)
        for rank, own in zip(ranks, planned, strict=True):
            ids[rank] = own
    return ids


def _watch_node(rank: int, reports: list[_Report]) -> None:
    """The first rank of each node, or of each container of it, starts the process that watches them all."""
    processes = reports[rank].node.processes
    ranks = [other for other, report in enumerate(reports) if report.node.processes == processes]
    if rank == ranks[0]:
        beacons = [(_name(reports, other), reports[other].beacon) for other in ranks]
        failure.watch([(name, beacon) for name, beacon in beacons if beacon])


def _name(reports: list[_Report], rank: int) -> str:
    """A rank, as messages name it."""
    return f"rank {rank} of {len(reports)} on {reports[rank].node.hostname}"


def _setting(variable: str, choices: tuple[str, ...], given: str | None = None) -> str:
    """The value given in the call, else in the environment, else the first of the choices."""
    value = given or os.environ.get(variable) or choices[0]
    if value not in choices:
        raise ValueError(f"{variable} is {value!r}, but has to be one of {', '.join(choices)}")
    return value


def _deadline(launcher: _lib.Launcher) -> _lib.Deadline:
    text = os.environ.get("FERROKET_INIT_TIMEOUT", "60")
    try:
        seconds = float(text)
    except ValueError:
        raise ValueError(f"FERROKET_INIT_TIMEOUT is {text!r}, but has to be a number of seconds") from None
    return _lib.Deadline(
        seconds,
        f"ferroket: rank {launcher.rank} of {launcher.size}: fk.initialize() has waited {text} s for the other ranks. "
        "Every rank has to call it, at the top of the script. If the ranks need longer to start, raise "
        "FERROKET_INIT_TIMEOUT (seconds; 0 waits for ever)",
    )


def _agree(group: ProcessGroup, settings: dict[str, str], own_gpus: Gpus, problem: str | None) -> list[_Report]:
    """Exchanges the ranks' reports, and raises on every rank what went wrong on one."""
    settings = {
        **settings,
        **info.versions(),
        f"{FLAG} in XLA_FLAGS": setting_of_reductions(),
        "the platform that JAX computes on": own_gpus.platform or "cpu",
    }
    report = _Report(settings, this_node(), affinity.allowed(), own_gpus, _beacon(), problem)
    reports = group.allgather(report)
    for rank, other in enumerate(reports):
        if other.problem:
            raise RuntimeError(f"rank {rank} on {other.node.hostname}: {other.problem}")
    for name, value in reports[0].settings.items():
        for rank, other in enumerate(reports):
            if other.settings.get(name) != value:
                raise RuntimeError(
                    f"the ranks disagree: {name} is {value} on rank 0 and {other.settings.get(name)} on rank {rank} "
                    f"({other.node.hostname}). Give every rank the same environment"
                )
    return reports


def _beacon() -> tuple[int, int] | None:
    """Where this rank's beacon is; None for one that can't be watched."""
    try:
        return _lib.Beacon().address
    except OSError:  # no file descriptor is left
        return None


def _bind(reports: list[_Report], rank: int, mode: str) -> tuple[tuple[affinity.Cores, ...], str]:
    """Binds this rank to its cores. Returns the cores of all ranks, and who chose them."""
    before = tuple(report.mask for report in reports)
    after = list(before)
    launcher_binds = False
    for machine in {report.node.machine for report in reports}:
        ranks = [other for other, report in enumerate(reports) if report.node.machine == machine]
        masks = [before[other] for other in ranks]
        launcher_binds |= len(set(masks)) > 1
        for place, cpus in zip(ranks, affinity.plan(masks), strict=True):
            after[place] = cpus
    if affinity.can_bind() and mode == "auto" and tuple(after) != before:
        affinity.bind(after[rank])
        return tuple(after), "ferroket"
    return before, "launcher" if launcher_binds else "none"


def _yields(reports: list[_Report], by_rank: tuple[affinity.Cores, ...], mode: str) -> bool:
    """Whether ranks that wait give their core away: all do, or none, since MPI's calls have to match."""
    if mode != "auto":
        return mode == "always"
    machines: dict[str, list[affinity.Cores]] = {}
    for report, mask in zip(reports, by_rank, strict=True):
        machines.setdefault(report.node.machine, []).append(mask)
    return any(max(_loads(masks).values()) > 1 for masks in machines.values())


def _loads(masks: list[affinity.Cores]) -> dict[int, Fraction]:
    """How many ranks each core has to serve, where each rank uses all of its cores alike."""
    loads: dict[int, Fraction] = {}
    for mask in masks:
        for cpu in mask:
            loads[cpu] = loads.get(cpu, Fraction()) + Fraction(1, len(mask))
    return loads


@contextmanager
def _shared_coordinator(group: ProcessGroup, reports: list[_Report]) -> Iterator[str]:
    """The coordinator's address on all ranks, its port reserved by rank 0; or rank 0's error, on all ranks."""
    coordinator: Coordinator | None = None
    outcome: tuple[str | None, str | None] = (None, None)
    if group.rank == 0:
        try:
            coordinator = Coordinator([report.node for report in reports])
            outcome = (coordinator.address, None)
        except RuntimeError as error:
            outcome = (None, f"rank 0 on {reports[0].node.hostname}: {error}")
    address, problem = group.allgather(outcome)[0]
    if address is None:
        raise RuntimeError(problem)
    if coordinator is None:
        yield address
    else:
        with coordinator:
            yield address


def _end_together(
    group: ProcessGroup, reports: list[_Report], settings: dict[str, str], complete: Callable[[], None] | None
) -> None:
    """Has the ranks wait for each other when their scripts have ended, before JAX and MPI are taken down.

    Args:
        group: the ranks.
        reports: what they told each other.
        settings: those of the job.
        complete: returns when no program is left that uses MPI; called on all ranks at once.
    """
    limit = float(settings["FERROKET_WATCHDOG"])
    watchdog = Watchdog(group.rank, [report.node.hostname for report in reports], limit) if limit else None
    process = os.getpid()

    def end() -> None:
        if os.getpid() != process:  # a fork of this rank isn't one
            return
        # What the script has printed isn't lost if another rank ends the job.
        with suppress(Exception):  # closed, or somebody's own
            sys.stdout.flush()
        if watchdog:
            watchdog.script_ended()
        try:
            if group.wait_for_all() and complete:
                complete()
        finally:
            if watchdog:
                watchdog.stop()
            _lib.Beacon.finished()

    if isinstance(group, MpiProcessGroup):
        # XLA would finalize MPI only if its collectives ran over it. Handlers are called last to first: `end` before.
        atexit.register(group.mpi.finish)
    atexit.register(end)
    if watchdog:
        watchdog.start()
