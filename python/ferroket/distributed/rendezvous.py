"""The rendezvous of a job's ranks: over MPI, or where none is needed, over JAX's coordinator."""

import os
from collections.abc import Sequence
from contextlib import nullcontext

from ferroket import _lib
from ferroket.distributed import gpus, jax_start, slurm
from ferroket.distributed.coordinator import Coordinator
from ferroket.distributed.gpus import Gpus
from ferroket.distributed.library import search_prefixes
from ferroket.distributed.node import this_node
from ferroket.distributed.process_group import StoreProcessGroup

# What `ferroket launch` sets beside FERROKET_RANK and FERROKET_SIZE.
COORDINATOR = "FERROKET_COORDINATOR"


def needs_mpi(launcher: _lib.Launcher, collectives: str, own: Gpus) -> bool:
    """Whether the ranks have to meet over MPI: the collectives are its, or only it knows who is who."""
    if launcher.kind == "ferroket" and own.platform is None and collectives == "mpi":
        raise RuntimeError(
            "`ferroket launch` started these ranks without an MPI, so their collectives can't be MPI's. "
            "Leave `collectives` out in fk.initialize(), or install an MPI: pip install mpich. If another "
            "job has left these variables, unset FERROKET_RANK and FERROKET_SIZE."
        )
    return launcher.kind not in ("ferroket", "slurm") or (own.platform is None and collectives == "mpi")


def over_mpi(launcher: _lib.Launcher) -> tuple[_lib.Mpi, str]:
    """MPI as XLA will see it, and how its library was found."""
    if problem := _lib.left_over_variables():
        raise RuntimeError(
            f"{launcher.name} seems to have started this process, by its variables, but {problem}: another job or a "
            "container has left them. For a single process, unset PMI_RANK, PMI_SIZE and PMI_FD"
        )
    if launcher.kind == "hydra":
        # In a job of SLURM with MpiDefault=pmix, MPICH finds the variables of two launchers, and gives up.
        os.environ.pop("PMIX_NAMESPACE", None)
    prefixes = search_prefixes()
    found = _lib.find_mpi(prefixes)
    if found.variable:
        name, value = found.variable
        os.environ.setdefault(name, str(value))
    mpi = _lib.attach_mpi(prefixes)
    size = mpi.size if launcher.size is None else launcher.size
    if (mpi.rank, mpi.size) != (launcher.rank, size):
        mend = (
            slurm.NO_PMI
            if launcher.kind == "slurm"
            else "Start the script with the mpirun that belongs to it, or name the library that belongs to the "
            "launcher in FERROKET_LIBMPI"
        )
        raise RuntimeError(
            f"{launcher.name} says that this is rank {launcher.rank} of {size}, but MPI says rank "
            f"{mpi.rank} of {mpi.size}: the launcher and the MPI library don't belong together, and the ranks would "
            f"be {size} independent runs. The library is {mpi.library.version}, {mpi.library.path} "
            f"({found.origin}). {mend}"
        )
    # mpi4py, if the script imports it, has to run on the same library, and finds it started.
    os.environ.setdefault("MPI4PY_LIBMPI", str(mpi.library.path))
    return mpi, found.origin


def over_jax(launcher: _lib.Launcher, own: Gpus) -> tuple[StoreProcessGroup, str]:
    """Connects JAX's processes, and returns the ranks over its coordinator, and the coordinator's address."""
    assert launcher.size is not None  # these two say so
    step = slurm.step(os.environ) if launcher.kind == "slurm" else None
    if step is not None:
        place, address = (step.local_rank, step.local_size, step.gpus_on_node), step.coordinator
    else:
        place, address = (launcher.rank, launcher.size, None), _given_address()
    reservation = Coordinator(step.nodes, step.port) if step and launcher.rank == 0 else nullcontext()
    with reservation:
        bind_address = reservation.address if isinstance(reservation, Coordinator) else address
        jax_start.connect(
            launcher.rank,
            launcher.size,
            address=bind_address if launcher.rank == 0 else address,
            bind_address=bind_address,
            collectives="gloo",  # without MPI; beside GPUs it is for what is computed on their host
            gpus=_own_gpus(own, place),
        )
    return StoreProcessGroup(launcher.rank, launcher.size), address


def _own_gpus(own: Gpus, place: tuple[int, int, int | None]) -> Sequence[int] | None:
    """The numbers of this rank's GPUs among those that it sees, before it can ask the other ranks of its node."""
    if own.platform is None:
        return None
    local_rank, local_size, on_node = place
    return gpus.plan(gpus.suppose(own.devices, local_rank, local_size, on_node), this_node().hostname)[local_rank]


def _given_address() -> str:
    address = os.environ.get(COORDINATOR, "")
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit()):
        raise RuntimeError(
            f"{COORDINATOR} is {address!r}, but FERROKET_RANK and FERROKET_SIZE are set, and it has to name the "
            "coordinator of that job as host:port. `ferroket launch` sets all three; unset them for a single process"
        )
    return address
