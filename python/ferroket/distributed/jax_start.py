"""Starting JAX in one of many processes, and checking what came of it."""

import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence

from ferroket import _lib
from ferroket._compat.jax import (
    bypass_cache_across_processes,
    is_backend_started,
    join_nodes,
    raise_at_nans_of_many_processes,
    set_gloo_address,
)
from ferroket.distributed import affinity, communicators, info, programs
from ferroket.distributed.coordinator import own_address

# Seconds that nothing in a healthy job takes. How long a start may take is FERROKET_INIT_TIMEOUT's, and what ends a job
# that has lost a rank is the launcher, and Ferroket's watchers: JAX's heartbeat would end one that was only suspended.
_FOREVER = 30 * 86400
# Seconds that the launcher, and those who watch the ranks, have to end a job.
_OTHERS_TURN = 2.0


def too_late() -> str | None:
    """What was imported or done too early for JAX to get MPI and cores of its own, if anything."""
    culprit = next((name for name in ("netket", "jax", "jaxlib") if name in sys.modules), None)
    if culprit is None:
        return None
    if _lib.is_trampoline_attached() and not is_backend_started():
        return None
    return (
        f"fk.initialize() came too late: {culprit} was imported before it, and JAX has already chosen its "
        f"collectives and cores. Move these lines to the top of the script, above `import {culprit}`:\n"
        "    import ferroket as fk\n"
        "    fk.initialize()"
    )


def load() -> None:
    """Imports JAX, which takes minutes where thousands of ranks read it from one file system."""
    # With gloo too: another wrapper in this variable may not be there, and would end the import of jaxlib.
    os.environ["MPITRAMPOLINE_LIB"] = _lib.__file__
    importlib.import_module("jax")


def connect(
    rank: int,
    size: int,
    *,
    address: str,
    bind_address: str,
    collectives: str,
    gpus: Sequence[int] | None,
) -> None:
    """Connects JAX's processes, with our wrapper of MPI in jaxlib.

    Args:
        rank: this process's number.
        size: the number of processes.
        address: where the others reach rank 0's coordinator.
        bind_address: where it listens.
        collectives: "mpi" or "gloo", between CPUs.
        gpus: the numbers of this process's GPUs among those that it sees; None for all.
    """
    _bypass_proxies(address)
    load()
    import jax

    if collectives == "mpi" and not _lib.is_trampoline_attached():
        raise RuntimeError(
            f"jaxlib {info.versions()['jaxlib']} did not load {_lib.__file__} as its MPI wrapper. Was jaxlib "
            "built with MPI? Use the wheel from the Python package index, or FERROKET_COLLECTIVES=gloo"
        )
    jax.config.update("jax_cpu_collectives_implementation", collectives)
    if collectives == "gloo":
        # Gloo would take the address that this host's name has here, on Debian a loopback.
        set_gloo_address(own_address(address))
    # JAX takes any variable with "_proxy" in its name for a web proxy, Intel MPI's HYDRA_BSTRAP_PROXY_ID too.
    # The real ones are bypassed above.
    jax.config.update("jax_check_proxy_envs", False)
    # On one core there is nothing to overlap, and handing a small program to another thread costs more than it takes.
    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ and len(affinity.allowed()) == 1:
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    # JAX would keep a SIGTERM to itself, for programs that ask it whether one has come; here it ends a rank.
    if "JAX_ENABLE_PREEMPTION_SERVICE" not in os.environ and "jax_enable_preemption_service" in jax.config.values:
        jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator_address=address,
            coordinator_bind_address=bind_address,
            num_processes=size,
            process_id=rank,
            local_device_ids=None if "JAX_LOCAL_DEVICE_IDS" in os.environ else gpus,  # JAX reads its variable then
            cluster_detection_method="deactivate",
            initialization_timeout=_FOREVER,
            heartbeat_timeout_seconds=_FOREVER,
        )
    except Exception:
        # Rank 0 may be gone: then this rank ends as the others do, and those who have seen the cause name it.
        time.sleep(_OTHERS_TURN)
        raise


def start(size: int, collectives: str, *, compares: bool) -> Callable[[], None] | None:
    """Starts JAX's backend, and checks that it counts the processes as the launcher does.

    Args:
        size: the number of processes.
        collectives: "mpi" or "gloo", between CPUs.
        compares: whether ranks compare which programs they run, where collectives are MPI's.

    Returns:
        What all ranks have to call together before MPI is taken down; None if collectives aren't MPI's.
    """
    import jax

    if jax.process_count() != size:
        raise RuntimeError(
            f"the launcher started {size} processes, but JAX counts {jax.process_count()}. Is JAX_PLATFORMS set to a "
            "platform without distributed runs?"
        )
    bypass_cache_across_processes()
    if size > 1:
        join_nodes()
        raise_at_nans_of_many_processes()
    if jax.default_backend() != "cpu" or collectives != "mpi":
        return None
    if jax.local_device_count() > 1:
        raise RuntimeError(
            f"this process has {jax.local_device_count()} CPU devices, but XLA's MPI collectives allow one device a "
            "process. Unset JAX_NUM_CPU_DEVICES and --xla_force_host_platform_device_count in XLA_FLAGS, and start "
            "more ranks instead"
        )
    if compares and size > 1:
        programs.mark_programs()
    return communicators.create_before_use()


def _bypass_proxies(address: str) -> None:
    """Lets JAX reach its coordinator directly where a web proxy is set; nothing else's proxy is changed."""
    host = address.rsplit(":", 1)[0].strip("[]")
    before = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""  # noqa: SIM112 - gRPC's names
    os.environ["no_grpc_proxy"] = ",".join(filter(None, [before, host]))  # noqa: SIM112
