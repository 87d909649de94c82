"""Which cores each rank computes on.

XLA starts one thread for each core that it may use. Ranks that share all cores of a node therefore start as many
threads as cores each, and slow each other down by a factor of ten. A rank needs cores of its own, before XLA makes
its threads.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

Cores = tuple[int, ...]

_TOPOLOGY = Path("/sys/devices/system/cpu")


def can_bind() -> bool:
    """Whether this system lets a process choose its cores (Linux does, macOS doesn't)."""
    return hasattr(os, "sched_setaffinity")


def allowed() -> Cores:
    """The logical cores that this process may use, in ascending order."""
    if can_bind():
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def physical_core(cpu: int) -> tuple[int, int]:
    """The package and the core in it that a logical core belongs to; hyperthreads share them."""
    try:
        package, core = (
            int((_TOPOLOGY / f"cpu{cpu}" / "topology" / name).read_text())
            for name in ("physical_package_id", "core_id")
        )
    except (OSError, ValueError):
        return (0, cpu)
    return (package, core)


def plan(masks: Sequence[Cores], physical: Callable[[int], tuple[int, int]] = physical_core) -> tuple[Cores, ...]:
    """The cores for each rank of one node, from the cores that each may use now.

    Ranks whose masks differ were bound by the launcher and stay as they are. Ranks that share a mask (all of
    them, where the launcher binds nothing; those of one socket, where it binds to sockets) divide it: equal
    blocks of neighbouring physical cores, hyperthreads kept together; one core each in turn, where there are
    more ranks than cores.

    Args:
        masks: the logical cores that each rank of the node may use, ordered by rank.
        physical: maps a logical core to its physical one.

    Returns:
        The logical cores for each rank, in the same order.
    """
    result = list(masks)
    for mask in set(masks):
        ranks = [rank for rank, other in enumerate(masks) if other == mask]
        if len(ranks) == 1:
            continue
        cores: dict[tuple[int, int], list[int]] = {}
        for cpu in mask:
            cores.setdefault(physical(cpu), []).append(cpu)
        blocks = [cores[core] for core in sorted(cores)]
        share = max(1, len(blocks) // len(ranks))
        for place, rank in enumerate(ranks):
            first = place * share % len(blocks)
            result[rank] = tuple(sorted(cpu for block in blocks[first : first + share] for cpu in block))
    return tuple(result)


def given(launcher: str, environment: Mapping[str, str]) -> Cores:
    """The cores to divide among the ranks of a node, where this is one of them.

    Open MPI's mpirun binds each rank to one core, even where SLURM gave it several (``--cpus-per-task``): then they are
    those of mpirun's own process, which has all cores of the job there.

    Args:
        launcher: the kind of launcher.
        environment: where SLURM says how many cores a task has.
    """
    own = allowed()
    per_task = environment.get("SLURM_CPUS_PER_TASK", "")
    if launcher == "openmpi" and can_bind() and per_task.isdecimal() and int(per_task) > len(own):
        with suppress(OSError):  # the process has ended, or is another user's
            all_cores = tuple(sorted(os.sched_getaffinity(os.getppid())))
            return all_cores if set(own) < set(all_cores) else own
    return own


def bind(cores: Cores) -> None:
    """Binds every thread of this process, and so every thread it will make, to these cores."""
    for task in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # the thread has ended since it was listed
            os.sched_setaffinity(int(task.name), cores)


def parse(text: str) -> Cores:
    """The cores in a list as :func:`describe` writes it.

    Raises:
        ValueError: it is none.
    """
    cores: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def describe(cores: Cores) -> str:
    """Cores as a short list of ranges: ``0-3,8``."""
    ranges: list[list[int]] = []
    for cpu in cores:
        if ranges and cpu == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], cpu]
        else:
            ranges.append([cpu])
    return ",".join("-".join(map(str, ends)) for ends in ranges)
