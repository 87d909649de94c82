"""``fk.initialize()``: from processes that a launcher started to one JAX program over MPI.

The order matters, and is the reason for this module: MPI first, since over it the ranks agree on everything else;
then the cores, before XLA makes its threads; then jaxlib with MPItrampoline's variable set, and last JAX's own
start. Ranks exchange what they found before anyone acts on it, so that an error is raised on all of them.
"""

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ferroket import _lib
from ferroket.distributed import cores, failure, groups, info
from ferroket.distributed.coordinator import Coordinator
from ferroket.distributed.info import RuntimeInfo
from ferroket.distributed.library import search_prefixes
from ferroket.distributed.node import Node, this_node
from ferroket.distributed.watchdog import Watchdog, limit_from_environment
from ferroket.distributed.world import MpiWorld, StoreWorld, World

_COLLECTIVES = ("mpi", "gloo")
_BINDINGS = ("auto", "none")
_YIELDS = ("auto", "always", "never")


@dataclass(frozen=True)
class _Report:
    """What a rank tells the others before anyone acts."""

    settings: dict[str, str]
    node: Node
    mask: cores.Cores
    beacon: tuple[int, int] | None
    problem: str | None


def initialize(*, collectives: str | None = None) -> RuntimeInfo:
    """Prepares this process to be one of many: the first lines of a script, above ``import jax`` or ``import netket``.

    Started by ``mpirun`` or ``srun``, it starts MPI, binds the rank to its own cores, and starts JAX's distributed
    runtime with its collectives over MPI. Started without a launcher, it does nothing but report, and needs no MPI.
    All ranks have to call it. From then on the end of one rank, unless it is that of its script, ends the whole job.

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
        FERROKET_BIND: "none" leaves the cores as they are.
        FERROKET_YIELD: "always" or "never" to give the core away while waiting; "auto" does where ranks share cores.
        FERROKET_WATCHDOG: seconds without progress after which a job that waits for ever is ended (600; 0 is off).
        FERROKET_LIBMPI: the MPI library to use.
        FERROKET_COORDINATOR_HOST, FERROKET_COORDINATOR_PORT: where JAX's coordinator listens.
        FERROKET_INIT_TIMEOUT: seconds to wait for the other ranks (60; 0 waits for ever).
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
        "FERROKET_WATCHDOG": f"{limit_from_environment():g}",
    }
    with _deadline(launcher):
        mpi, origin = _start_mpi(launcher)
        world = MpiWorld(mpi)
        reports = _agree(world, settings)
        own = reports[world.rank].node
        failure.end_job_with_this_rank(world, _name(reports, world.rank))
        _watch_node(world.rank, reports)
        by_rank, binding = _bind(reports, world.rank, settings["FERROKET_BIND"])
        yielding = _yields(reports, by_rank, settings["FERROKET_YIELD"])
        _lib.set_yielding(yielding)
        with _shared_coordinator(world, reports) as address:
            _start_jax(world, address, settings["FERROKET_COLLECTIVES"])
        _end_together(world, reports, settings)
    neighbours = [rank for rank, report in enumerate(reports) if report.node.machine == own.machine]
    return info.remember(
        RuntimeInfo(
            rank=world.rank,
            size=world.size,
            local_rank=neighbours.index(world.rank),
            local_size=len(neighbours),
            hostname=own.hostname,
            nodes=len({report.node.machine for report in reports}),
            launcher=launcher.name,
            mpi=mpi.library.version,
            mpi_path=str(mpi.library.path),
            mpi_origin=origin,
            thread_level=mpi.thread_level,
            collectives=settings["FERROKET_COLLECTIVES"],
            coordinator=address,
            cores=by_rank,
            binding=binding,
            yielding=yielding,
            kernels=info.kernels(),
            versions=info.versions(),
        )
    )


def _watch_node(rank: int, reports: list[_Report]) -> None:
    """The first rank of each node starts the process that watches them all."""
    machine = reports[rank].node.machine
    ranks = [other for other, report in enumerate(reports) if report.node.machine == machine]
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


def _start_mpi(launcher: _lib.Launcher) -> tuple[_lib.Mpi, str]:
    """MPI as XLA will see it, and how its library was found."""
    prefixes = search_prefixes()
    found = _lib.find_mpi(prefixes)
    mpi = _lib.attach_mpi(prefixes)
    if (mpi.rank, mpi.size) != (launcher.rank, launcher.size):
        raise RuntimeError(
            f"{launcher.name} says that this is rank {launcher.rank} of {launcher.size}, but MPI says rank "
            f"{mpi.rank} of {mpi.size}: the launcher and the MPI library don't belong together, and the ranks would "
            f"be {launcher.size} independent runs. The library is {mpi.library.version}, {mpi.library.path} "
            f"({found.origin}). Start the script with the mpirun that belongs to it, or name the library "
            "that belongs to the launcher in FERROKET_LIBMPI"
        )
    # mpi4py, if the script imports it, has to run on the same library, and finds it started.
    os.environ.setdefault("MPI4PY_LIBMPI", str(mpi.library.path))
    return mpi, found.origin


def _agree(world: World, settings: dict[str, str]) -> list[_Report]:
    """Exchanges the ranks' reports, and raises on every rank what went wrong on one."""
    report = _Report(
        {**settings, **info.versions()}, this_node(), cores.allowed(), _lib.Beacon().address, _too_late()
    )
    reports = world.allgather(report)
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


