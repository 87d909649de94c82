"""Which GPUs each rank computes on.

JAX takes every GPU that it sees, and reserves most of their memory: ranks of one node have to be told which are theirs
before JAX starts. The driver is asked, not the files in /dev, since it knows what CUDA_VISIBLE_DEVICES, a batch
system's control groups and partitions of a GPU leave to this process.
"""

import ctypes
import pkgutil
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import NamedTuple


class Gpus(NamedTuple):
    """What one rank computes on.

    Attributes:
        platform: JAX's name for it, "cuda" or "rocm"; None is the CPU.
        devices: the GPUs that this process sees: bus addresses and UUIDs, which are the same for all processes.
    """

    platform: str | None
    devices: tuple[str, ...]


class _Driver(NamedTuple):
    """A GPU driver's library and its functions; those of CUDA and HIP have the same parameters."""

    libraries: tuple[str, ...]
    init: str
    get_count: str
    get_device: str
    get_bus: str
    get_uuid: str


_DRIVERS = {
    "cuda": _Driver(
        ("libcuda.so.1",),
        "cuInit",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetPCIBusId",
        "cuDeviceGetUuid_v2",
    ),
    "rocm": _Driver(
        ("libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"),
        "hipInit",
        "hipGetDeviceCount",
        "hipDeviceGet",
        "hipDeviceGetPCIBusId",
        "hipDeviceGetUuid",
    ),
}
_NO_DEVICE = 100  # the same error in CUDA and HIP

# What JAX computes collectives with on each platform.
COLLECTIVES = {"cuda": "nccl", "rocm": "rccl"}


def find(variables: Mapping[str, str]) -> Gpus:
    """What JAX will compute on in this process, found out without starting JAX.

    The first platform in JAX_PLATFORMS decides. Without it JAX takes a GPU where its package for one (``jax[cuda12]``,
    ``jax[rocm]``, ...) is installed and the driver shows one, else the CPU.

    Args:
        variables: the environment.

    Raises:
        RuntimeError: JAX_PLATFORMS asks for GPUs, but this process sees none.
    """
    name, asked = next(
        ((name, variables[name]) for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME") if variables.get(name)), ("", "")
    )
    wanted = asked.split(",")[0].strip().lower()
    if wanted and wanted not in ("gpu", *_DRIVERS):
        return Gpus(None, ())
    problems = []
    for platform in [wanted] if wanted in _DRIVERS else _installed():
        try:
            devices = _ask(_DRIVERS[platform])
        except OSError as error:
            problems.append(f"{platform}: {error}")
        else:
            return Gpus(platform, devices)
    if asked:
        reason = "; ".join(problems) or "JAX's package for GPUs is not installed"
        raise RuntimeError(
            f"{name} is {asked!r}, but this process sees no GPU ({reason}). Ask the batch system for GPUs "
            "(--gpus-per-node), check CUDA_VISIBLE_DEVICES, or set JAX_PLATFORMS=cpu"
        )
    return Gpus(None, ())


def plan(seen: Sequence[Sequence[str]], hostname: str) -> list[list[int] | None]:
    """The ``local_device_ids`` of JAX for each rank of one node.

    A rank that nobody shares GPUs with takes all that it sees: one rank a node, or ranks whose launcher gave each its
    own. Ranks that see the same GPUs take one each, in turn.

    Args:
        seen: the GPUs that each rank of the node sees, ordered by rank.
        hostname: the node, for the message.

    Returns:
        For each rank the numbers of its GPUs among those that it sees; None for all of them.

    Raises:
        RuntimeError: more ranks than GPUs, or ranks that see some of each other's.
    """
    ids: list[list[int] | None] = [None] * len(seen)
    for group in {tuple(own) for own in seen}:
        ranks = [rank for rank, own in enumerate(seen) if tuple(own) == group]
        if len(ranks) > len(group):
            raise RuntimeError(
                f"{len(ranks)} ranks on {hostname} share {len(group)} GPU{'s' * (len(group) > 1)} "
                f"({', '.join(group)}), but each needs one of its own. Start at most {len(group)} there "
                f"(srun --ntasks-per-node={len(group)}, mpirun -ppn {len(group)}), ask for more GPUs, or compute on "
                "the cores with JAX_PLATFORMS=cpu"
            )
        for place, rank in enumerate(ranks):
            if len(ranks) > 1 or len(group) == 1:
                ids[rank] = [place]
    taken = [
        gpu
        for own, chosen in zip(seen, ids, strict=True)
        for gpu in (own if chosen is None else [own[i] for i in chosen])
    ]
    twice = sorted({gpu for gpu in taken if taken.count(gpu) > 1})
    if twice:
        raise RuntimeError(
            f"the ranks on {hostname} see different GPUs, but some see the same: {', '.join(twice)}. Let the "
            "launcher show each rank its own (srun --gpus-per-task=1) or all ranks of a node all of them "
            "(srun --gpu-bind=none), and don't set CUDA_VISIBLE_DEVICES"
        )
    return ids


def suppose(own: Sequence[str], local_rank: int, local_size: int, on_node: int | None) -> list[tuple[str, ...]]:
    """What the ranks of this node see, for :func:`plan`, where no rank can ask the others.

    Args:
        own: the GPUs that this process sees.
        local_rank: this process's number on its node.
        local_size: the number of processes on its node.
        on_node: the GPUs of the job on this node, if the batch system says so. A rank that sees fewer was given its
            own, and so were the others.
    """
    if on_node is None or len(own) >= on_node:
        return [tuple(own)] * local_size
    return [tuple(own) if rank == local_rank else (f"rank {rank}'s",) for rank in range(local_size)]


def _installed() -> list[str]:
    """The GPU platforms that JAX has a package for, found as JAX finds them."""
    spec = find_spec("jax_plugins")
    folders = list(spec.submodule_search_locations or []) if spec else []
    names = [module.name for module in pkgutil.iter_modules(folders)]
    names += [entry.value for entry in entry_points(group="jax_plugins")]
    return [platform for platform in _DRIVERS if any(platform in name for name in names)]


def _ask(driver: _Driver) -> tuple[str, ...]:
    """The GPUs that a driver shows to this process; no context is made on them.

    Raises:
        OSError: there is no driver, or it shows none.
    """
    library = _load(driver.libraries)

    def call(function: str, *arguments: object) -> None:
        code = getattr(library, function)(*arguments)
        if code == _NO_DEVICE:
            raise OSError("the driver shows no device")
        if code:
            raise OSError(f"{function} of {library._name} failed with error {code}")

    call(driver.init, ctypes.c_uint(0))
    count = ctypes.c_int()
    call(driver.get_count, ctypes.byref(count))
    if not count.value:
        raise OSError("the driver shows no device")
    gpus = []
    for ordinal in range(count.value):
        device, bus, uuid = ctypes.c_int(), ctypes.create_string_buffer(32), ctypes.create_string_buffer(16)
        call(driver.get_device, ctypes.byref(device), ctypes.c_int(ordinal))
        call(driver.get_bus, bus, ctypes.c_int(len(bus)), device)
        call(driver.get_uuid, uuid, device)
        gpus.append(f"{bus.value.decode()} {uuid.raw.hex()}")
    return tuple(gpus)


def _load(names: Sequence[str]) -> ctypes.CDLL:
    problem = OSError()
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problem = error
    raise problem
