"""The t-J model."""

from typing import Any

import numpy as np

from ferroket.operator.constraints.hilbert import occupation_limits
from ferroket.operator.fermion import coulomb_inter, hopping, spin_coupling


def TJ(hilbert: Any, graph: Any, t: Any = 1.0, J: Any = 1.0, V: Any = None, dtype: Any = None) -> Any:
    r"""The t-J Hamiltonian on a space without double occupancy.

    .. math::
        P \Big[ -\sum_{⟨ij⟩σ} (t_{ij} c^†_{iσ} c_{jσ} + t^*_{ij} c^†_{jσ} c_{iσ})
        + \sum_{⟨ij⟩} J_{ij} \, \mathbf{S}_i · \mathbf{S}_j + \sum_{⟨ij⟩} V_{ij} n_i n_j \Big] P

    P is the projection on the space, which operators on it have by themselves.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions` of spin ½ with the constraint
            ``fk.hilbert.SiteOccupations(n_orbitals, maximum=1)``.
        graph: The graph whose nodes are the sites, or the edges as pairs of sites ``(E, 2)``. More couplings, such as
            hops to next-nearest neighbours, are further edges.
        t: The hopping amplitude, or one for each edge, real or complex.
        J: The spin coupling, or one for each edge; an antiferromagnet has positive J.
        V: The energy of two fermions on neighbouring sites, or one for each edge. By default it is -J/4, as where the
            model is the limit of the Hubbard model.
        dtype: The dtype of the matrix elements; by default one that holds the amplitudes.

    Returns:
        A :class:`ferroket.operator.FermionOperator2nd`.

    Raises:
        TypeError: If the Hilbert space is another one.
        ValueError: If the space allows double occupancy; if the graph doesn't fit the space; or if there are more or
            fewer amplitudes than edges.
    """
    hops = hopping(hilbert, graph, t, dtype)
    if any(most > 1 for _, most in occupation_limits(hilbert)):
        raise ValueError(
            f"TJ is a model without double occupancy, which {hilbert!r} allows: give the space "
            f"constraint=fk.hilbert.SiteOccupations({hilbert.n_orbitals}, maximum=1)"
        )
    density = -np.asarray(J) / 4 if V is None else V
    return hops + spin_coupling(hilbert, graph, J, dtype) + coulomb_inter(hilbert, graph, density, dtype)
