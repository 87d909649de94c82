"""Which families of operators there are, and which classes of NetKet they are made from.

Families register themselves here, so that the algebra imports none of them.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import netket as nk

Converter = Callable[[Any], Any]
"""From an operator of NetKet's to one of ours."""

_Class = TypeVar("_Class", bound=type)

_FAMILIES: dict[str, Any] = {}
# By exact type: a subclass may have changed the operator, and must not be replaced behind its author's back.
_BY_TYPE: dict[type, Converter] = {}
# These are abstract, or have a class of their own for each part.
_BY_BASE: dict[type, Converter] = {}


def register(*netkets: type) -> Callable[[_Class], _Class]:
    """Has a class be a family of operators: a pytree of JAX, and known to :func:`accelerate` and to the algebra.

    Args:
        netkets: The classes of NetKet that it takes the place of; its ``from_netket`` converts their instances.
    """

    def decorate(cls: Any) -> Any:
        jax.tree_util.register_pytree_node_class(cls)
        _FAMILIES[cls.__name__] = cls
        _BY_TYPE[cls] = lambda operator: operator
        for theirs in netkets:
            _BY_TYPE[theirs] = cls.from_netket
        return cls

    return decorate


def register_converter(*bases: type) -> Callable[[Converter], Converter]:
    """Has a function convert the operators of these classes of NetKet's, and of all their subclasses."""

    def decorate(function: Converter) -> Converter:
        _BY_BASE.update(dict.fromkeys(bases, function))
        return function

    return decorate


def family(name: str) -> Any:
    """The family of this name: what the algebra makes of others, it makes by name."""
    return _FAMILIES[name]


def accelerate(operator: Any) -> Any:
    """The accelerated operator that equals a NetKet operator.

    Sums, products, embeddings and lazy wrappers are converted part by part, and become a single operator where one
    can hold them.

    Args:
        operator: An operator of NetKet, in numba or JAX, or one of ours, which is returned as it is.

    Returns:
        An operator with the same matrix elements, of the same dtype.

    Raises:
        TypeError: If there is no accelerated version of exactly this class, or of that of one of its parts.
    """
    convert = _BY_TYPE.get(type(operator))
    if convert is None:
        convert = next((of_base for base, of_base in _BY_BASE.items() if isinstance(operator, base)), None)
    if convert is None:
        raise _unknown(operator)
    return convert(operator)


def _unknown(operator: Any) -> TypeError:
    cls = type(operator)
    name = f"{cls.__module__}.{cls.__qualname__}"
    if isinstance(operator, nk.operator.LocalLiouvillian | nk.operator.AbstractSuperOperator):
        return TypeError(
            f"can't accelerate a {name}: superoperators aren't supported. The operator works as it is; accelerate the "
            "Hamiltonian and the observables"
        )
    if isinstance(operator, nk.operator.ContinuousOperator):
        return TypeError(
            f"can't accelerate a {name}: operators on continuous spaces have derivatives, and no connected elements. "
            "The operator works as it is"
        )
    supported = ", ".join(sorted({known.__name__ for known in _BY_TYPE}))
    return TypeError(
        f"can't accelerate a {name}: there are accelerated versions of exactly these "
        f"classes: {supported}. The operator works as it is; build it from one of them to have it accelerated."
    )
