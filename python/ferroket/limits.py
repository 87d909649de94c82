"""What the node lets a process have: CPU time, memory, shared memory. In a container it is often less than it sees."""

import math
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_SHARED_MEMORY = Path("/dev/shm")

# Version 1 of cgroups says "no limit" with the largest multiple of a page in 63 bits.
_UNLIMITED = 1 << 60

MEMORY = "FERROKET_MEMORY"
"""The variable with the bytes that a rank may hold for an update."""

SHARE = 1 / 2
"""How much that is of a rank's memory, where nobody says it: the rest is for samples, states and what XLA needs."""

_UNITS = {
    "": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", 1)},
}


def cpu_quota(root: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> float | None:
    """The number of cores' worth of time that the control groups allow, None without a limit."""
    quotas = []
    for folder in _folders(root, membership, "cpu"):
        text = _read(folder / "cpu.max")  # version 2; version 1 has two files
        text = text or " ".join(_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def core_count(root: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int | None:
    """The number of logical cores that the control groups allow, None without a limit."""
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus")
    texts = (_read(folder / name) for folder in _folders(root, membership, "cpuset") for name in names)
    return min((_count(text) for text in texts if text), default=None)


def memory_limit(root: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int | None:
    """The bytes that the control groups allow, None without a limit."""
    names = ("memory.max", "memory.limit_in_bytes")
    texts = [_read(folder / name) for folder in _folders(root, membership, "memory") for name in names]
    return min((int(text) for text in texts if text.isdigit() and int(text) < _UNLIMITED), default=None)


def memory() -> tuple[int, int]:
    """Bytes of memory that the node has, and that are available now."""
    now = psutil.virtual_memory()
    return int(now.total), int(now.available)


def memory_of_ranks(count: int) -> int:
    """The bytes for each of so many ranks that share the node."""
    return min(memory()[0], memory_limit() or _UNLIMITED) // count


def memory_for_updates() -> int:
    """The bytes that this rank may hold for an update: those of FERROKET_MEMORY, which all ranks of a job have alike.

    Without it they are a share of the node's memory, as for one process. ``fk.initialize()`` sets it.

    Raises:
        ValueError: FERROKET_MEMORY isn't as :func:`parse_bytes` wants it.
    """
    text = os.environ.get(MEMORY)
    return parse_bytes(text) if text else math.floor(SHARE * memory_of_ranks(1))


def parse_bytes(text: str) -> int:
    """A number of bytes, as ``2147483648``, ``2GiB`` or ``2.5 GB``.

    Raises:
        ValueError: It isn't a positive number with a unit that is known.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise ValueError(f"{MEMORY} is {text!r}, but has to be a number of bytes, with or without a unit: 2GiB, 2.5GB")
    return math.floor(float(found[1]) * _UNITS[found[2]])


def shared_memory(folder: Path = _SHARED_MEMORY) -> tuple[int, int] | None:
    """Bytes of shared memory, in all and free, None where the system has no such folder."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.total, usage.free


def _folders(root: Path, membership: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control groups, each with all of its parents, whose limits hold as well.

    In a container the path may be the host's, of which only the root is there.
    """
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [root, root / "unified"]
        elif controller in controllers.split(","):
            mounts = [root / controllers, root / controller]
        else:
            continue
        for mount in mounts:
            inside = Path(path.lstrip("/"))
            for folder in (inside, *inside.parents):
                if (mount / folder).is_dir():
                    yield mount / folder


def _count(ranges: str) -> int:
    """How many numbers there are in ``0-3,8``."""
    ends = (part.split("-") for part in ranges.split(","))
    return sum(int(end[-1]) - int(end[0]) + 1 for end in ends)


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
