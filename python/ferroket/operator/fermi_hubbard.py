"""The Fermi-Hubbard model."""

from typing import Any

import jax.numpy as jnp

from ferroket.operator.algebra.registry import register
from ferroket.operator.conserving_fermion import ParticleNumberAndSpinConservingFermioperator2nd
from ferroket.operator.fermion_operator import Term
from ferroket.operator.validation import lattice_edges, one_for_each


@register()
class FermiHubbard(ParticleNumberAndSpinConservingFermioperator2nd):
    r"""The Fermi-Hubbard Hamiltonian, :math:`-\sum_{⟨ij⟩σ} t_{ij} (c^†_{iσ} c_{jσ} + h.c.) + \sum_i U_i n_{i↑} n_{i↓}`.

    It takes the place of :class:`netket.operator.FermiHubbardJax`: the same constructor. Sums and products are
    :class:`ParticleNumberAndSpinConservingFermioperator2nd`.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions` of spin ½ with the number of fermions of each spin fixed.
        graph: The edges that fermions hop along: a graph with one node for each orbital.
        t: The hopping amplitude, or one for each edge in the order of ``graph.edges()``.
        U: The interaction of two fermions on a site, or one for each site.
        dtype: The dtype of the matrix elements.

    Raises:
        TypeError: If the Hilbert space is another one.
        ValueError: If the graph doesn't fit the space, if there are more or fewer amplitudes than edges or interactions
            than sites, or if one isn't finite or can't be held by ``dtype``.
    """

    def __init__(self, hilbert: Any, graph: Any, t: Any = 1.0, U: Any = 1.0, dtype: Any = None) -> None:
        self._check_space(hilbert)
        n_sites = hilbert.n_orbitals
        if hilbert.n_spin_subsectors != 2:  # noqa: PLR2004
            raise ValueError(f"FermiHubbard is a model of fermions of spin 1/2, and not of those of {hilbert!r}")
        edges = lattice_edges(graph, n_sites)
        hopping = one_for_each("t", t, len(edges), "edges", dtype)
        interaction = one_for_each("U", U, n_sites, "sites", dtype)
        if dtype is None:
            dtype = jnp.result_type(float, hopping.dtype, interaction.dtype)
        terms: list[Term] = []
        weights: list[Any] = []
        for (i, j), amplitude in zip(edges.tolist(), hopping.tolist(), strict=True):
            for spin in (0, n_sites):
                terms += [((i + spin, 1), (j + spin, 0)), ((j + spin, 1), (i + spin, 0))]
                weights += [-amplitude, -amplitude]
        for i, energy in enumerate(interaction.tolist()):
            terms.append(((i + n_sites, 1), (i + n_sites, 0), (i, 1), (i, 0)))
            weights.append(energy)
        super().__init__(hilbert, terms, weights, dtype=dtype)

    def copy(self, *, dtype: Any = None, cutoff: float | None = None) -> Any:
        """The same operator by its terms, maybe of another dtype, as a more general class."""
        new = ParticleNumberAndSpinConservingFermioperator2nd.from_netket(self)
        return new if dtype is None and cutoff is None else new.copy(dtype=dtype, cutoff=cutoff)

    def __iadd__(self, other: Any) -> Any:
        return self + other

    def to_normal_order(self) -> Any:
        """The same operator with its terms in normal order."""
        return self.copy().to_normal_order()

    def to_pair_order(self) -> Any:
        """The same operator with its terms in pair order."""
        return self.copy().to_pair_order()
