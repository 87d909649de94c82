"""Old public names: they still work, and say what the new ones are."""

import operator
import pkgutil
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def moved_names(module: str, moved: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module some of whose names have moved.

    It gives what is at the new place, with a :class:`DeprecationWarning` for the line that uses the old name.

    Args:
        module: The name of the module.
        moved: The new place of each old name, such as ``{"Machine": "ferroket.ansatz.RBMAmplitudes"}``.
    """

    def get(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is deprecated: use {moved[name]}", DeprecationWarning, stacklevel=2)
        return pkgutil.resolve_name(moved[name])

    return get


def renamed_attribute(old: str, new: str) -> property:
    """A property with the old name of an attribute; the new one may be of an attribute, as ``update.path``."""

    def get(self: Any) -> Any:
        name = type(self).__name__
        warnings.warn(f"{name}.{old} is deprecated: use {name}.{new}", DeprecationWarning, stacklevel=2)
        return operator.attrgetter(new)(self)

    return property(get, doc=f"The old name of :attr:`{new}`.")
