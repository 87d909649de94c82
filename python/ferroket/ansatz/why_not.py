"""Why a model isn't of an ansatz, as the ends of sentences."""

from typing import Any

import netket as nk

_ALMOST = "almost: "


def almost(reason: str) -> str:
    """Marks the reason why a model is only nearly of an ansatz: then this reason is told, and not those of others."""
    return _ALMOST + reason


def without_mark(reason: str) -> str | None:
    """A reason that :func:`almost` marked, without the mark; None for any other."""
    return reason.removeprefix(_ALMOST) if reason.startswith(_ALMOST) else None


def other_type(model: Any, cls: type) -> str | None:
    """Why a model isn't exactly of a class; None if it is."""
    if type(model) is cls:
        return None
    if isinstance(model, cls):
        return almost(f"{type(model).__name__} is a subclass of {cls.__name__}, and may be another function")
    return f"it is no nk.models.{cls.__name__}"


def other_activation(model: Any) -> str | None:
    """Why the activation of a model isn't ln cosh; None if it is."""
    if model.activation is nk.nn.activation.log_cosh:
        return None
    activation = getattr(model.activation, "__name__", repr(model.activation))
    return almost(f"the activation is {activation}, and amplitude ratios are known only for nk.nn.log_cosh")
