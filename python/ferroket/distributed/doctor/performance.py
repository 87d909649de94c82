"""The problems that slow a run, or make it fragile, each with its mend."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ferroket.distributed.affinity import describe, plan
from ferroket.distributed.doctor.examination import Examination, Problem, Severity, count, is_gloo, ranks_of
from ferroket.distributed.doctor.facts import Facts
from ferroket.distributed.doctor.trial import RANKS

_MIB = 1 << 20
# Open MPI takes a segment of 16 MiB for each rank, MPICH about one.
_SHM_PER_RANK = 16 * _MIB
# JAX and NetKet alone take about half of it.
_MEMORY_PER_RANK = 1024 * _MIB
# Seconds for a psum of a few bytes on one node, on average; 50 µs are usual.
_SLOW = 1e-3
_SMALL = 64
# Variables that change what JAX compiles, how many devices there are, or how fast a rank is.
_SAME_ON_ALL = ("JAX_", "XLA_", "NETKET_", "OMP_NUM_THREADS", "FERROKET_BIND", "FERROKET_COLLECTIVES", "FERROKET_YIELD")


def problems(e: Examination) -> Iterator[Problem]:
    """What is found, warnings all."""
    for check in (_variables, _differences, _cores, _threads, _speed, _node, _names):
        yield from check(e)


def _variables(e: Examination) -> Iterator[Problem]:
    if is_gloo(e.facts) and e.facts.launcher and e.library:
        yield Problem(
            Severity.WARNING,
            f"FERROKET_COLLECTIVES is gloo, which is slower than MPI, and {e.library.version} is there",
            "unset FERROKET_COLLECTIVES",
        )


def _differences(e: Examination) -> Iterator[Problem]:
    ranks = e.ranks
    mend = "install the same versions on all nodes"
    for package in e.facts.versions:
        yield from _unequal(package, {facts.rank: facts.versions.get(package) for facts in ranks}, mend)
    yield from _unequal("python", {facts.rank: facts.python.split(",")[0] for facts in ranks}, mend)
    for name in sorted({name for facts in ranks for name in facts.variables if name.startswith(_SAME_ON_ALL)}):
        values = {facts.rank: facts.variables.get(name) for facts in ranks}
        yield from _unequal(name, values, "give all ranks the same environment (mpirun's -genv or -x)")


def _unequal(name: str, by_rank: dict[int, str | None], mend: str) -> Iterator[Problem]:
    first = next(iter(by_rank))
    other = next((rank for rank, value in by_rank.items() if value != by_rank[first]), None)
    if other is not None:
        values = [by_rank[rank] or "missing" for rank in (first, other)]
        text = f"{name} is {values[0]} on rank {first}, but {values[1]} on rank {other}"
        yield Problem(Severity.WARNING, text, mend)


def _cores(e: Examination) -> Iterator[Problem]:
    """Ranks that share cores, and whether they have to."""
    for node in _nodes(e):
        where = node[0].where
        there = _physical_cores(node[0].facts)
        masks = [set(seat.cores) for seat in node]
        used = sorted(set().union(*masks))
        physical = {core for seat in node for core in seat.physical}
        sharing = _first_overlap(masks)
        kind = "core" if there == node[0].facts.available_cores else "physical core"
        of_job = node[0].facts.variables.get("SLURM_CPUS_ON_NODE", "")
        if len(node) > there and of_job.isdecimal() and int(of_job) > len(used):
            yield Problem(
                Severity.WARNING,
                f"{len(node)} ranks{where} share {count(there, kind)}, but the job has {of_job} there "
                "(SLURM_CPUS_ON_NODE): mpirun's own process was bound",
                "export SLURM_CPU_BIND=none above mpirun in the job script",
            )
        elif len(node) > there:
            yield Problem(
                Severity.WARNING,
                f"{len(node)} ranks{where} share {count(there, kind)}",
                f"start {count(there, 'rank')} on the node, or ask for more cores",
            )
        elif sharing and e.facts.variables.get("FERROKET_BIND") == "none":
            pools = sum(seat.threads for seat in node)
            threads = f", with {pools} threads of XLA" if pools else ""
            yield Problem(
                Severity.WARNING,
                f"FERROKET_BIND is none, and {len(node)} ranks{where} run on the same {count(len(used), 'core')} "
                f"({describe(tuple(used))}){threads}: they slow each other down",
                "unset FERROKET_BIND, and each rank gets cores of its own, unless mpirun, srun or taskset bound them",
            )
        elif sharing:
            first, second = sharing
            shared = describe(tuple(sorted(masks[first] & masks[second])))
            yield Problem(
                Severity.WARNING,
                f"{ranks_of([node[first].facts, node[second].facts])}{where} run on the same core {shared}, though "
                f"{there} are there for {len(node)} ranks",
                "drop the options by which mpirun, srun or taskset bind the ranks: ferroket gives each its own cores",
            )
        elif len(physical) < len(node):
            yield Problem(
                Severity.WARNING,
                f"{len(node)} ranks{where} run on {count(len(physical), 'physical core')}: hyperthreads share a core",
                "start one rank a physical core, or bind by cores (mpirun -bind-to core, srun --hint=nomultithread)",
            )


def _threads(e: Examination) -> Iterator[Problem]:
    for node in _nodes(e):
        where = node[0].where
        masks = [set(seat.cores) for seat in node]
        cores = len(set().union(*masks))
        ranks = count(len(node), "rank")
        pools = sum(seat.threads for seat in node)
        if pools > max(cores, len(node)) and not _first_overlap(masks):
            yield Problem(
                Severity.WARNING,
                f"{ranks}{where} have {pools} threads of XLA for {count(cores, 'core')}",
                "unset PJRT_NPROC: XLA takes one thread for each core that a rank has",
            )
        openmp = e.facts.variables.get("OMP_NUM_THREADS", "")
        if openmp.isdigit() and int(openmp) > 1 and int(openmp) * len(node) > cores:
            yield Problem(
                Severity.WARNING,
                f"OMP_NUM_THREADS is {openmp}: {ranks}{where} may start {int(openmp) * len(node)} threads on "
                f"{count(cores, 'core')}",
                f"OMP_NUM_THREADS={max(1, cores // len(node))}",
            )
        quota = node[0].facts.quota
        if quota is not None and quota < cores:
            yield Problem(
                Severity.WARNING,
                f"the control group{where} allows {quota:g} cores' worth of time, but {ranks} on "
                f"{count(cores, 'core')} may use more: all of them pause when it is used up",
                f"raise the container's limit (docker run --cpus={cores}), or start fewer ranks",
            )


def _speed(e: Examination) -> Iterator[Problem]:
    if not e.outcome or not e.outcome.info or e.outcome.info["nodes"] > 1:
        return
    if any(len(node) > _physical_cores(node[0].facts) for node in _nodes(e)):
        return  # that is why
    for psum in e.outcome.psum:
        if psum.bytes <= _SMALL and psum.mean > _SLOW:
            load = f"; the node's load is {e.facts.load:g} on {e.facts.node_cores} cores" if e.facts.load else ""
            yield Problem(
                Severity.WARNING,
                f"a psum of {psum.bytes} B takes {1e3 * psum.mean:.2g} ms on one node, where 0.05 ms are usual{load}",
                "run no more ranks, with those of other jobs, than there are cores",
            )


def _node(e: Examination) -> Iterator[Problem]:
    local = sum(facts.machine == e.facts.machine for facts in e.ranks) if e.facts.launcher else RANKS
    if e.facts.shm and e.facts.shm[1] < local * _SHM_PER_RANK:
        yield Problem(
            Severity.WARNING,
            f"/dev/shm has {e.facts.shm[1] / _MIB:.0f} MiB free of {e.facts.shm[0] / _MIB:.0f}, but MPI may take "
            f"{_SHM_PER_RANK // _MIB} for each of {local} ranks",
            "docker run --shm-size=1g (or --ipc=host); remove what killed jobs left there (mpich_shm_*, sm_segment.*)",
        )
    if e.facts.tmp_error:
        yield Problem(
            Severity.WARNING,
            f"no temporary file can be created ({e.facts.tmp_error}), but MPI and JAX need some",
            "name a folder that can be written to in TMPDIR",
        )
    memory = min(e.facts.memory, e.facts.memory_limit or e.facts.memory)
    if memory < local * _MEMORY_PER_RANK:
        yield Problem(
            Severity.WARNING,
            f"{memory / _MIB:.0f} MiB of memory leave {memory / local / _MIB:.0f} MiB for each of {local} ranks, but "
            "JAX and NetKet alone take 500",
            "start fewer ranks, or ask for more memory",
        )


def _names(e: Examination) -> Iterator[Problem]:
    """On one node no name matters: the ranks meet on loopback."""
    hosts = {facts.hostname: facts for facts in e.ranks}
    for name, facts in hosts.items() if len(hosts) > 1 else ():
        if facts.address is None:
            yield Problem(
                Severity.WARNING,
                f"the host name {name} doesn't resolve on its own node ({facts.address_error})",
                "add it to /etc/hosts or the DNS; the address of rank 0's node may be named in "
                "FERROKET_COORDINATOR_HOST",
            )


@dataclass(frozen=True, kw_only=True)
class _Seat:
    """A rank on its node: where it runs, if it has started, or may run."""

    facts: Facts
    cores: list[int]
    physical: list[str]
    threads: int
    where: str


def _nodes(e: Examination) -> list[list[_Seat]]:
    """The ranks of each node."""
    several = len({facts.machine for facts in e.ranks}) > 1
    nodes: dict[str, list[Facts]] = {}
    for facts in e.ranks if e.facts.launcher or e.running else ():
        nodes.setdefault(facts.machine, []).append(facts)
    return [_seats(e, node, f" on {node[0].hostname}" if several else "") for node in nodes.values()]


def _seats(e: Examination, node: Sequence[Facts], where: str) -> list[_Seat]:
    physical = {cpu: core for facts in node for cpu, core in zip(facts.cores, facts.physical, strict=True)}
    masks = [tuple(facts.cores) for facts in node]
    if e.facts.variables.get("FERROKET_BIND") != "none":  # where fk.initialize() would bind them, had it come so far
        number = {core: place for place, core in enumerate(sorted(set(physical.values())))}
        masks = list(plan(masks, lambda cpu: (0, number[physical[cpu]])))
    seats = []
    for facts, planned in zip(node, masks, strict=True):
        running = e.running.get(facts.rank)
        cores = running.cores if running else list(planned)
        threads = (running.threads or 0) if running else 0
        places = [physical[cpu] for cpu in cores if cpu in physical]
        seats.append(_Seat(facts=facts, cores=cores, physical=places, threads=threads, where=where))
    return seats


def _physical_cores(facts: Facts) -> int:
    """How many of a node's physical cores its control groups allow, if they allow cores as a whole."""
    threads = facts.node_cores / (facts.node_physical or facts.node_cores)
    return max(1, round(facts.available_cores / threads))


def _first_overlap(masks: Sequence[set[int]]) -> tuple[int, int] | None:
    pairs = ((i, j) for j, mask in enumerate(masks) for i in range(j) if masks[i] & mask)
    return next(pairs, None)
