"""NetKet's transition rules, which propose moves, as the kernels take them."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from netket.sampler.rules import ExchangeRule, FermionHopRule, LocalRule

from ferroket._compat.netket import HamiltonianRule
from ferroket.ffi import Attribute, ExchangeArguments
from ferroket.operator.algebra.sectors import Sector, sectors
from ferroket.operator.cache import accelerated
from ferroket.operator.compiled import Matrices, Terms, local_states

OWN_CONSTRAINT = "the Hilbert space has a constraint of its own, which the kernels don't know"

MATRICES = "matrices"
"""The attribute of the Hamiltonian rule that says that its operator is a sum of matrices: around networks alone."""

_WORD = 32
"""How many clusters a word has bits for."""


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("arrays",), meta_fields=("name", "attributes", "kept")
)
@dataclass(frozen=True)
class KernelRule:
    """A rule as the kernels take it.

    Args:
        name: Its name in the kernels.
        arrays: Its arrays, see :meth:`tables`.
        attributes: Its static numbers, by name.
        kept: How many words it keeps of each chain.
    """

    name: str
    arrays: tuple[Any, ...] = ()
    attributes: tuple[tuple[str, Attribute], ...] = ()
    kept: int = 0

    def tables(self, n_sites: int) -> tuple[Any, ...]:
        """Its arguments, to be made where they are compiled: what the kernels look up comes to the arrays."""
        if self.name != "exchange":
            return self.arrays
        clusters, weights = self.arrays
        return _by_site(clusters, weights, n_sites)


def kernel_rule(rule: Any, hilbert: Any) -> KernelRule | str:
    """A rule of NetKet's as the kernels take it, or why they don't, as the end of a sentence.

    Only rules that keep to the sums that the Hilbert space fixes are taken.
    """
    if type(rule) is LocalRule:
        return _constrained(hilbert) or KernelRule("local")
    if type(rule) in (ExchangeRule, FermionHopRule):
        if len(local_states(hilbert).sizes) > 1:
            return "the sites that are exchanged may have different local states"
        weights = getattr(rule, "probabilities", None)  # NetKet has them since 3.22
        weights = jnp.zeros(0, float) if weights is None else weights
        clusters = jnp.asarray(rule.clusters, np.int32).reshape(-1, 2)
        kept = -(-len(clusters) // _WORD)
        return _not_conserved(rule.clusters, hilbert) or KernelRule("exchange", (clusters, weights), kept=kept)
    if isinstance(rule, HamiltonianRule):
        return _hamiltonian(rule, hilbert)
    return f"there are kernels for the local, the exchange and the Hamiltonian rule, and this is {type(rule).__name__}"


def _by_site(clusters: jax.Array, weights: jax.Array, n_sites: int) -> ExchangeArguments:
    """Clusters, with those of each site."""
    ends, others = clusters.T.ravel(), clusters[:, ::-1].T.ravel()
    number = jnp.tile(jnp.arange(len(clusters), dtype=np.int32), 2)
    order = jnp.argsort(ends, stable=True)
    first = jnp.searchsorted(ends[order], jnp.arange(n_sites + 1)).astype(np.int32).at[-1].set(len(ends))
    return ExchangeArguments(clusters, weights, first, jnp.stack([number, others], axis=1)[order])


def _hamiltonian(rule: Any, hilbert: Any) -> KernelRule | str:
    if not sectors(hilbert)[1]:
        return OWN_CONSTRAINT
    if rule.operator.hilbert != hilbert:
        return "the rule's operator acts on another Hilbert space"
    operator = accelerated(rule.operator)
    if operator is None:
        return f"{type(rule.operator).__name__} can't be accelerated"
    form = operator._form
    if not isinstance(form, Terms | Matrices):
        return "the rule's operator is neither a sum of non-branching terms nor of matrices on a few sites"
    arrays = tuple(map(jnp.asarray, form.with_weights().tables.of_rule()))
    return KernelRule("hamiltonian", arrays, (("diagonal", form.diagonal), (MATRICES, isinstance(form, Matrices))))


def leaves_constraint(rule: Any, hilbert: Any) -> str | None:
    """How a rule leads out of the conserved numbers of a Hilbert space, and the mend; None if it doesn't."""
    conserved, _ = sectors(hilbert)
    if not conserved:
        return None
    if type(rule) is LocalRule:
        return (
            f"MetropolisLocal changes one site, but {hilbert!r} fixes {_in_words(conserved[0])}, so that it would "
            "leave the space: take MetropolisExchange or MetropolisHamiltonian, or a space without the constraint"
        )
    if type(rule) in (ExchangeRule, FermionHopRule) and not isinstance(rule.clusters, jax.core.Tracer):
        crossing = _crossing(np.asarray(rule.clusters), conserved, hilbert.size)
        if crossing is not None:
            pair, sector = crossing
            return (
                f"the cluster {pair} is exchanged, but {hilbert!r} fixes {_in_words(sector)}, so that this would leave "
                "the space: take clusters within the sites whose sum is fixed"
            )
    return None


def _constrained(hilbert: Any) -> str | None:
    conserved, _ = sectors(hilbert)
    if conserved:
        return "the Hilbert space has a constraint that a change of one site breaks"
    return None


def _not_conserved(clusters: Any, hilbert: Any) -> str | None:
    conserved, _ = sectors(hilbert)
    if all(len(sector.sites) == hilbert.size for sector in conserved):
        return None
    if isinstance(clusters, jax.core.Tracer):
        return "the clusters are traced, and can't be compared with the sums of sites that the Hilbert space fixes"
    if _crossing(np.asarray(clusters), conserved, hilbert.size) is not None:
        return "a cluster has one site inside and one outside of a sum that the Hilbert space fixes"
    return None


def _crossing(clusters: np.ndarray, conserved: list[Sector], n_sites: int) -> tuple[tuple[int, ...], Sector] | None:
    """A cluster of which one site belongs to a sector and the other doesn't, if there is one."""
    for sector in conserved:
        belongs = np.isin(np.arange(n_sites), sector.sites)
        (crossing,) = np.nonzero(belongs[clusters[:, 0]] != belongs[clusters[:, 1]])
        if crossing.size:
            return tuple(int(site) for site in clusters[crossing[0]]), sector
    return None


def _in_words(sector: Sector) -> str:
    return f"the sum of the sites {sector.sites[0]} to {sector.sites[-1]} to {sector.value:g}"
