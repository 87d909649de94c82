"""``fk.sampler.MetropolisSampler``: NetKet's with chains in Rust, and the constructors with NetKet's rules."""

from typing import Any

import jax
import netket as nk
import numpy as np
from netket.sampler import MetropolisSamplerState
from netket.sampler.rules import FermionHopRule, LocalRule

from ferroket._compat.signatures import with_arguments_of
from ferroket.ansatz.determinants import WithPrimitives
from ferroket.operator import accelerate
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.constraints.hilbert import user_constraints
from ferroket.sampler import chains
from ferroket.sampler.rules import SiteExchangeRule
from ferroket.sampler.transition_rules import leaves_constraint


@with_arguments_of(nk.sampler.MetropolisSampler)
class MetropolisSampler(nk.sampler.MetropolisSampler):
    """NetKet's sampler, whose chains run in Rust where :func:`ferroket.sampler.explain` says so.

    There all moves of a chain are one call on each device, and no network is evaluated but for the log probabilities.
    The random numbers of a chain are a counter-based stream (ChaCha8, D. J. Bernstein 2008) of which JAX's key and the
    number of the chain are the key: samples are the same to the bit for any number of threads, devices and ranks.

    Args:
        hilbert: The Hilbert space to sample.
        rule: The rule that proposes moves, one of :mod:`netket.sampler.rules` or :mod:`ferroket.sampler.rules`.
        kwargs: Those of :class:`netket.sampler.MetropolisSampler`: ``n_chains``, ``n_chains_per_rank``, ``sweep_size``,
            ``reset_chains``, ``chunk_size``, ``machine_pow``, ``dtype``.

    Raises:
        TypeError: The rule is none of NetKet's; the Hilbert space has a constraint that JAX can't trace.
        ValueError: ``sweep_size`` isn't positive; a site of a cluster doesn't exist; the rule leads out of the
            constraint of the Hilbert space; and whatever NetKet raises.
    """

    def __init__(self, hilbert: Any, rule: Any, **kwargs: Any) -> None:
        super().__init__(hilbert, rule, **kwargs)
        if self.sweep_size < 1:
            raise ValueError(
                f"sweep_size is {self.sweep_size}: propose at least 1 move between samples, or None for one per site"
            )
        clusters = getattr(rule, "clusters", None)
        if clusters is not None and not isinstance(clusters, jax.core.Tracer):
            _check_clusters(np.asarray(clusters), hilbert.size)
        user_constraints(hilbert)  # raises the error if there is one that can't be kept
        reason = leaves_constraint(rule, hilbert)
        if reason is not None:
            raise ValueError(reason)

    def _reset(self, machine: Any, parameters: Any, state: MetropolisSamplerState) -> MetropolisSamplerState:
        # NetKet's evaluates the network at all chains.
        return super()._reset(WithPrimitives(machine), parameters, state)

    def _sample_chain(
        self,
        machine: Any,
        parameters: Any,
        state: MetropolisSamplerState,
        chain_length: int,
        return_log_probabilities: bool = False,
    ) -> tuple[Any, MetropolisSamplerState]:
        def netkets(sampler: Any, *args: Any) -> Any:
            return super()._sample_chain(*args)

        return chains.sample_chain(netkets, self, machine, parameters, state, chain_length, return_log_probabilities)

    def _sample_next(
        self, machine: Any, parameters: Any, state: MetropolisSamplerState
    ) -> tuple[MetropolisSamplerState, Any]:
        def netkets(sampler: Any, *args: Any) -> Any:
            return super()._sample_next(*args)

        return chains.sample_next(netkets, self, machine, parameters, state)


@with_arguments_of(MetropolisSampler)
def MetropolisLocal(hilbert: Any, **kwargs: Any) -> MetropolisSampler:
    """Flips one site: as :func:`netket.sampler.MetropolisLocal`, in Rust where possible.

    Args:
        hilbert: The Hilbert space to sample, without a fixed sum of its sites.
        kwargs: Those of :class:`MetropolisSampler`.
    """
    return MetropolisSampler(hilbert, LocalRule(), **kwargs)


