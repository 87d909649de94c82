"""Transition rules that NetKet lacks; they work in NetKet's own samplers, too."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from netket.graph import AbstractGraph
from netket.hilbert import SpinOrbitalFermions
from netket.sampler.rules import MetropolisRule
from netket.utils import struct

from ferroket.hilbert.site_occupations import limits_of
from ferroket.operator.validation import lattice_edges

__all__ = ["SiteExchangeRule"]


class SiteExchangeRule(MetropolisRule):
    """Exchanges two sites with all their fermions, or moves one fermion to another site.

    With probability ``exchange`` two sites of an edge exchange their occupations of all spins: a spin and another one,
    or a spin and a hole. Otherwise one fermion hops along an edge and keeps its spin. Of either kind, one of the moves
    that change the configuration and stay in the Hilbert space is proposed, all of them being equally likely; if there
    is none, the chain stays where it is.

    Exchanges alone sample t-J models, in which no site is doubly occupied. They keep the number of doubly occupied
    sites: with others, let fermions hop as well.

    Args:
        hilbert: The space, whose sites are orbitals with all their spins. Its :class:`ferroket.hilbert.SiteOccupations`
            are kept.
        clusters: The pairs of sites, ``(E, 2)``.
        graph: Or the graph whose nodes are the sites: pairs are those whose distance is ``d_max`` at most.
        d_max: That distance.
        exchange: The probability of an exchange, between 0 and 1.

    Raises:
        TypeError: If the space isn't a :class:`netket.hilbert.SpinOrbitalFermions`.
        ValueError: If there are neither clusters nor a graph, or both; if a site doesn't exist, or is a cluster with
            itself; or if ``exchange`` is no probability.
    """

    clusters: tuple[tuple[int, int], ...] = struct.field(pytree_node=False)
    n_orbitals: int = struct.field(pytree_node=False)
    n_spins: int = struct.field(pytree_node=False)
    exchange: float = struct.field(pytree_node=False)

    def __init__(
        self, hilbert: Any, *, clusters: Any = None, graph: Any = None, d_max: int = 1, exchange: float = 0.5
    ) -> None:
        if not isinstance(hilbert, SpinOrbitalFermions):
            raise TypeError(
                f"SiteExchangeRule moves fermions, which {hilbert!r} doesn't have: take nk.hilbert.SpinOrbitalFermions"
            )
        if not 0 <= exchange <= 1:
            raise ValueError(f"exchange is {exchange}, but must be a probability between 0 and 1")
        self.clusters = _pairs(hilbert.n_orbitals, clusters, graph, d_max)
        self.n_orbitals, self.n_spins = hilbert.n_orbitals, hilbert.n_spin_subsectors
        self.exchange = float(exchange)

    @property
    def hops(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The modes that each hop exchanges: one pair of them."""
        firsts = [spin * self.n_orbitals for spin in range(self.n_spins)]
        return tuple(((first + a, first + b),) for first in firsts for a, b in self.clusters)

    @property
    def exchanges(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The modes that each exchange of two sites exchanges: a pair for each spin."""
        firsts = [spin * self.n_orbitals for spin in range(self.n_spins)]
        return tuple(tuple((first + a, first + b) for first in firsts) for a, b in self.clusters)

    def transition(
        self, sampler: Any, machine: Any, parameters: Any, state: Any, key: jax.Array, x: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """A configuration for each chain, and how many moves there are here as against there, as a logarithm."""
        of_kind, of_move = jax.random.split(key)
        limits = np.array(limits_of(sampler.hilbert) or [(0, self.n_spins)] * self.n_orbitals)
        exchanges = jax.random.bernoulli(of_kind, self.exchange, (len(x), 1))
        # Hops of each spin along all edges, and then the exchanges.
        n_edges = len(self.clusters)
        kind = exchanges == (jnp.arange((self.n_spins + 1) * n_edges) >= self.n_spins * n_edges)
        here = kind & self._admitted(x, limits)
        chosen = jax.random.categorical(of_move, jnp.where(here, 0.0, -jnp.inf))
        spins = jnp.arange(self.n_spins)
        moved = exchanges | (spins == chosen[:, None] // n_edges)
        a, b = jnp.array(self.clusters, np.int32).reshape(-1, 2)[chosen % n_edges].T
        of_sites = x.reshape(len(x), self.n_spins, self.n_orbitals)
        rows = jnp.arange(len(x))
        at_a, at_b = of_sites[rows, :, a], of_sites[rows, :, b]
        proposed = of_sites.at[rows, :, a].set(jnp.where(moved, at_b, at_a))
        proposed = proposed.at[rows, :, b].set(jnp.where(moved, at_a, at_b)).reshape(x.shape)
        n_here = here.sum(axis=-1)
        n_there = (kind & self._admitted(proposed, limits)).sum(axis=-1)
        there_are = n_here > 0
        correction = jnp.log(jnp.maximum(n_here, 1)) - jnp.log(jnp.maximum(n_there, 1))
        return jnp.where(there_are[:, None], proposed, x), jnp.where(there_are, correction, -jnp.inf)

    def _admitted(self, x: jax.Array, limits: np.ndarray) -> jax.Array:
        """Which moves change the configurations and stay within the limits, ``(C, (n_spins + 1) * E)``."""
        of_sites = x.reshape(len(x), self.n_spins, self.n_orbitals).astype(np.int32)
        a, b = np.array(self.clusters, int).reshape(-1, 2).T
        gain = of_sites[:, :, b] - of_sites[:, :, a]  # of site a, if this spin is exchanged
        differs = (gain != 0).any(axis=1, keepdims=True)
        differs = jnp.concatenate([gain != 0, differs], axis=1)
        gain = jnp.concatenate([gain, gain.sum(axis=1, keepdims=True)], axis=1)
        total = of_sites.sum(axis=1)[:, None]
        for site, change in ((a, gain), (b, -gain)):
            after = total[:, :, site] + change
            differs &= (limits[site, 0] <= after) & (after <= limits[site, 1])
        return differs.reshape(len(x), -1)

    def __repr__(self) -> str:
        return f"SiteExchangeRule(# of clusters: {len(self.clusters)}, exchange={self.exchange})"


def _pairs(n_orbitals: int, clusters: Any, graph: Any, d_max: int) -> tuple[tuple[int, int], ...]:
    if (clusters is None) == (graph is None):
        raise ValueError("the rule needs the pairs of sites that are exchanged: give either clusters or a graph")
    if graph is not None:
        if not isinstance(graph, AbstractGraph):
            raise TypeError(f"graph is {graph!r}, but must be a netket.graph: give pairs of sites as clusters")
        lattice_edges(graph, n_orbitals)  # as many nodes as sites
        distances = np.asarray(graph.distances())
        pairs = np.argwhere((distances <= d_max) & (distances > 0))
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]
    else:
        pairs = lattice_edges(clusters, n_orbitals).astype(int)
    outside = np.flatnonzero(((pairs < 0) | (pairs >= n_orbitals)).any(axis=1) | (pairs[:, 0] == pairs[:, 1]))
    if outside.size:
        raise ValueError(
            f"cluster {outside[0]} is {tuple(pairs[outside[0]].tolist())}, but must be two of the {n_orbitals} sites, "
            "counted from 0"
        )
    if not len(pairs):
        raise ValueError("there are no pairs of sites to exchange: give a graph with edges, or clusters")
    return tuple((int(i), int(j)) for i, j in pairs)
