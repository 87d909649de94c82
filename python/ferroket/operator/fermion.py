"""Fermion operators of one orbital; see :mod:`netket.operator.fermion`.

Each takes the Hilbert space, the number of the orbital, its spin if there are spins, and the dtype of the matrix
elements.
"""

from typing import Any

from netket.operator import fermion as _netkets

from ferroket.operator.fermion_operator import FermionOperator2nd


def destroy(hilbert: Any, site: int, sz: int | None = None, cutoff: float = 1e-10, dtype: Any = None) -> Any:
    """The annihilation operator of an orbital, of the spin ``sz`` if there are spins."""
    return FermionOperator2nd.from_netket(_netkets.destroy(hilbert, site, sz, cutoff, dtype))


def create(hilbert: Any, site: int, sz: int | None = None, cutoff: float = 1e-10, dtype: Any = None) -> Any:
    """The creation operator of an orbital, of the spin ``sz`` if there are spins."""
    return FermionOperator2nd.from_netket(_netkets.create(hilbert, site, sz, cutoff, dtype))


def number(hilbert: Any, site: int, sz: int | None = None, cutoff: float = 1e-10, dtype: Any = None) -> Any:
    """The number of fermions in an orbital, of the spin ``sz`` if there are spins."""
    return FermionOperator2nd.from_netket(_netkets.number(hilbert, site, sz, cutoff, dtype))


def identity(hilbert: Any, cutoff: float = 1e-10, dtype: Any = None) -> Any:
    """The identity."""
    return FermionOperator2nd(hilbert, constant=1, dtype=dtype, cutoff=cutoff)


def zero(hilbert: Any, cutoff: float = 1e-10, dtype: Any = None) -> Any:
    """The operator that is zero."""
    return FermionOperator2nd(hilbert, constant=0, dtype=dtype, cutoff=cutoff)