@with_arguments_of(MetropolisSampler)
def MetropolisExchange(
    hilbert: Any, *, clusters: Any = None, graph: Any = None, d_max: int = 1, probabilities: Any = None, **kwargs: Any
) -> MetropolisSampler:
    """Exchanges two sites that differ: as :func:`netket.sampler.MetropolisExchange`, in Rust where possible.

    Args:
        hilbert: The Hilbert space to sample.
        clusters: The pairs of sites that may be exchanged, ``(E, 2)``.
        graph: Or the graph whose sites may be exchanged if their distance is ``d_max`` at most.
        d_max: That distance.
        probabilities: How likely each cluster, or each distance, is compared with others; all alike by default.
        kwargs: Those of :class:`MetropolisSampler`.
    """
    of_rule = {"clusters": clusters, "graph": graph, "d_max": d_max}
    if probabilities is not None:  # NetKet has them since 3.22
        of_rule["probabilities"] = probabilities
    # NetKet's warns of what exchanges of fermions may mean.
    return MetropolisSampler(hilbert, nk.sampler.MetropolisExchange(hilbert, **of_rule).rule, **kwargs)


@with_arguments_of(MetropolisSampler)
def MetropolisFermionHop(
    hilbert: Any,
    *,
    clusters: Any = None,
    graph: Any = None,
    d_max: int = 1,
    spin_symmetric: bool = True,
    dtype: Any = np.int8,
    **kwargs: Any,
) -> MetropolisSampler:
    """Moves a fermion to an empty orbital: as :func:`netket.sampler.MetropolisFermionHop`, in Rust where possible.

    Args:
        hilbert: The :class:`~netket.hilbert.SpinOrbitalFermions` to sample.
        clusters: The pairs of orbitals between which fermions hop, ``(E, 2)``.
        graph: Or the graph whose orbitals they hop between if their distance is ``d_max`` at most.
        d_max: That distance.
        spin_symmetric: Whether clusters or graph are those of one spin, and meant for all.
        dtype: The dtype of the samples.
        kwargs: Those of :class:`MetropolisSampler`.
    """
    rule = FermionHopRule(hilbert, clusters=clusters, graph=graph, d_max=d_max, spin_symmetric=spin_symmetric)
    return MetropolisSampler(hilbert, rule, dtype=dtype, **kwargs)


@with_arguments_of(MetropolisSampler)
def MetropolisSiteExchange(
    hilbert: Any,
    *,
    clusters: Any = None,
    graph: Any = None,
    d_max: int = 1,
    exchange: float = 0.5,
    dtype: Any = np.int8,
    **kwargs: Any,
) -> MetropolisSampler:
    """Exchanges two sites with all their fermions, or moves one fermion: spin exchanges beside hops.

    Args:
        hilbert: The :class:`~netket.hilbert.SpinOrbitalFermions` to sample.
        clusters: The pairs of sites, ``(E, 2)``.
        graph: Or the graph whose nodes are the sites: pairs are those whose distance is ``d_max`` at most.
        d_max: That distance.
        exchange: The probability that a move exchanges two sites: 1 is enough where no site is doubly occupied.
        dtype: The dtype of the samples.
        kwargs: Those of :class:`MetropolisSampler`.
    """
    rule = SiteExchangeRule(hilbert, clusters=clusters, graph=graph, d_max=d_max, exchange=exchange)
    return MetropolisSampler(hilbert, rule, dtype=dtype, **kwargs)


@with_arguments_of(MetropolisSampler)
def MetropolisHamiltonian(hilbert: Any, hamiltonian: Any, **kwargs: Any) -> MetropolisSampler:
    """Goes to a connected configuration: as :func:`netket.sampler.MetropolisHamiltonian`, in Rust where possible.

    Args:
        hilbert: The Hilbert space to sample.
        hamiltonian: The operator whose connected configurations are proposed, NetKet's or ours. NetKet's are
            accelerated if they can be.
        kwargs: Those of :class:`MetropolisSampler`.
    """
    try:
        accelerated = accelerate(hamiltonian)
    except TypeError:
        accelerated = hamiltonian
    operator = accelerated if isinstance(accelerated, Accelerated) else hamiltonian
    return MetropolisSampler(hilbert, nk.sampler.rules.HamiltonianRule(operator), **kwargs)


def _check_clusters(clusters: np.ndarray, n_sites: int) -> None:
    outside = np.argwhere((clusters < 0) | (clusters >= n_sites))
    if outside.size:
        raise ValueError(
            f"cluster {outside[0, 0]} is {tuple(clusters[outside[0, 0]].tolist())}, but there are {n_sites} sites, "
            "counted from 0"
        )
