"""What a process can say of itself, its node and its environment without starting MPI or JAX.

All of it travels as JSON: between the ranks, from a trial to the doctor, and into the report.
"""

import os
import platform
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from ferroket import _lib, limits
from ferroket.distributed import affinity
from ferroket.distributed.info import is_initialized
from ferroket.distributed.library import find_mpirun, search_prefixes
from ferroket.distributed.node import this_node

# What has to be equal on all ranks for them to compile the same programs.
PACKAGES = ("ferroket", "jax", "jaxlib", "netket", "mpi4py", "numpy")

# The programs that start ranks. SLURM's starts the processes of batch scripts too, and isn't one of them.
_LAUNCHERS = re.compile(
    r"hydra_(pmi|bstrap)_proxy|pmi_proxy|(mpirun|mpiexec)(\.(hydra|mpich|openmpi))?|prte(d|run)?|orte(d|run)"
)

_RELEVANT = (
    *("FERROKET_*", "MPITRAMPOLINE_*", "JAX_*", "XLA_*", "PJRT_*", "TF_CPP_*", "NETKET_*", "MPI4PY_*"),
    *("OMP_*", "KMP_*", "GOMP_*", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"),
    *("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "PMIX_NAMESPACE", "MPI_LOCAL*", "OMPI_COMM_WORLD_*", "OPAL_PREFIX"),
    *("MPIR_CVAR_*", "MPICH_*", "HYDRA_*", "I_MPI_*", "OMPI_MCA_*", "PRTE_MCA_*", "PMIX_MCA_*", "MV2_*"),
    *("FI_*", "UCX_*", "PSM2_*"),
    *("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST", "SLURM_NTASKS*", "SLURM_CPUS_PER_TASK"),
    "SLURM_CPUS_ON_NODE",
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_*", "SLURM_CPU_BIND*", "SLURM_MPI_TYPE"),
    *("SLURM_MEM_PER_*", "SLURM_GPUS_*", "SLURM_DISTRIBUTION"),
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "TMPDIR"),
)
# What launchers tell their own library, and the name of a job of `ferroket launch`.
_NOISE = (
    *("I_MPI_INFO_*", "I_MPI_HYDRA_*", "I_MPI_MPIRUN", "I_MPI_INTERNAL_*", "I_MPI_*_WIN_*", "I_MPI_PIN_INFO"),
    *("HYDRA_BSTRAP_*", "HYDRA_IP_VERSION", "HYDRA_LAUNCH_TYPE"),
    *("OMPI_MCA_PREFIXES", "OMPI_MCA_cpu_type", "OMPI_MCA_initial_wdir", "OMPI_MCA_num_procs"),
    "FERROKET_JOB",
)
_SECRET = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "no_proxy", "no_grpc_proxy")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """One process, as it is before MPI and JAX start.

    Attributes:
        rank: its number as the launcher says, 0 without one.
        size: the launcher's number of processes, 1 without one, or where it says none.
        launcher: the launcher's name, None without one.
        launcher_kind: "hydra", "intel", "openmpi", "slurm" or "ferroket", None without one.
        started_by: the launchers among its ancestors, nearest first: the file, or the name where the file is hidden.
        hostname: its node's name.
        machine: tells nodes apart: ranks with the same one share cores.
        address: what the hostname resolves to, None if it doesn't.
        address_error: why it doesn't.
        versions: of the packages, None where one is missing.
        lowest: the lowest versions that ferroket supports.
        python: version and executable.
        system: distribution, kernel, processor's architecture, C library.
        early: what was imported, though nothing of it should be, before this process's own code.
        startup_file: what may have imported them: the file of ``sitecustomize`` or ``usercustomize``.
        cores: the logical cores that it may use.
        physical: the physical core of each of those, as "package.core".
        node_cores: logical cores of the node.
        node_physical: physical cores of the node, None where the system doesn't say.
        available_cores: logical cores that the control groups allow, such as those of a batch job.
        load: the node's load average of the last minute.
        quota: cores' worth of CPU time that the control groups allow.
        memory: bytes of the node.
        memory_free: bytes that are available.
        memory_limit: bytes that the control groups allow.
        shm: bytes of shared memory, in all and free.
        tmp_error: why no temporary file can be made, None if all is well.
        mpirun_on_path: the mpirun that a shell would run.
        proxies: the proxies that gRPC may take, without passwords.
        variables: those that bear on MPI, JAX and threads.
    """

    rank: int
    size: int
    launcher: str | None
    launcher_kind: str | None
    started_by: list[str]
    hostname: str
    machine: str
    address: str | None
    address_error: str | None
    versions: dict[str, str | None]
    lowest: dict[str, str]
    python: str
    system: str
    early: list[str]
    startup_file: str | None
    cores: list[int]
    physical: list[str]
    node_cores: int
    node_physical: int | None
    available_cores: int
    load: float | None
    quota: float | None
    memory: int
    memory_free: int
    memory_limit: int | None
    shm: list[int] | None
    tmp_error: str | None
    mpirun_on_path: str | None
    proxies: dict[str, str]
    variables: dict[str, str]

    @property
    def is_orphan(self) -> bool:
        """Whether a launcher started it, but none of the launcher's variables says so."""
        return self.launcher is None and bool(self.started_by)


