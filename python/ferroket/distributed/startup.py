"""``fk.initialize()``: from processes that a launcher started to one JAX program over MPI.

The order matters, and is the reason for this module: MPI first, since over it the ranks agree on everything else;
then the cores, before XLA makes its threads; then jaxlib with MPItrampoline's variable set, and last JAX's own
start. Ranks exchange what they found before anyone acts on it, so that an error is raised on all of them.

Where no MPI is needed (on GPUs, or with gloo) and the launcher itself says who is who, the ranks meet over JAX's
coordinator instead, which comes first then.
"""

import atexit
import dataclasses
import gc
import json
import os
import secrets
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from ferroket import _lib, limits
from ferroket._compat.jaxlib import FLAG, setting_of_reductions
from ferroket.distributed import affinity, compile_cache, failure, gpus, info, jax_start, programs, rendezvous
from ferroket.distributed.coordinator import Coordinator, choose_host, join
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
    available: int | None
    """How many cores the job has on this node, where its variables say so."""
    gpus: Gpus
    beacon: tuple[int, int] | None
    cache_problem: str | None
    """Why the cache of compiled programs can't be used here."""
    problem: str | None
    memory: int
    """The bytes that this node has."""

    def dump(self) -> bytes:
        """The report as JSON, in which most ranks have the same settings."""
        parts = dataclasses.asdict(self) | {"settings": json.dumps(self.settings), "mask": affinity.describe(self.mask)}
        return json.dumps(parts).encode()

    @classmethod
    def load(cls, found: bytes) -> Self:
        """Reads what :meth:`dump` gives, and takes nothing else.

        Raises:
            ValueError: it is something else.
        """
        try:
            parts = json.loads(found)
            platform, devices = parts["gpus"]
            beacon, available = parts["beacon"], parts["available"]
            return cls(
                _settings(parts["settings"]),
                Node(*map(str, parts["node"])),
                _mask(parts["mask"]),
                None if available is None else int(available),
                Gpus(None if platform is None else str(platform), tuple(map(str, devices))),
                None if beacon is None else (int(beacon[0]), int(beacon[1])),
                cache_problem=_text(parts["cache_problem"]),
                problem=_text(parts["problem"]),
                memory=int(parts["memory"]),
            )
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is no report of a rank: {found[:200]!r}") from error


def _text(found: Any) -> str | None:
    return None if found is None else str(found)


@lru_cache
def _settings(text: str) -> dict[str, str]:
    """A report's settings; equal ones of several ranks are one object."""
    return {str(name): str(value) for name, value in json.loads(text).items()}


