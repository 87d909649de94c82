"""NetKet on every core of a CPU cluster: Rust kernels and MPI collectives.

Importing this package is cheap and doesn't import JAX: its parts are loaded when they are first used, so
that :func:`initialize` can prepare MPI and the cores before JAX starts. Where this version of jaxlib computes wrong
sums, the import sets the flag of XLA's that prevents it.
"""

import importlib
from importlib.metadata import version
from types import ModuleType

import lazy_loader
import wrapt

from ferroket._compat.jaxlib import correct_reductions

__version__ = version("ferroket")

# The public names, and where they live, are in __init__.pyi.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def _teach_netket(_: ModuleType) -> None:
    importlib.import_module("ferroket.local_energy")


# Whoever has an operator wants NetKet's states to know how to evaluate it, also without a name of this module.
wrapt.register_post_import_hook(_teach_netket, "ferroket.operator")

correct_reductions()
