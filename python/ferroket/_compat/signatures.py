"""Signatures that name all arguments, where they are handed on to NetKet, and where NetKet's metaclass hides them."""

import inspect
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, TypeVar

_Callable = TypeVar("_Callable", bound=Callable[..., Any])


def with_arguments_of(theirs: Callable[..., Any]) -> Callable[[_Callable], _Callable]:
    """Has a function or a class show the arguments that it hands on, as completion and ``help`` read them.

    Args:
        theirs: The function or class that takes what is handed on. Its positional arguments take the place of
            ``*args``, and its keywords that of ``**kwargs``, both without annotations.
    """

    def decorate(ours: _Callable) -> _Callable:
        own, others = _signature(ours), _signature(theirs).parameters.values()
        more = [one.replace(annotation=Parameter.empty) for one in others if one.name not in own.parameters]
        shown: list[Parameter] = []
        for parameter in own.parameters.values():
            if parameter.kind is Parameter.VAR_POSITIONAL:
                shown += [one for one in more if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
            elif parameter.kind is Parameter.VAR_KEYWORD:
                shown += [one for one in more if one.kind is Parameter.KEYWORD_ONLY]
            else:
                shown.append(parameter)
        ours.__signature__ = own.replace(parameters=shown)  # type: ignore[attr-defined]
        return ours

    return decorate


def _signature(function: Any) -> Signature:
    """The signature of a function, or of a class's ``__init__``, if none was set for the class."""
    if not isinstance(function, type):
        return inspect.signature(function)
    if "__signature__" in vars(function):
        found: Signature = vars(function)["__signature__"]
        return found
    own = inspect.signature(function.__init__)  # type: ignore[misc]
    return Signature(list(own.parameters.values())[1:])