_mask = lru_cache(affinity.parse)


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
        FERROKET_MEMORY: the bytes that a rank may hold for an update of stochastic reconfiguration, as ``4GiB``; by
            default half of what the node has for each of its ranks, and the least of all nodes.
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
    if _lib.is_child_of_rank():
        _forget_launcher()
    launcher = _lib.detect_launcher()
    if launcher is None:
        _refuse_unknown_launcher()
        return info.remember(info.single_process())
    settings = {
        "FERROKET_COLLECTIVES": _setting("FERROKET_COLLECTIVES", _COLLECTIVES, collectives),
        "FERROKET_BIND": _setting("FERROKET_BIND", _BINDINGS),
        "FERROKET_YIELD": _setting("FERROKET_YIELD", _YIELDS),
        "FERROKET_CHECK": _setting("FERROKET_CHECK", _CHECKS),
        "FERROKET_WATCHDOG": f"{limit_from_environment():g}",
        # A program that was kept may run its collectives in another order.
        "FERROKET_CACHE": "on" if compile_cache.folder(os.environ) else "off",
        limits.MEMORY: str(limits.parse_bytes(os.environ[limits.MEMORY])) if os.environ.get(limits.MEMORY) else "",
        "JAX_ENABLE_COMPILATION_CACHE": os.environ.get("JAX_ENABLE_COMPILATION_CACHE", "true").lower(),
    }
    own_gpus, problem = _look_around()
    uses_mpi = rendezvous.needs_mpi(launcher, settings["FERROKET_COLLECTIVES"], own_gpus)
    if not uses_mpi:
        if problem:
            raise RuntimeError(problem)
        jax_start.load()  # which may take long, and waits for no other rank
    mpi: _lib.Mpi | None = None
    with _deadline(launcher):
        if uses_mpi:
            mpi, origin = rendezvous.over_mpi(launcher)
            group: ProcessGroup = MpiProcessGroup(mpi)
        else:
            group, address = rendezvous.over_jax(launcher, own_gpus)
        reports = _agree(group, launcher.kind, settings, own_gpus, problem)
    rank = group.rank
    failure.end_job_with_this_rank(group, _name(reports, rank))
    _watch_nodes(group, reports)
    mark, value = _lib.mark_of_children()
    os.environ[mark] = value
    machines = _ranks_by_machine(reports)
    os.environ[limits.MEMORY] = settings[limits.MEMORY] or str(_memory_of_each(reports, machines))
    by_rank, binding = _bind(reports, machines, rank, settings["FERROKET_BIND"])
    _lib.keep_freed_memory()  # in a thread on the rank's own cores
    yielding = _yields(by_rank, machines, settings["FERROKET_YIELD"])
    _warn_of_shared_cores(reports, machines, rank, by_rank)
    _lib.set_yielding(yielding)
    local_gpus = _plan_gpus(reports, machines)[rank]  # without MPI, what it supposed of others; they may share one GPU
    if mpi:
        with _notice(rank), _shared_coordinator(group, reports) as address:
            jax_start.connect(
                rank,
                group.size,
                address=address,
                bind_address=address,
                collectives=settings["FERROKET_COLLECTIVES"],
                gpus=local_gpus,
            )
    _start_cache(reports, rank)
    compares = settings["FERROKET_CHECK"] == "on"
    complete = jax_start.start(group.size, settings["FERROKET_COLLECTIVES"] if mpi else "gloo", compares=compares)
    if complete and compares:
        programs.end_if_ranks_differ(rank, [report.node.hostname for report in reports])
    _end_together(group, reports, settings, complete)
    gc.freeze()  # what JAX has imported stays: each collection during further imports would look at it again
    own = reports[rank].node
    neighbours = machines[own.machine]
    platform = own_gpus.platform
    return info.remember(
        RuntimeInfo(
            rank=rank,
            size=group.size,
            local_rank=neighbours.index(rank),
            local_size=len(neighbours),
            hostname=own.hostname,
            nodes=len(machines),
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


def _forget_launcher() -> None:
    """Removes what a launcher has told the rank that has started this process: it is for no library here either."""
    of_pmi = ("PMI_", "PMIX_", "PRTE_", "OMPI_COMM_WORLD_", "OMPI_MCA_orte_", "OMPI_MCA_ess", "PALS_", "FLUX_TASK_")
    of_hydra = ("HYDRA_", "HYDI_", "I_MPI_HYDRA_", "MPI_LOCAL", "MV2_COMM_WORLD_", "MVP_COMM_WORLD_")
    names = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_NUM_TASKS"}
    names |= {"FERROKET_RANK", "FERROKET_SIZE", rendezvous.COORDINATOR}
    for name in list(os.environ):
        if name in names or name.startswith((*of_pmi, *of_hydra)):
            del os.environ[name]


def _refuse_unknown_launcher() -> None:
    """Raises an error if a launcher has started this process that isn't known: its ranks would be independent runs."""
    variable = _lib.unknown_launcher()
    if variable:
        raise RuntimeError(
            f"{variable} is in the environment, as launchers set it that Ferroket doesn't know, and the processes that "
            "they start would be independent runs. Start them with the mpirun of your MPI library, with srun, or with "
            f"`ferroket launch`. For a single process, unset {variable.partition('=')[0]}"
        )


Machines = dict[str, list[int]]
"""By machine: its ranks, in ascending order."""


def _ranks_by_machine(reports: list[_Report]) -> Machines:
    machines: Machines = {}
    for rank, report in enumerate(reports):
        machines.setdefault(report.node.machine, []).append(rank)
    return machines


def _memory_of_each(reports: list[_Report], machines: Machines) -> int:
    """What each rank may hold for an update: the same on all, since it tells which programs they compile."""
    return int(limits.SHARE * min(reports[ranks[0]].memory // len(ranks) for ranks in machines.values()))


def _start_cache(reports: list[_Report], rank: int) -> None:
    """Starts the cache of compiled programs, on all ranks or on none: they have to run them in the same form."""
    problem = next((report for report in reports if report.cache_problem), None)
    if problem is None:
        compile_cache.start(rank)
    elif rank == 0:
        print(
            f"ferroket: on {problem.node.hostname}, {problem.cache_problem}. The job goes on without the programs that "
            "were kept",
            file=sys.stderr,
            flush=True,
        )


def _plan_gpus(reports: list[_Report], machines: Machines) -> list[list[int] | None]:
    """The numbers of each rank's GPUs among those that it sees; None for all of them."""
    ids: list[list[int] | None] = [None] * len(reports)
    for ranks in machines.values():
        if not any(reports[rank].gpus.platform for rank in ranks):
            continue
        planned = gpus.plan([reports[rank].gpus.devices for rank in ranks], reports[ranks[0]].node.hostname)
        for rank, own in zip(ranks, planned, strict=True):
            ids[rank] = own
    return ids


def _watch_nodes(group: ProcessGroup, reports: list[_Report]) -> None:
    """The first rank of each node, or of each container of it, starts the process that watches them all."""
    containers: dict[str, list[int]] = {}
    for rank, report in enumerate(reports):
        containers.setdefault(report.node.processes, []).append(rank)
    meeting = _watchers_meeting(group, reports) if len(containers) > 1 else None
    ranks = containers[reports[group.rank].node.processes]
    if group.rank == ranks[0]:
        beacons = [(_name(reports, other), reports[other].beacon) for other in ranks]
        failure.watch([(name, beacon) for name, beacon in beacons if beacon], meeting)
    if meeting and meeting.listener:
        meeting.listener.close()


def _watchers_meeting(group: ProcessGroup, reports: list[_Report]) -> failure.Meeting | None:
    """Where the watchers of several nodes meet; None, on all ranks, where no such place is found."""
    own: failure.Meeting | None = None
    if group.rank == 0:
        with suppress(OSError, RuntimeError):
            host = choose_host([report.node for report in reports])
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = socket.create_server((host, 0), family=family, backlog=1024)
            address = join(host, listener.getsockname()[1])
            own = failure.Meeting(address, secrets.token_hex(16), listener)
    told = json.loads(group.broadcast(json.dumps([own.address, own.password] if own else None).encode()))
    return own or (failure.Meeting(str(told[0]), str(told[1])) if told else None)


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
    size = "" if launcher.size is None else f" of {launcher.size}"
    return _lib.Deadline(
        launcher.rank,
        seconds,
        f"ferroket: rank {launcher.rank}{size}: fk.initialize() has waited {text} s for the other ranks. "
        "Every rank has to call it, at the top of the script. If the ranks need longer to start, raise "
        "FERROKET_INIT_TIMEOUT (seconds; 0 waits for ever)",
    )


@contextmanager
def _notice(rank: int) -> Iterator[None]:
    """Rank 0 says so if the block takes longer than FERROKET_INIT_TIMEOUT: all are there, but some without JAX."""
    seconds = float(os.environ.get("FERROKET_INIT_TIMEOUT", "60"))
    text = (
        f"ferroket: all ranks have called fk.initialize(), and some have imported JAX for {seconds:g} s. The file "
        "system may be slow: rank 0 waits for them"
    )
    timer = threading.Timer(seconds, print, [text], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    if rank == 0 and 0 < seconds < threading.TIMEOUT_MAX:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _agree(
    group: ProcessGroup, launcher: str, settings: dict[str, str], own_gpus: Gpus, problem: str | None
) -> list[_Report]:
    """Exchanges the ranks' reports, and raises on every rank what went wrong on one."""
    settings = {
        **settings,
        **info.versions(),
        f"{FLAG} in XLA_FLAGS": setting_of_reductions(),
        "the platform that JAX computes on": own_gpus.platform or "cpu",
    }
    binds = settings["FERROKET_BIND"] == "auto"
    report = _Report(
        settings,
        this_node(),
        affinity.given(launcher, os.environ) if binds else affinity.allowed(),
        _available_cores(),
        own_gpus,
        _beacon(),
        compile_cache.problem(os.environ),
        problem,
        limits.memory_of_ranks(1),
    )
    reports = [_Report.load(part) for part in group.allgather(report.dump())]
    for rank, other in enumerate(reports):
        if other.problem:
            raise RuntimeError(f"rank {rank} on {other.node.hostname}: {other.problem}")
    others = [(rank, other) for rank, other in enumerate(reports) if other.settings is not reports[0].settings]
    for name, value in reports[0].settings.items():
        for rank, other in others:
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


def _available_cores() -> int | None:
    """How many cores the job system says that this job has on this node."""
    text = os.environ.get("SLURM_CPUS_ON_NODE", "")
    return int(text) if text.isdecimal() else None


def _bind(reports: list[_Report], machines: Machines, rank: int, mode: str) -> tuple[tuple[affinity.Cores, ...], str]:
    """Binds this rank to its cores. Returns the cores of all ranks, and who chose them."""
    before = tuple(report.mask for report in reports)
    after = list(before)
    launcher_binds = False
    plan = lru_cache(affinity.plan)  # most nodes are alike
    for ranks in machines.values():
        masks = tuple(before[other] for other in ranks)
        launcher_binds |= len(set(masks)) > 1
        for place, cpus in zip(ranks, plan(masks), strict=True):
            after[place] = cpus
    if affinity.can_bind() and mode == "auto" and (tuple(after) != before or after[rank] != affinity.allowed()):
        affinity.bind(after[rank])
        return tuple(after), "ferroket"
    return before, "launcher" if launcher_binds else "none"


def _yields(by_rank: tuple[affinity.Cores, ...], machines: Machines, mode: str) -> bool:
    """Whether ranks that wait give their core away: all do, or none, since MPI's calls have to match."""
    if mode != "auto":
        return mode == "always"
    return any(_share(masks) for masks in _kinds_of_machines(by_rank, machines))


def _kinds_of_machines(by_rank: tuple[affinity.Cores, ...], machines: Machines) -> set[tuple[affinity.Cores, ...]]:
    """The cores of the ranks of each machine; most machines are alike."""
    return {tuple(by_rank[rank] for rank in ranks) for ranks in machines.values()}


def _share(masks: tuple[affinity.Cores, ...]) -> bool:
    """Whether a core has to serve more than one rank, where each rank uses all of its cores alike."""
    loads: dict[int, float] = {}
    for mask, times in Counter(masks).items():
        for cpu in mask:
            loads[cpu] = loads.get(cpu, 0.0) + times / len(mask)
    return max(loads.values()) > 1 + 1e-9


def _warn_of_shared_cores(
    reports: list[_Report], machines: Machines, rank: int, by_rank: tuple[affinity.Cores, ...]
) -> None:
    """Says so if ranks of this node share cores, though the job has more: a launcher may have bound all to one."""
    ranks, available = machines[reports[rank].node.machine], reports[rank].available
    used = {cpu for other in ranks for cpu in by_rank[other]}
    if rank == ranks[0] and available and available > len(used) and _share(tuple(by_rank[other] for other in ranks)):
        cores = affinity.describe(tuple(sorted(used)))
        print(
            f"ferroket: the {len(ranks)} ranks on {reports[rank].node.hostname} share core{'s' * (len(used) > 1)} "
            f"{cores}, but the job has {available} cores there (SLURM_CPUS_ON_NODE): their launcher was bound. Put "
            "`export SLURM_CPU_BIND=none` above mpirun in the job script",
            file=sys.stderr,
            flush=True,
        )


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
    address, problem = json.loads(group.broadcast(json.dumps(outcome).encode()))
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
