"""NetKet's rules for proposing moves, as the kernels take them."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from netket.sampler.rules import ExchangeRule, FermionHopRule, LocalRule
from netket.sampler.rules.hamiltonian import HamiltonianRuleBase

from ferroket.ffi import Attribute
from ferroket.local_energy import enabling
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.sectors import Sector, sectors
from ferroket.operator.compiled import Terms


@functools.partial(jax.tree_util.register_dataclass, data_fields=("tables",), meta_fields=("name", "attributes"))
@dataclass(frozen=True)
class KernelRule:
    """A rule as the kernels take it.

    Args:
        name: What they call it.
        tables: Its numbers.
        attributes: Its static numbers, by name.
    """

    name: str
    tables: tuple[Any, ...] = ()
    attributes: tuple[tuple[str, Attribute], ...] = ()


def kernel_rule(rule: Any, hilbert: Any) -> KernelRule | str:
    """A rule of NetKet's as the kernels take it, or why they don't, as the end of a sentence.

    Only what keeps to the constraints of the Hilbert space is taken.
    """
    if not sectors(hilbert)[1]:
        return "the Hilbert space has a constraint of its own, which the kernels don't know"
    if type(rule) is LocalRule:
        return _constrained(hilbert) or KernelRule("local")
    if type(rule) in (ExchangeRule, FermionHopRule):
        weights = getattr(rule, "probabilities", None)  # NetKet has them since 3.22
        weights = jnp.zeros(0, float) if weights is None else weights
        clusters = jnp.asarray(rule.clusters, np.int32).reshape(-1, 2)
        return _not_conserved(rule.clusters, hilbert) or KernelRule("exchange", (clusters, weights))
    if isinstance(rule, HamiltonianRuleBase):
        return _hamiltonian(rule, hilbert)
    return f"there are kernels for the local, the exchange and the Hamiltonian rule, and this is {type(rule).__name__}"


def _hamiltonian(rule: Any, hilbert: Any) -> KernelRule | str:
    if rule.operator.hilbert != hilbert:
        return "the rule's operator acts on another Hilbert space"
    operator = rule.operator if isinstance(rule.operator, Accelerated) else enabling.accelerated(rule.operator)
    if operator is None:
        return f"{type(rule.operator).__name__} can't be accelerated"
    form = operator._form
    if not isinstance(form, Terms):
        return "the rule's operator is no sum of terms that lead from a configuration to one other each"
    # Without the kinds of sites, of which there is one.
    tables = tuple(map(jnp.asarray, form.with_weights().tables[1:]))
    return KernelRule("hamiltonian", tables, (("diagonal", form.diagonal),))


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
        return "the Hilbert space has a constraint that single changes of sites don't keep to"
    return None


def _not_conserved(clusters: Any, hilbert: Any) -> str | None:
    conserved, _ = sectors(hilbert)
    if all(len(sector.sites) == hilbert.size for sector in conserved):
        return None
    if isinstance(clusters, jax.core.Tracer):
        return "the clusters are traced, and the Hilbert space fixes sums of some sites"
    if _crossing(np.asarray(clusters), conserved, hilbert.size) is not None:
        return "there is a cluster of which the Hilbert space fixes the sum of one site alone"
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
