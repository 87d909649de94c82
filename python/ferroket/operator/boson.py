"""Boson operators on one site; see :mod:`netket.operator.boson`.

Each takes the Hilbert space, the number of the site, the dtype of the matrix elements, and the class of the operator.
"""

from typing import Any

from netket.operator import boson as _netkets

from ferroket.operator.local_operator import LocalOperator
from ferroket.operator.spin import identity

__all__ = ["create", "destroy", "identity", "number", "proj"]


def destroy(hilbert: Any, site: int, dtype: Any = None, *, cls: Any = LocalOperator) -> Any:
    """The annihilation operator of a site."""
    return _netkets.destroy(hilbert, site, dtype, cls=cls)


def create(hilbert: Any, site: int, dtype: Any = float, *, cls: Any = LocalOperator) -> Any:
    """The creation operator of a site."""
    return _netkets.create(hilbert, site, dtype, cls=cls)


def number(hilbert: Any, site: int, dtype: Any = float, *, cls: Any = LocalOperator) -> Any:
    """The number of bosons on a site."""
    return _netkets.number(hilbert, site, dtype, cls=cls)


def proj(hilbert: Any, site: int, n: int, dtype: Any = float, *, cls: Any = LocalOperator) -> Any:
    """The projector on ``n`` bosons on a site."""
    return _netkets.proj(hilbert, site, n, dtype, cls=cls)
