"""From facts to problems, each with its mend. Nothing is looked up here: the same facts give the same problems."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ferroket.distributed.affinity import describe, plan
from ferroket.distributed.doctor.facts import Facts, Library
from ferroket.distributed.doctor.trial import RANKS, Failure, Outcome
from ferroket.distributed.doctor.worker import Running
from ferroket.distributed.slurm import NO_PMI

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


class Severity(StrEnum):
    """Whether a run would fail."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    """What is wrong.

    Attributes:
        severity: an error lets a run fail; with a warning it is slow, or right by luck.
        text: what, with the values that show it.
        mend: what to do.
    """

    severity: Severity
    text: str
    mend: str


@dataclass(frozen=True, kw_only=True)
class Examination:
    """All that was found out.

    Attributes:
        facts: of the process that reports.
        neighbours: of the ranks of its node, itself among them, by rank.
        library: the MPI library, None if there is none.
        library_error: why.
        outcome: of the trial, None if none was made.
    """

    facts: Facts
    neighbours: list[Facts]
    library: Library | None
    library_error: str | None
    outcome: Outcome | None

    @property
    def running(self) -> dict[int, Running]:
        """The ranks that have started MPI and JAX; empty if one of them hasn't."""
        return {rank.facts.rank: rank for rank in (self.outcome.ranks if self.outcome else [])}

    @property
    def ranks(self) -> list[Facts]:
        """The facts of all ranks of the job, or of those of this node if they never met."""
        return [rank.facts for rank in self.running.values()] or self.neighbours

    @property
    def works(self) -> bool:
        """Whether a trial was made, and went well."""
        return self.outcome is not None and not self.outcome.failures


def is_gloo(facts: Facts) -> bool:
    """Whether gloo was asked for, which needs no MPI."""
    return facts.variables.get("FERROKET_COLLECTIVES") == "gloo"


def diagnose(examination: Examination) -> list[Problem]:
    """The problems, errors first."""
    causes = [
        *_packages(examination),
        *_independent_runs(examination),
        *_library(examination),
        *_early_imports(examination),
        *_wrapper(examination),
        *_devices(examination),
    ]
    if not any(problem.severity is Severity.ERROR for problem in causes):
        causes += _failure(examination)
    costs = [
        *_variables(examination),
        *_differences(examination),
        *_cores(examination),
        *_threads(examination),
        *_speed(examination),
        *_node(examination),
        *_names(examination),
    ]
    return sorted([*causes, *costs], key=lambda problem: problem.severity is not Severity.ERROR)


# -- what stops a run --------------------------------------------------------------------------------------


def _packages(e: Examination) -> Iterator[Problem]:
    missing = [name for name, version in e.facts.versions.items() if version is None]
    if missing:
        names = " and ".join(missing)
        text = f"{names} {'are' if len(missing) > 1 else 'is'} not installed for Python {e.facts.python}"
        yield Problem(Severity.ERROR, text, f"pip install {' '.join(missing)}")
    for name, lowest in e.facts.lowest.items():
        version = e.facts.versions.get(name)
        if version and _numbers(version) < _numbers(lowest):
            yield Problem(
                Severity.WARNING if e.works else Severity.ERROR,
                f"{name} {version} is older than {lowest}, the lowest version that ferroket supports",
                f"pip install --upgrade '{name}>={lowest}'",
            )


def _independent_runs(e: Examination) -> Iterator[Problem]:
    """N processes that don't know of each other."""
    if e.facts.is_orphan:
        yield Problem(
            Severity.ERROR,
            f"independent runs: this process was started by {e.facts.started_by[-1]}, but its environment has none of "
            "the variables by which a launcher tells a process its rank, so each process is rank 0 of 1",
            "let the launcher's variables (PMI_*, PMIX_*, OMPI_*, SLURM_*) through to the process: no `env -i`, no "
            "`sudo`, no --cleanenv or --containall of Apptainer between mpirun and python",
        )
    elif e.facts.launcher and e.library and not e.works:
        alone = _said(e, "independent runs")
        own_family = (e.facts.launcher_kind == "openmpi") == (e.library.family == "Open MPI")
        two_families = e.facts.launcher_kind in ("hydra", "intel", "openmpi") and not own_family
        if not alone and not two_families:
            return
        size = e.facts.size
        where = f" ({e.facts.started_by[-1]})" if e.facts.started_by else ""
        families = ", which are of two families" if two_families else ""
        result = f"{size} independent runs, each rank 0 of 1" if alone else "ranks that don't find each other"
        variable = e.library.origin.removeprefix("named in ")
        if variable in e.facts.variables:
            mend = f"unset {variable}, and the library that belongs to the launcher is found"
        elif e.facts.launcher_kind == "slurm":
            mend = NO_PMI
        else:
            mend = "name the library that belongs to the launcher in FERROKET_LIBMPI"
        if e.library.mpirun:
            mend += f"; or start with the library's own launcher, {e.library.mpirun} -n {size}"
        yield Problem(
            Severity.ERROR,
            f"{e.facts.launcher}{where} and the MPI library {e.library.version} ({e.library.path}, {e.library.origin})"
            f"{families}, don't belong together: {result}",
            mend,
        )