@dataclass(frozen=True, kw_only=True)
class Library:
    """The MPI library that a run would use.

    Attributes:
        path: its file.
        family: "MPICH", "Open MPI" or "MPI-5 ABI".
        version: as it names itself.
        origin: how it was found.
        attempts: all places that were tried, as [place, outcome].
        mpirun: the launcher that belongs to it, None if there is none.
        mpirun_error: why there is none.
    """

    path: str
    family: str
    version: str
    origin: str
    attempts: list[list[str]]
    mpirun: str | None
    mpirun_error: str | None


def collect() -> Facts:
    """The facts of this process."""
    launcher = _lib.detect_launcher()
    node = this_node()
    address, address_error = _resolve(node.hostname)
    mask = affinity.allowed()
    memory, memory_free = limits.memory()
    shm = limits.shared_memory()
    return Facts(
        rank=launcher.rank if launcher else 0,
        size=(launcher.size or 1) if launcher else 1,
        launcher=launcher.name if launcher else None,
        launcher_kind=launcher.kind if launcher else None,
        started_by=[file for _, file in launching_ancestors()],
        hostname=node.hostname,
        machine=node.machine,
        address=address,
        address_error=address_error,
        versions={name: _version(name) for name in PACKAGES},
        lowest=_lowest_versions(),
        python=f"{platform.python_version()}, {sys.executable}",
        system=_system(),
        early=[] if is_initialized() else [name for name in ("netket", "jax", "jaxlib") if name in sys.modules],
        startup_file=_startup_file(),
        cores=list(mask),
        physical=["{}.{}".format(*affinity.physical_core(cpu)) for cpu in mask],
        node_cores=psutil.cpu_count() or len(mask),
        node_physical=psutil.cpu_count(logical=False),
        available_cores=limits.core_count() or psutil.cpu_count() or len(mask),
        load=_load(),
        quota=limits.cpu_quota(),
        memory=memory,
        memory_free=memory_free,
        memory_limit=limits.memory_limit(),
        shm=list(shm) if shm else None,
        tmp_error=_try_temporary_file(),
        mpirun_on_path=shutil.which("mpirun") or shutil.which("mpiexec"),
        proxies=dict(_proxies(os.environ)),
        variables=dict(sorted(relevant_variables(os.environ))),
    )


def find_library() -> Library:
    """The MPI library that a run of this process would use, and the launcher that belongs to it.

    Raises:
        RuntimeError: there is none; the message lists every place.
    """
    found = _lib.find_mpi(search_prefixes())
    mpirun, problem = None, None
    try:
        mpirun = str(find_mpirun(found))
    except FileNotFoundError as error:
        problem = str(error)
    return Library(
        path=str(found.path),
        family=found.family,
        version=found.version,
        origin=found.origin,
        attempts=[list(attempt) for attempt in found.attempts],
        mpirun=mpirun,
        mpirun_error=problem,
    )


def launching_ancestors() -> list[tuple[psutil.Process, str]]:
    """The processes of launchers that this process descends from, with their files, nearest first."""
    with suppress(psutil.Error):
        found = [(process, _launcher_file(process)) for process in psutil.Process().parents()]
        return [(process, file) for process, file in found if file]
    return []


def relevant_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables that bear on MPI, JAX and threads: no secrets, nothing that launchers tell their own library."""
    for name, value in environment.items():
        known = any(fnmatch(name, pattern) for pattern in _RELEVANT)
        if known and not any(fnmatch(name, pattern) for pattern in _NOISE) and not _SECRET.search(name.upper()):
            yield name, value


def _launcher_file(process: psutil.Process) -> str | None:
    """The file of a launcher, or its name where the file is hidden; None for other processes."""
    known: list[str] = []
    with suppress(psutil.Error):
        known.append(process.name())
        known += process.cmdline()[:2]  # Intel's mpirun is a script
        known.append(process.exe())
    return next((text for text in reversed(known) if _LAUNCHERS.fullmatch(Path(text).name)), None)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _lowest_versions() -> dict[str, str]:
    """The bounds of ferroket's own requirements, ``jax>=0.8``."""
    requirements = metadata.requires("ferroket") or []
    found = (re.match(r"([\w.-]+)\s*>=\s*([\d.]+)\s*$", text) for text in requirements)
    return {match[1]: match[2] for match in found if match}


def _system() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = platform.platform(terse=True)
    libc = " ".join(platform.libc_ver())
    return ", ".join(filter(None, [name, f"{platform.system()} {platform.release()}", platform.machine(), libc]))


def _startup_file() -> str | None:
    for name in ("usercustomize", "sitecustomize"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            return str(file)
    return None


def _resolve(name: str) -> tuple[str | None, str | None]:
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0]), None
    except OSError as error:
        return None, error.strerror or str(error)


def _try_temporary_file() -> str | None:
    try:
        with tempfile.TemporaryFile():
            return None
    except OSError as error:
        return str(error)


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def _proxies(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in environment.items():
        if value and name.lower() in _PROXIES:
            yield name, _without_password(value)


def _without_password(address: str) -> str:
    parts = urlsplit(address)
    if "@" not in parts.netloc:
        return address
    return parts._replace(netloc="***@" + parts.netloc.rsplit("@", 1)[1]).geturl()
