"""The runtime of a job of many processes: starting JAX over MPI, and saying what runs.

``initialize`` is all that a script needs. It is useful without the operators: any JAX program may call it.
"""

from ferroket.distributed.info import RuntimeInfo, runtime_info
from ferroket.distributed.startup import initialize

__all__ = ["RuntimeInfo", "initialize", "runtime_info"]
