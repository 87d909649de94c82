"""Transition rules, which propose moves, as the kernels take them."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from netket.hilbert import SpinOrbitalFermions
from netket.sampler.rules import ExchangeRule, FermionHopRule, LocalRule

from ferroket._compat.netket import HamiltonianRule
from ferroket.ffi import Attribute, ExchangeArguments, SwapArguments
from ferroket.operator.cache import accelerated
from ferroket.operator.compiled import Matrices, Terms, local_states
from ferroket.operator.constraints.hilbert import (
    ConservedCharge,
    SiteLimit,
    conserved_charges,
    site_limits,
    user_constraints,
)
from ferroket.reasons import USER_CONSTRAINT, Reason, ReasonKind
from ferroket.sampler.rules import SiteExchangeRule

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


def kernel_rule(rule: Any, hilbert: Any) -> KernelRule | Reason:
    """A rule as the kernels take it, or why they don't, as the end of a sentence.

    Only rules that keep to the sums that the Hilbert space fixes are taken, and to the limits of its sites.
    """
    if type(rule) is SiteExchangeRule:
        return _swap(rule.hops, rule.exchanges, rule.exchange, hilbert)
    if type(rule) is LocalRule:
        return _constrained(hilbert) or KernelRule("local")
    if type(rule) in (ExchangeRule, FermionHopRule):
        return _exchange(rule, hilbert)
    if isinstance(rule, HamiltonianRule):
        return _hamiltonian(rule, hilbert)
    text = "there are kernels for the local, the exchange, the site exchange and the Hamiltonian rule, and this is "
    return Reason(f"{text}{type(rule).__name__}", ReasonKind.TRANSITION_RULE)


def _exchange(rule: Any, hilbert: Any) -> KernelRule | Reason:
    if len(local_states(hilbert).sizes) > 1:
        return Reason("the sites that are exchanged may have different local states", ReasonKind.LOCAL_STATES)
    weights = getattr(rule, "probabilities", None)  # NetKet has them since 3.22
    if site_limits(hilbert):
        return _within_limits(rule.clusters, weights, hilbert)
    weights = jnp.zeros(0, float) if weights is None else weights
    clusters = jnp.asarray(rule.clusters, np.int32).reshape(-1, 2)
    kept = -(-len(clusters) // _WORD)
    return _not_conserved(rule.clusters, hilbert) or KernelRule("exchange", (clusters, weights), kept=kept)


def _within_limits(clusters: Any, weights: Any, hilbert: Any) -> KernelRule | Reason:
    """Exchanges of clusters in a space whose sites have limits: those that lead out are never proposed."""
    if weights is not None:
        text = "clusters with probabilities are exchanged in a space that limits the occupations of its sites"
        return Reason(text, ReasonKind.TRANSITION_RULE)
    if isinstance(clusters, jax.core.Tracer):
        return Reason("the clusters are traced, and can't be compared with the limits of the sites", ReasonKind.TRACED)
    pairs = np.asarray(clusters).reshape(-1, 2)
    swaps = tuple(((a, b),) for a, b in pairs[pairs[:, 0] != pairs[:, 1]].tolist())
    return _not_conserved(clusters, hilbert) or _swap(swaps, (), 0.0, hilbert)


Swaps = tuple[tuple[tuple[int, int], ...], ...]
"""The pairs of modes that each swap exchanges."""


def _swap(first: Swaps, second: Swaps, probability: float, hilbert: Any) -> KernelRule:
    """Swaps of two kinds, the second of which is chosen with a probability."""
    arrays = tuple(map(jnp.asarray, _swap_tables(first + second, hilbert.size, site_limits(hilbert))))
    attributes = (("first_kind", len(first)), ("probability", float(probability)))
    return KernelRule("swap", arrays, attributes, kept=sum(-(-len(swaps) // _WORD) for swaps in (first, second)))


@functools.lru_cache(maxsize=16)
def _swap_tables(swaps: Swaps, n_sites: int, limits: tuple[SiteLimit, ...]) -> SwapArguments:
    group = np.full(n_sites, -1, np.int32)
    for number, limit in enumerate(limits):
        group[list(limit.modes)] = number
    depending: list[list[int]] = [[] for _ in range(n_sites)]
    for swap, pairs in enumerate(swaps):
        sites = {site for pair in pairs for site in pair}
        for number in {int(group[site]) for site in sites} - {-1}:
            sites.update(limits[number].modes)
        for site in sites:
            depending[site].append(swap)
    return SwapArguments(
        pairs=np.array([pair for pairs in swaps for pair in pairs], np.int32).reshape(-1, 2),
        first_pair=np.cumsum([0, *map(len, swaps)]).astype(np.int32),
        first=np.cumsum([0, *map(len, depending)]).astype(np.int32),
        of_site=np.array([swap for of_site in depending for swap in of_site], np.int32),
        group=group,
        limits=np.array([(limit.minimum, limit.maximum) for limit in limits], np.int32).reshape(-1, 2),
    )


def _by_site(clusters: jax.Array, weights: jax.Array, n_sites: int) -> ExchangeArguments:
    """Clusters, with those of each site."""
    ends, others = clusters.T.ravel(), clusters[:, ::-1].T.ravel()
    number = jnp.tile(jnp.arange(len(clusters), dtype=np.int32), 2)
    order = jnp.argsort(ends, stable=True)
    first = jnp.searchsorted(ends[order], jnp.arange(n_sites + 1)).astype(np.int32).at[-1].set(len(ends))
    return ExchangeArguments(clusters, weights, first, jnp.stack([number, others], axis=1)[order])


def _hamiltonian(rule: Any, hilbert: Any) -> KernelRule | Reason:
    if user_constraints(hilbert):
        return USER_CONSTRAINT
    if rule.operator.hilbert != hilbert:
        return Reason("the rule's operator acts on another Hilbert space", ReasonKind.HILBERT_SPACE)
    operator = accelerated(rule.operator)
    if operator is None:
        return Reason(f"{type(rule.operator).__name__} can't be accelerated", ReasonKind.OPERATOR)
    form = operator._form
    if not isinstance(form, Terms | Matrices):
        text = "the rule's operator is neither a sum of non-branching terms nor of matrices on a few sites"
        return Reason(text, ReasonKind.OPERATOR_FORM)
    arrays = tuple(map(jnp.asarray, form.with_weights().tables.of_rule()))
    return KernelRule("hamiltonian", arrays, (("diagonal", form.diagonal), (MATRICES, isinstance(form, Matrices))))


def leaves_constraint(rule: Any, hilbert: Any) -> str | None:
    """How a rule leads out of the conserved numbers of a Hilbert space, and the fix; None if it doesn't."""
    if type(rule) is SiteExchangeRule and (rule.n_orbitals, rule.n_spins) != _orbitals_and_spins(hilbert):
        return (
            f"the rule exchanges {rule.n_orbitals} sites with {rule.n_spins} spins, which aren't those of {hilbert!r}: "
            "make it with the sampler's Hilbert space"
        )
    conserved, _ = conserved_charges(hilbert)
    if not conserved:
        return None
    if type(rule) is LocalRule:
        return (
            f"MetropolisLocal changes one site, but {hilbert!r} fixes {_text_of(conserved[0])}, so that it would "
            "leave the space: take MetropolisExchange or MetropolisHamiltonian, or a space without the constraint"
        )
    if type(rule) in (ExchangeRule, FermionHopRule) and not isinstance(rule.clusters, jax.core.Tracer):
        crossing = _crossing(np.asarray(rule.clusters), conserved, hilbert.size)
        if crossing is not None:
            pair, charge = crossing
            return (
                f"the cluster {pair} is exchanged, but {hilbert!r} fixes {_text_of(charge)}, so that this would leave "
                "the space: take clusters within the sites whose sum is fixed"
            )
    return None


