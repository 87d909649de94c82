# The public names, which lazy_loader loads when they are first used.
from . import (
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
from .acceleration import disable, enable, explain
from .distributed import initialize, runtime_info
from .operator import accelerate
from .reasons import Reason, ReasonKind

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

__version__: str
