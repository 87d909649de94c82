"""What the node lets a process have: CPU time, memory, shared memory. In a container it is often less than it sees."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_SHARED_MEMORY = Path("/dev/shm")

# Version 1 of cgroups says "no limit" with the largest multiple of a page in 63 bits.
_UNLIMITED = 1 << 60


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
