"""The private names of NetKet that are used or replaced, each in one place.

Checked on NetKet 3.20.5 and 3.23.0.
"""

from typing import Any

import netket as nk
from netket.operator import DiscreteJaxOperator

# Operators


def range_of_local_states(hilbert: Any) -> Any:
    """The first local state and the step of a space whose sites are alike, as ``start`` and ``step``, or None.

    The public ``local_states`` is a list of all of them, which a Fock space without a bound doesn't end.
    """
    return getattr(hilbert, "_local_states", None)


def cutoff_of(operator: nk.operator.PauliStrings) -> float:
    """The weights up to which Pauli strings are left out, which isn't public, though that of fermions is."""
    return operator._cutoff


def order_of(operator: nk.operator.FermionOperator2nd) -> str | None:
    """In which order its terms are known to be; NetKet 3.20 has no such note."""
    return getattr(operator, "order", None)


def tables_of_conserving(operator: Any) -> dict[str, dict[Any, Any]]:
    """All that a fermionic operator that conserves particle numbers is, of which nothing is public."""
    return operator._operator_data


# These are public, but have moved.

ParticleNumberConserving: Any = nk.experimental.operator.ParticleNumberConservingFermioperator2nd
ParticleNumberAndSpinConserving: Any = nk.experimental.operator.ParticleNumberAndSpinConservingFermioperator2nd
FermiHubbard: Any = getattr(nk.operator, "FermiHubbardJax", None) or nk.experimental.operator.FermiHubbardJax

# From NetKet 3.22 on. Spin flips have no public name: they come out of nk.symmetry.
EMBEDDINGS: tuple[Any, ...] = (nk.operator.EmbedOperator,) if hasattr(nk.operator, "EmbedOperator") else ()
SPIN_FLIPS: tuple[Any, ...] = ()
try:
    from netket._src.operator.spin_flip import SpinFlipOperator
except ImportError:
    pass
else:
    SPIN_FLIPS = (SpinFlipOperator,)
SpinFlipBase: Any = next(iter(SPIN_FLIPS), DiscreteJaxOperator)
"""What our spin flips are instances of."""

# Our operators are instances of NetKet's, whose methods read and write these.

INHERITED: dict[Any, tuple[str, ...]] = {
    nk.operator.IsingJax: ("_hilbert", "_h", "_J", "_edges"),
    nk.operator.BoseHubbardJax: ("_hilbert", "_U", "_V", "_J", "_mu", "_edges", "_max_conn"),
    nk.operator.LocalOperatorJax: ("_hilbert", "_dtype", "_operators_dict", "_constant", "_mel_cutoff"),
    nk.operator.PauliStringsJax: ("_hilbert", "_dtype", "_operators", "_weights", "_cutoff"),
    nk.operator.FermionOperator2ndJax: ("_hilbert", "_dtype", "_operators", "_cutoff"),
}
"""The attributes of NetKet's that are the definitions of our operators."""

OVERRIDDEN: dict[Any, tuple[str, ...]] = {
    DiscreteJaxOperator: ("_op__matmul__", "_op__rmatmul__"),
    nk.operator.LocalOperatorJax: ("_setup", "_reset_caches", "_add_operator"),
    nk.operator.PauliStringsJax: ("_setup", "_reset_caches"),
    nk.operator.FermionOperator2ndJax: ("_setup", "_reset_caches"),
}
"""The methods of NetKet's that ours override, since NetKet's others call them."""
