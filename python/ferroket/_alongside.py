"""Packages that are loaded along with one that they stand on, though that one doesn't know them."""

import importlib

_ALONGSIDE = {
    # Whoever has an operator wants NetKet's states to know how to evaluate it.
    "ferroket.operator": ("ferroket.local_energy",),
}


def load_alongside(package: str) -> None:
    """Loads what belongs to a package of ours; called as the last thing when that is loaded itself."""
    for name in _ALONGSIDE.get(package, ()):
        importlib.import_module(name)
