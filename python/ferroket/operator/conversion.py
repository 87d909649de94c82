"""From NetKet's operators to ours."""

from collections.abc import Callable
from typing import Any

import netket as nk

from ferroket.operator.ising import Ising

# By exact type: a subclass may have changed the operator, and must not be replaced behind its author's back.
_ACCELERATED: dict[type, Callable[[Any], Any]] = {
    nk.operator.IsingJax: Ising.from_netket,
    nk.operator.IsingNumba: Ising.from_netket,
    Ising: lambda operator: operator,
}


def accelerate(operator: Any) -> Any:
    """The accelerated operator that equals a NetKet operator.

    Args:
        operator: An operator of NetKet, or one of ours, which is returned as it is.

    Returns:
        An operator with the same matrix elements, in the same order, of the same dtype.

    Raises:
        TypeError: If there is no accelerated version of exactly this class.
    """
    convert = _ACCELERATED.get(type(operator))
    if convert is None:
        cls = type(operator)
        supported = ", ".join(sorted({known.__name__ for known in _ACCELERATED}))
        raise TypeError(
            f"can't accelerate a {cls.__module__}.{cls.__qualname__}: there are accelerated versions of exactly these "
            f"classes: {supported}. The operator works as it is; build it from one of them to have it accelerated."
        )
    return convert(operator)
