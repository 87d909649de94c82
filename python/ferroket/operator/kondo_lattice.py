"""The Kondo lattice."""

from typing import Any

import numpy as np

from ferroket.operator.constraints.hilbert import occupation_limits
from ferroket.operator.fermion import hopping, spin_coupling
from ferroket.operator.validation import lattice_edges, one_for_each


def KondoLattice(hilbert: Any, graph: Any, t: Any = 1.0, J: Any = 1.0, dtype: Any = None) -> Any:
    r"""The Kondo lattice: fermions that hop, each site of which has a localised spin beside it.

    .. math::
        -\sum_{⟨ij⟩σ} (t_{ij} c^†_{iσ} c_{jσ} + t^*_{ij} c^†_{jσ} c_{iσ}) + \sum_i J_i \, \mathbf{s}_i · \mathbf{S}_i

    The orbitals 0 to L-1 are the sites that fermions hop between. Orbital L + i is the localised spin
    :math:`\mathbf{S}_i` of site i, which holds one fermion.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions` of spin ½ and 2 L orbitals with the constraint
            ``fk.hilbert.SiteOccupations(2 * L, minimum=[0] * L + [1] * L, maximum=[2] * L + [1] * L)``.
        graph: The graph with L nodes that fermions hop along, or the edges as pairs of sites ``(E, 2)``.
        t: The hopping amplitude, or one for each edge, real or complex.
        J: The Kondo coupling, or one for each site; an antiferromagnet has positive J.
        dtype: The dtype of the matrix elements; by default one that holds the amplitudes.

    Returns:
        A :class:`ferroket.operator.FermionOperator2nd`.

    Raises:
        TypeError: If the Hilbert space is another one.
        ValueError: If the number of orbitals is odd, or if one of the second half of them may hold another number of
            fermions than 1; if the graph doesn't fit the space; or if there are more or fewer amplitudes than edges, or
            couplings than sites.
    """
    limits = occupation_limits(hilbert)
    n_sites = len(limits) // 2
    if len(limits) % 2 or any(limit != (1, 1) for limit in limits[n_sites:]):
        raise ValueError(
            f"KondoLattice has a localised spin beside each site, in the second half of the orbitals, but these may "
            f"hold another number of fermions than 1 in {hilbert!r}: give it 2 * L orbitals and constraint="
            "fk.hilbert.SiteOccupations(2 * L, minimum=[0] * L + [1] * L, maximum=[2] * L + [1] * L)"
        )
    sites = np.arange(n_sites)
    couplings = one_for_each("J", J, n_sites, "sites", dtype)
    spins = spin_coupling(hilbert, np.stack([sites, sites + n_sites], axis=1), couplings, dtype)
    return hopping(hilbert, lattice_edges(graph, n_sites), t, dtype) + spins
