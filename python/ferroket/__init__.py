"""NetKet on every core of a CPU cluster: Rust kernels and MPI collectives.

Importing this package is cheap and doesn't import JAX: its parts are loaded when they are first used, so
that :func:`initialize` can prepare MPI and the cores before JAX starts. Where this version of jaxlib computes wrong
sums, the import sets the flag of XLA's that prevents it.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import wrapt

from ferroket._compat.jaxlib import correct_reductions

if TYPE_CHECKING:
    from ferroket import (
        ansatz,
        distributed,
        driver,
        hilbert,
        linalg,
        local_energy,
        models,
        natural_gradient,
        operator,
        optimizer,
        sampler,
    )
    from ferroket.acceleration import disable, enable, explain
    from ferroket.distributed import initialize, runtime_info
    from ferroket.operator import accelerate
    from ferroket.reasons import Reason, ReasonKind

# Where each public name lives; a name that equals its module is the module itself.
_PUBLIC = {
    "Reason": "ferroket.reasons",
    "ReasonKind": "ferroket.reasons",
    "accelerate": "ferroket.operator",
    "ansatz": "ferroket.ansatz",
    "disable": "ferroket.acceleration",
    "distributed": "ferroket.distributed",
    "driver": "ferroket.driver",
    "enable": "ferroket.acceleration",
    "explain": "ferroket.acceleration",
    "hilbert": "ferroket.hilbert",
    "initialize": "ferroket.distributed",
    "linalg": "ferroket.linalg",
    "local_energy": "ferroket.local_energy",
    "models": "ferroket.models",
    "natural_gradient": "ferroket.natural_gradient",
    "operator": "ferroket.operator",
    "optimizer": "ferroket.optimizer",
    "runtime_info": "ferroket.distributed",
    "sampler": "ferroket.sampler",
}

__all__ = [
    "Reason",
    "ReasonKind",
    "__version__",
    "accelerate",
    "ansatz",
    "disable",
    "distributed",
    "driver",
    "enable",
    "explain",
    "hilbert",
    "initialize",
    "linalg",
    "local_energy",
    "models",
    "natural_gradient",
    "operator",
    "optimizer",
    "runtime_info",
    "sampler",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("ferroket")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'ferroket' has no attribute {name!r}")
    module = importlib.import_module(_PUBLIC[name])
    return module if module.__name__ == f"ferroket.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return __all__


def _teach_netket(_: ModuleType) -> None:
    importlib.import_module("ferroket.local_energy")


# Whoever has an operator wants NetKet's states to know how to evaluate it, also without a name of this module.
wrapt.register_post_import_hook(_teach_netket, "ferroket.operator")

correct_reductions()