def _library(e: Examination) -> Iterator[Problem]:
    if e.library is None:
        if not is_gloo(e.facts):
            text, mend = _split(e.library_error or "")
            mend += ". Clusters have their own: `module load ...`. Without any: `ferroket launch --collectives gloo`"
            yield Problem(Severity.ERROR, text, mend)
        return
    if e.facts.launcher or e.facts.is_orphan or is_gloo(e.facts):
        return
    on_path = e.facts.mpirun_on_path
    if e.library.mpirun is None:
        yield Problem(
            Severity.ERROR,
            e.library.mpirun_error or "no mpirun was found",
            f"install the rest of {e.library.version}, or put its mpirun on PATH",
        )
    elif on_path and not _same_folder(on_path, e.library.mpirun):
        yield Problem(
            Severity.WARNING,
            f"`mpirun` in this shell is {on_path}, but the MPI library is {e.library.version}, {e.library.path} "
            f"({e.library.origin})",
            f"start with {e.library.mpirun}, or put {Path(e.library.mpirun).parent} first on PATH",
        )


def _early_imports(e: Examination) -> Iterator[Problem]:
    early = [facts for facts in e.ranks if facts.early]
    if early:
        where = early[0].startup_file or "sitecustomize.py, or the .pth file in site-packages that has it"
        yield Problem(
            Severity.WARNING if e.works else Severity.ERROR,
            f"Python imports {', '.join(early[0].early)} when it starts ({_ranks(early)}), before any script can call "
            "fk.initialize()",
            f"take the import out of {where}",
        )


def _wrapper(e: Examination) -> Iterator[Problem]:
    """Somebody else's wrapper of MPI: jaxlib opens it when it is imported, and ends the process if it can't."""
    wrapper = e.facts.variables.get("MPITRAMPOLINE_LIB")
    if wrapper and not Path(wrapper).name.startswith("_lib."):
        opened = any("MPItrampoline" in line for failure in _failures(e) for line in failure.output)
        yield Problem(
            Severity.ERROR if opened else Severity.WARNING,
            f"MPITRAMPOLINE_LIB is {wrapper}, which isn't ferroket's wrapper of MPI"
            + (", and jaxlib can't load it" if opened else ", though fk.initialize() puts its own in its place"),
            "unset MPITRAMPOLINE_LIB",
        )


def _devices(e: Examination) -> Iterator[Problem]:
    asked = e.facts.variables.get("JAX_NUM_CPU_DEVICES", "")
    flag = re.search(r"--xla_force_host_platform_device_count=(\d+)", e.facts.variables.get("XLA_FLAGS", ""))
    wishes = {
        "JAX_NUM_CPU_DEVICES": int(asked) if asked.isdigit() else 1,
        "--xla_force_host_platform_device_count in XLA_FLAGS": int(flag[1]) if flag else 1,
    }
    for name, devices in wishes.items():
        if devices > 1 and not is_gloo(e.facts):
            yield Problem(
                Severity.WARNING if e.works else Severity.ERROR,
                f"{name} asks for {devices} CPU devices in each process, but XLA's MPI collectives allow one",
                f"unset {name}, and start {devices} times as many ranks",
            )


def _failure(e: Examination) -> Iterator[Problem]:
    """What no special case explains: the first error itself, which says what to do if it is ours."""
    for first in _failures(e)[:1]:
        text, mend = _split(str(first))
        yield Problem(Severity.ERROR, text, mend or _mend(e, first))


def _mend(e: Examination, failure: Failure) -> str:
    output = " ".join(failure.output)
    if "run as root" in output:
        return (
            "Open MPI runs no jobs of root: become another user, or set OMPI_ALLOW_RUN_AS_ROOT=1 and "
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
        )
    if "not enough slots" in output:
        return "Open MPI counts fewer cores than ranks: mpirun --oversubscribe, or more cores"
    if "SIGKILL" in failure.text:
        return (
            "the kernel kills for lack of memory (`dmesg` says so): ask for more, or start fewer ranks; if it wasn't "
            "that, a person or the job system ended it"
        )
    if failure.text.startswith("the process") or failure.output:
        mpirun = e.library.mpirun if e.library and e.library.mpirun else "mpirun"
        return f"see whether MPI works without ferroket: `{mpirun} -n {RANKS} hostname`; if it does, report this page"
    return "see whether the packages fit together: `pip check`; if they do, report this page"


