"""What runs: the answer of ``fk.runtime_info()``."""

from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

from ferroket import _lib
from ferroket._compat.jaxlib import explain_reductions
from ferroket.distributed import affinity
from ferroket.distributed.affinity import Cores
from ferroket.distributed.library import search_prefixes
from ferroket.distributed.node import this_node


@dataclass(frozen=True, kw_only=True)
class RuntimeInfo:
    """What runs in this job; ``print`` it for a summary.

    Attributes:
        rank: this process's number, from 0.
        size: the number of processes.
        local_rank: this process's number on its node.
        local_size: the number of processes on this node.
        hostname: this node's name.
        nodes: the number of nodes.
        launcher: the program that started the processes, None if there is none.
        mpi: the MPI library's name and version, None without a launcher.
        mpi_path: its file.
        mpi_origin: how it was found.
        thread_level: the thread support that MPI gives.
        collectives: "mpi", "gloo", or "none" in a single process.
        coordinator: address and port of JAX's coordinator.
        cores: the logical cores of each rank of the job, by rank.
        binding: who chose the cores: "ferroket", "launcher", "none".
        yielding: whether ranks that wait leave their core to others, since they share it.
        kernels: what computes connected elements on the CPU, and with which vector instructions.
        reductions: what is done about sums that this jaxlib computes wrong on CPUs; None where none are known.
        versions: of ferroket, jax, jaxlib, netket and mpi4py.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    hostname: str
    nodes: int = 1
    launcher: str | None = None
    mpi: str | None = None
    mpi_path: str | None = None
    mpi_origin: str | None = None
    thread_level: str | None = None
    collectives: str = "none"
    coordinator: str | None = None
    cores: tuple[Cores, ...]
    binding: str = "none"
    yielding: bool = False
    kernels: str
    reductions: str | None = field(default_factory=explain_reductions)
    versions: dict[str, str]

    def __str__(self) -> str:
        """A few lines for the head of a job's output."""
        ranks = f"{self.size} on {self.nodes} node{'s' * (self.nodes > 1)}"
        rows = {
            "launcher": self.launcher or "none, one plain process",
            "MPI": f"{self.mpi}, {self.mpi_path} ({self.mpi_origin})" if self.mpi else "not used",
            "ranks": ranks,
            "cores": f"{_describe_all(self.cores)} ({_BINDINGS[self.binding]}{', shared' * self.yielding})",
            "collectives": self.collectives,
            "kernels": self.kernels,
            **({"reductions": self.reductions} if self.reductions else {}),
            "versions": ", ".join(f"{name} {number}" for name, number in self.versions.items()),
        }
        width = max(map(len, rows))
        return "\n".join(f"{name:>{width}}: {value}" for name, value in rows.items())


_BINDINGS = {
    "ferroket": "bound by ferroket",
    "launcher": "bound by the launcher",
    "none": "not bound",
}

_SHOWN_RANKS = 8

_current: RuntimeInfo | None = None


def _describe_all(by_rank: tuple[Cores, ...]) -> str:
    shown = [f"rank {rank} {affinity.describe(own)}" for rank, own in enumerate(by_rank[:_SHOWN_RANKS])]
    more = [f"and {len(by_rank) - _SHOWN_RANKS} more"] if len(by_rank) > _SHOWN_RANKS else []
    return "; ".join(shown + more)


def kernels() -> str:
    """What computes connected elements on the CPU, and with which vector instructions.

    Raises:
        ValueError: FERROKET_SIMD names none of this processor's.
    """
    return f"Rust, ferroket {version('ferroket')}, {_lib.simd_level()}"


def versions() -> dict[str, str]:
    """The versions that matter in a bug report."""
    return {name: version(name) for name in ("ferroket", "jax", "jaxlib", "netket", "mpi4py")}


def version_text() -> str:
    """What ``ferroket --version`` prints: packages, Python and the MPI library that a run would use, a line each.

    JAX isn't imported, and MPI isn't started.
    """
    names = {"Ferroket": "ferroket", "JAX": "jax", "jaxlib": "jaxlib", "NetKet": "netket"}
    found = {name: _installed(package) for name, package in names.items()} | {"Python": python_version()}
    try:
        library = _lib.find_mpi(search_prefixes())
        found["MPI"] = f"{library.version}, {library.path}"
    except RuntimeError:
        found["MPI"] = "none found: ferroket doctor says where it was looked for"
    return "\n".join(f"{name} {text}" for name, text in found.items())


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "isn't installed"


def remember(info: RuntimeInfo) -> RuntimeInfo:
    """Keeps what ``initialize`` found."""
    global _current  # noqa: PLW0603 - one process has one runtime
    _current = info
    return info


def is_initialized() -> bool:
    """Whether ``initialize`` was called."""
    return _current is not None


def single_process() -> RuntimeInfo:
    """The runtime of a process that no launcher started."""
    return RuntimeInfo(
        hostname=this_node().hostname, cores=(affinity.allowed(),), kernels=kernels(), versions=versions()
    )


def runtime_info() -> RuntimeInfo:
    """What runs: MPI library and path, thread level, rank, size, cores, collectives.

    Before :func:`ferroket.initialize` it describes a single process.
    """
    return _current or single_process()