def _too_late() -> str | None:
    """What was imported or done too early for JAX to get MPI and cores of its own, if anything."""
    culprit = next((name for name in ("netket", "jax", "jaxlib") if name in sys.modules), None)
    if culprit is None:
        return None
    if _lib.is_trampoline_attached() and not _backend_is_started():
        return None
    return (
        f"fk.initialize() came too late: {culprit} was imported before it, and JAX has already chosen its "
        f"collectives and cores. Move these lines to the top of the script, above `import {culprit}`:\n"
        "    import ferroket as fk\n"
        "    fk.initialize()"
    )


def _backend_is_started() -> bool:
    from jax._src import xla_bridge  # the public names start the backend that they ask for

    return "jax" in sys.modules and bool(xla_bridge.backends_are_initialized())


def _bind(reports: list[_Report], rank: int, mode: str) -> tuple[tuple[cores.Cores, ...], str]:
    """Binds this rank to its cores. Returns the cores of all ranks, and who chose them."""
    before = tuple(report.mask for report in reports)
    after = list(before)
    launcher_binds = False
    for machine in {report.node.machine for report in reports}:
        ranks = [other for other, report in enumerate(reports) if report.node.machine == machine]
        masks = [before[other] for other in ranks]
        launcher_binds |= len(set(masks)) > 1
        for place, cpus in zip(ranks, cores.plan(masks), strict=True):
            after[place] = cpus
    if cores.can_bind() and mode == "auto" and tuple(after) != before:
        cores.bind(after[rank])
        return tuple(after), "ferroket"
    return before, "launcher" if launcher_binds else "none"


def _yields(reports: list[_Report], by_rank: tuple[cores.Cores, ...], mode: str) -> bool:
    """Whether ranks that wait give their core away: all do, or none, since MPI's calls have to match."""
    if mode != "auto":
        return mode == "always"
    machines: dict[str, list[cores.Cores]] = {}
    for report, mask in zip(reports, by_rank, strict=True):
        machines.setdefault(report.node.machine, []).append(mask)
    return any(len(masks) > len(set().union(*masks)) for masks in machines.values())


@contextmanager
def _shared_coordinator(world: World, reports: list[_Report]) -> Iterator[str]:
    """The coordinator's address on all ranks, its port reserved by rank 0; or rank 0's error, on all ranks."""
    coordinator: Coordinator | None = None
    outcome: tuple[str | None, str | None] = (None, None)
    if world.rank == 0:
        try:
            coordinator = Coordinator([report.node for report in reports])
            outcome = (coordinator.address, None)
        except RuntimeError as error:
            outcome = (None, f"rank 0 on {reports[0].node.hostname}: {error}")
    address, problem = world.allgather(outcome)[0]
    if address is None:
        raise RuntimeError(problem)
    if coordinator is None:
        yield address
    else:
        with coordinator:
            yield address


def _start_jax(world: World, address: str, collectives: str) -> None:
    """Imports jaxlib with our wrapper of MPI, connects JAX's processes, and checks what came of it."""
    os.environ["MPITRAMPOLINE_LIB"] = _lib.__file__
    _bypass_proxies(address)
    import jax

    if collectives == "mpi" and not _lib.is_trampoline_attached():
        raise RuntimeError(
            f"jaxlib {info.versions()['jaxlib']} did not load {_lib.__file__} as its MPI wrapper. Was jaxlib "
            "built with MPI? Use the wheel from the Python package index, or FERROKET_COLLECTIVES=gloo"
        )
    jax.config.update("jax_cpu_collectives_implementation", collectives)
    # JAX takes any variable with "_proxy" in its name for a web proxy, Intel MPI's HYDRA_BSTRAP_PROXY_ID too.
    # The real ones are bypassed above.
    jax.config.update("jax_check_proxy_envs", False)
    jax.distributed.initialize(
        coordinator_address=address,
        coordinator_bind_address=address,
        num_processes=world.size,
        process_id=world.rank,
        cluster_detection_method="deactivate",
    )
    if jax.process_count() != world.size:
        raise RuntimeError(
            f"the launcher started {world.size} processes, but JAX counts {jax.process_count()}. Is JAX_PLATFORMS set to a platform "
            "without distributed runs?"
        )
    if jax.default_backend() == "cpu" and collectives == "mpi" and jax.local_device_count() > 1:
        raise RuntimeError(
            f"this process has {jax.local_device_count()} CPU devices, but XLA's MPI collectives allow one device a "
            "process. Unset JAX_NUM_CPU_DEVICES and --xla_force_host_platform_device_count in XLA_FLAGS, and start "
            "more ranks instead"
        )
    if jax.default_backend() == "cpu" and collectives == "mpi":
        groups.make_groups_by_their_members()


def _end_together(world: World, reports: list[_Report], settings: dict[str, str]) -> None:
    """Has the ranks wait for each other when their scripts have ended, before JAX and MPI are taken down."""
    limit = float(settings["FERROKET_WATCHDOG"])
    watchdog = Watchdog(world.rank, [report.node.hostname for report in reports], limit) if limit else None
    process = os.getpid()

    def end() -> None:
        if os.getpid() != process:  # a fork of this rank isn't one
            return
        if watchdog:
            watchdog.script_ended()
        world.wait_for_all()
        if watchdog:
            watchdog.stop()
        _lib.Beacon.finished()

    if isinstance(world, MpiWorld):
        # XLA finalizes MPI if its collectives ran over it; this comes after, and does it if they didn't.
        atexit.register(world.mpi.finish)
    atexit.register(end)
    if watchdog:
        watchdog.start()


def _bypass_proxies(address: str) -> None:
    """Lets JAX reach its coordinator directly where a web proxy is set; nothing else's proxy is changed."""
    host = address.rsplit(":", 1)[0]
    before = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""  # noqa: SIM112 - gRPC's names
    os.environ["no_grpc_proxy"] = ",".join(filter(None, [before, host]))  # noqa: SIM112
