"""Spin operators on one site; see :mod:`netket.operator.spin`.

Each takes the Hilbert space, the number of the site, the dtype of the matrix elements, and the class of the operator.
"""

from typing import Any

from netket.operator import spin as _netkets

from ferroket.operator.local_operator import LocalOperator


def identity(hilbert: Any, dtype: Any = None, *, cls: Any = LocalOperator) -> Any:
    """The identity."""
    return _netkets.identity(hilbert, dtype, cls=cls)


def sigmax(hilbert: Any, site: int, dtype: Any = None, *, cls: Any = LocalOperator) -> Any:
    """σˣ on a site, or 2 Sˣ of a larger spin."""
    return _netkets.sigmax(hilbert, site, dtype, cls=cls)


def sigmay(hilbert: Any, site: int, dtype: Any = None, *, cls: Any = LocalOperator) -> Any:
    """σʸ on a site, or 2 Sʸ of a larger spin."""
    return _netkets.sigmay(hilbert, site, dtype, cls=cls)


def sigmaz(hilbert: Any, site: int, dtype: Any = None, *, cls: Any = LocalOperator) -> Any:
    """σᶻ on a site, or 2 Sᶻ of a larger spin."""
    return _netkets.sigmaz(hilbert, site, dtype, cls=cls)


def sigmam(hilbert: Any, site: int, dtype: Any = None, *, cls: Any = LocalOperator) -> Any:
    """The lowering operator of the spin on a site."""
    return _netkets.sigmam(hilbert, site, dtype, cls=cls)


def sigmap(hilbert: Any, site: int, dtype: Any = None, *, cls: Any = LocalOperator) -> Any:
    """The raising operator of the spin on a site."""
    return _netkets.sigmap(hilbert, site, dtype, cls=cls)