# -- what slows it, or makes it fragile --------------------------------------------------------------------


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
        if len(node) > there:
            kind = "core" if there == node[0].facts.available_cores else "physical core"
            yield Problem(
                Severity.WARNING,
                f"{len(node)} ranks{where} share {_count(there, kind)}",
                f"start {_count(there, 'rank')} on the node, or ask for more cores",
            )
        elif sharing and e.facts.variables.get("FERROKET_BIND") == "none":
            pools = sum(seat.threads for seat in node)
            threads = f", with {pools} threads of XLA" if pools else ""
            yield Problem(
                Severity.WARNING,
                f"FERROKET_BIND is none, and {len(node)} ranks{where} run on the same {_count(len(used), 'core')} "
                f"({describe(tuple(used))}){threads}: they get in each other's way",
                "unset FERROKET_BIND, and each rank gets cores of its own, unless mpirun, srun or taskset bound them",
            )
        elif sharing:
            first, second = sharing
            shared = describe(tuple(sorted(masks[first] & masks[second])))
            yield Problem(
                Severity.WARNING,
                f"{_ranks([node[first].facts, node[second].facts])}{where} run on the same core {shared}, though "
                f"{there} are there for {len(node)} ranks",
                "drop the options by which mpirun, srun or taskset bind the ranks: ferroket gives each its own cores",
            )
        elif len(physical) < len(node):
            yield Problem(
                Severity.WARNING,
                f"{len(node)} ranks{where} run on {_count(len(physical), 'physical core')}: hyperthreads share a core",
                "start one rank a physical core, or bind by cores (mpirun -bind-to core, srun --hint=nomultithread)",
            )


def _threads(e: Examination) -> Iterator[Problem]:
    for node in _nodes(e):
        where = node[0].where
        masks = [set(seat.cores) for seat in node]
        cores = len(set().union(*masks))
        ranks = _count(len(node), "rank")
        pools = sum(seat.threads for seat in node)
        if pools > max(cores, len(node)) and not _first_overlap(masks):
            yield Problem(
                Severity.WARNING,
                f"{ranks}{where} have {pools} threads of XLA for {_count(cores, 'core')}",
                "unset PJRT_NPROC: XLA takes one thread for each core that a rank has",
            )
        openmp = e.facts.variables.get("OMP_NUM_THREADS", "")
        if openmp.isdigit() and int(openmp) > 1 and int(openmp) * len(node) > cores:
            yield Problem(
                Severity.WARNING,
                f"OMP_NUM_THREADS is {openmp}: {ranks}{where} may start {int(openmp) * len(node)} threads on "
                f"{_count(cores, 'core')}",
                f"OMP_NUM_THREADS={max(1, cores // len(node))}",
            )
        quota = node[0].facts.quota
        if quota is not None and quota < cores:
            yield Problem(
                Severity.WARNING,
                f"the control group{where} allows {quota:g} cores' worth of time, but {ranks} on "
                f"{_count(cores, 'core')} may use more: all stand still when it is used up",
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
                "let no more ranks, and no other jobs, run than there are cores",
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
            f"no temporary file can be made ({e.facts.tmp_error}), but MPI and JAX make some",
            "name a folder that can be written to in TMPDIR",
        )
    memory = min(e.facts.memory, e.facts.memory_limit or e.facts.memory)
    if memory < local * _MEMORY_PER_RANK:
        yield Problem(
            Severity.WARNING,
            f"{memory / _MIB:.0f} MiB of memory are {memory / local / _MIB:.0f} for each of {local} ranks; JAX and "
            "NetKet alone take 500",
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


# -- helpers -----------------------------------------------------------------------------------------------


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


def _said(e: Examination, words: str) -> bool:
    return any(words in failure.text for failure in _failures(e))


def _failures(e: Examination) -> list[Failure]:
    return e.outcome.failures if e.outcome else []


def _split(message: str) -> tuple[str, str]:
    """What is wrong and what to do, of a message of ours: its first sentence, and the others but the list of places."""
    text, _, mend = message.partition(" Tried: ")[0].partition(". ")
    return text, mend.rstrip(".")


def _same_folder(one: str, other: str) -> bool:
    return Path(one).resolve().parent == Path(other).resolve().parent


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", re.split(r"[a-z+]", version)[0])]


def _ranks(ranks: Sequence[Facts]) -> str:
    return _numbered([facts.rank for facts in ranks])


def _numbered(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {describe(tuple(sorted(ranks)))}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