def _orbitals_and_spins(hilbert: Any) -> tuple[int, int] | None:
    if not isinstance(hilbert, SpinOrbitalFermions):
        return None
    return hilbert.n_orbitals, hilbert.n_spin_subsectors


def _constrained(hilbert: Any) -> Reason | None:
    if conserved_charges(hilbert)[0] or site_limits(hilbert):
        text = "the Hilbert space has a constraint that a change of one site breaks"
        return Reason(text, ReasonKind.TRANSITION_RULE)
    return None


def _not_conserved(clusters: Any, hilbert: Any) -> Reason | None:
    conserved, _ = conserved_charges(hilbert)
    if all(len(charge.sites) == hilbert.size for charge in conserved):
        return None
    if isinstance(clusters, jax.core.Tracer):
        text = "the clusters are traced, and can't be compared with the sums of sites that the Hilbert space fixes"
        return Reason(text, ReasonKind.TRACED)
    if _crossing(np.asarray(clusters), conserved, hilbert.size) is not None:
        text = "a cluster has one site inside and one outside of a sum that the Hilbert space fixes"
        return Reason(text, ReasonKind.TRANSITION_RULE)
    return None


def _crossing(
    clusters: np.ndarray, conserved: list[ConservedCharge], n_sites: int
) -> tuple[tuple[int, ...], ConservedCharge] | None:
    """A cluster of which a conserved charge sums one site but not the other, if there is one."""
    for charge in conserved:
        belongs = np.isin(np.arange(n_sites), charge.sites)
        (crossing,) = np.nonzero(belongs[clusters[:, 0]] != belongs[clusters[:, 1]])
        if crossing.size:
            return tuple(int(site) for site in clusters[crossing[0]]), charge
    return None


def _text_of(charge: ConservedCharge) -> str:
    return f"the sum of the sites {charge.sites[0]} to {charge.sites[-1]} to {charge.value:g}"
