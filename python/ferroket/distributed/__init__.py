"""The runtime of a job of many processes: starting JAX over MPI, saying what runs, and arrays that all ranks share.

``initialize`` is all that a script needs. It is useful without the operators: any JAX program may call it.
"""

from typing import TYPE_CHECKING, Any

from ferroket.distributed.info import RuntimeInfo, runtime_info
from ferroket.distributed.startup import initialize

if TYPE_CHECKING:
    from ferroket.distributed.arrays import (
        barrier,
        from_process_local,
        gather,
        is_main,
        load,
        print_once,
        replicate,
        save,
    )

_ARRAYS = ("barrier", "from_process_local", "gather", "is_main", "load", "print_once", "replicate", "save")

__all__ = [
    "RuntimeInfo",
    "barrier",
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


def __getattr__(name: str) -> Any:
    # NumPy starts as many threads as there are cores: not before `initialize` has chosen those of this rank.
    if name not in _ARRAYS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ferroket.distributed import arrays

    return getattr(arrays, name)
