"""The runtime of a job of many processes: starting JAX over MPI, saying what runs, and arrays that all ranks share.

``initialize`` is all that a script needs. It is useful without the operators: any JAX program may call it.
"""

from ferroket.distributed.arrays import (
    barrier,
    broadcast,
    from_process_local,
    gather,
    is_main,
    load,
    print_once,
    replicate,
    save,
)
from ferroket.distributed.info import RuntimeInfo, runtime_info
from ferroket.distributed.startup import initialize

__all__ = [
    "RuntimeInfo",
    "barrier",
    "broadcast",
    "from_process_local",
    "gather",
    "initialize",
    "is_main",
    "load",
    "print_once",
    "replicate",
    "runtime_info",
    "save",
]
