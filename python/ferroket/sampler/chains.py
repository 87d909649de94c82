"""Chains in Rust in the place of NetKet's: for which samplers and models, and how they are called."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import netket as nk
import numpy as np
from netket.sampler import MetropolisSamplerState

from ferroket.ansatz import Ansatz, registry
from ferroket.ansatz.verification import mixes_samples
from ferroket.network import Plan
from ferroket.operator import compiled
from ferroket.operator.constraints.hilbert import user_constraints
from ferroket.reasons import USER_CONSTRAINT, Reason, ReasonKind
from ferroket.sampler import any_network, known_model
from ferroket.sampler.constrained import constrained
from ferroket.sampler.groups import in_groups
from ferroket.sampler.lookahead import Search, search
from ferroket.sampler.transition_rules import MATRICES, kernel_rule

_STATES = 2


def plan(sampler: Any, model: Any, parameters: Any, chain_length: int = 1) -> Plan:
    """What runs the chains of a sampler for a model: Rust, or NetKet's own code."""
    netkets = functools.partial(Plan.netkets, "sampler")
    try:
        has_two_states, is_constrained = _of_hilbert(sampler.hilbert)
        rule = kernel_rule(sampler.rule, sampler.hilbert)
    except TypeError as error:  # of the Hilbert space
        return netkets(Reason(str(error), ReasonKind.HILBERT_SPACE))
    if isinstance(rule, Reason):
        return netkets(rule)
    if (platform := jax.default_backend()) != "cpu":
        return netkets(Reason(f"the chains run on CPUs, and this is {platform}", ReasonKind.PLATFORM))
    mixes = mixes_samples(any_network.subject_of(sampler, model), parameters)
    if mixes is not None:
        return netkets(mixes)
    known, reasons = registry.find(model, parameters, sampler.hilbert)
    if not has_two_states:
        reasons = [Reason("some sites don't have two local states", ReasonKind.LOCAL_STATES), *reasons]
    if dict(rule.attributes).get(MATRICES):
        text = "the rule's operator isn't a sum of non-branching terms"
        reasons = [Reason(text, ReasonKind.OPERATOR_FORM), *reasons]
    if is_constrained:
        reasons = [USER_CONSTRAINT, *reasons]
    if known is not None and not reasons:
        kernel = f"the {rule.name} rule, with amplitude ratios of {known.name}"
        return Plan("chains in Rust", kernel, known=known, moves=rule)
    structure = any_network.structure_of(sampler, model, parameters)
    reasons += filter(None, [structure.reason])
    kernel = f"the {rule.name} rule, and the network evaluated for each proposal"
    makes_all = structure.rest is not None and not is_constrained  # the kernels know no constraint of a user's own
    path = "chains in Rust" if makes_all else "chains in Rust around the network"
    at_once = 1 if makes_all else search_of(rule.name, sampler, model, chain_length).n_speculative
    return Plan(path, kernel, reasons, moves=rule, structure=structure, at_once=at_once)


@functools.lru_cache(maxsize=256)
def _of_hilbert(hilbert: Any) -> tuple[bool, bool]:
    """Whether each site has two local states, and whether there is a constraint of the user's own."""
    return set(compiled.local_states(hilbert).sizes) == {_STATES}, bool(user_constraints(hilbert))


def sample_chain(
    netkets: Callable[..., Any],
    sampler: Any,
    model: Any,
    parameters: Any,
    state: MetropolisSamplerState,
    chain_length: int,
    return_log_probabilities: bool = False,
) -> tuple[Any, MetropolisSamplerState]:
    """As ``_sample_chain`` of NetKet's sampler: in Rust if there are chains for it, and else by NetKet's own method.

    That is `netkets`, which takes the sampler first.

    Raises:
        ValueError: The state is that of another number of chains, or of another Hilbert space.
        jax.errors.JaxRuntimeError: The state holds something else than local states.
    """
    found = plan(sampler, model, parameters, chain_length) if chain_length > 0 else Plan.netkets("sampler")
    static = (chain_length, return_log_probabilities)
    if found.is_netkets:
        return netkets(constrained(sampler), model, parameters, state, *static)
    expected = (sampler.n_batches, sampler.hilbert.size)
    if state.σ.shape != expected:
        raise ValueError(
            f"the sampler's state has configurations of shape {state.σ.shape}, but this sampler has {expected[0]} "
            f"chains on {expected[1]} sites: take the state that init_state or reset of this sampler returns"
        )
    sampler = sampler.replace(rule=found.moves)
    if found.known is not None:
        return _known(sampler, found.known, model, parameters, state, *static)

    updates = found.structure.first_layer is not None
    if found.path == "chains in Rust":
        numbers = np.arange(len(state.σ), dtype=np.uint32)
        return _any(sampler, model, parameters, state, numbers, *static, 1, updates)

    def all_chains(n_speculative: int) -> tuple[Any, MetropolisSamplerState]:
        def run(state: MetropolisSamplerState, numbers: Any) -> tuple[Any, MetropolisSamplerState]:
            result: tuple[Any, MetropolisSamplerState] = _any(
                sampler, model, parameters, state, numbers, *static, n_speculative, updates
            )
            return result

        return in_groups(run, state, (sampler, parameters))

    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((sampler, parameters, state))):
        return all_chains(1)
    result: tuple[Any, MetropolisSamplerState] = search_of(found.moves.name, sampler, model, chain_length).run(
        all_chains
    )
    return result


def search_of(rule: str, sampler: Any, model: Any, chain_length: int) -> Search:
    """The search for the number of proposals of a chain that the network sees at once."""
    return search(rule, model, sampler.hilbert, sampler.n_batches, sampler.sweep_size, chain_length)


def sample_next(
    netkets: Callable[..., Any], sampler: Any, model: Any, parameters: Any, state: MetropolisSamplerState
) -> tuple[MetropolisSamplerState, Any]:
    """As ``_sample_next`` of NetKet's sampler: as :func:`sample_chain`."""
    if plan(sampler, model, parameters).is_netkets:
        return netkets(constrained(sampler), model, parameters, state)
    samples, state = sample_chain(netkets, sampler, model, parameters, state, 1)
    return state, (samples[:, 0], state.log_prob)


@functools.partial(jax.jit, static_argnums=(1, 2, 5, 6))
def _known(
    sampler: Any,
    ansatz: Ansatz,
    model: Any,
    parameters: Any,
    state: MetropolisSamplerState,
    chain_length: int,
    return_log_probabilities: bool,
) -> tuple[Any, MetropolisSamplerState]:
    rng, key = jax.random.split(state.rng)
    samples, accepted = known_model.samples(sampler, ansatz, model, parameters, state, key, chain_length)
    wanted = samples if return_log_probabilities else samples[:, -1:]
    log_probs = known_model.log_probabilities(sampler, model, parameters, wanted).astype(state.log_prob.dtype)
    state = _moved(sampler, state.replace(rng=rng), samples, accepted, log_probs)
    return (samples, log_probs) if return_log_probabilities else samples, state


@functools.partial(jax.jit, static_argnums=(1, 5, 6, 7, 8))
def _any(
    sampler: Any,
    model: Any,
    parameters: Any,
    state: MetropolisSamplerState,
    numbers: jax.Array,
    chain_length: int,
    return_log_probabilities: bool,
    n_speculative: int,
    updates: bool,
) -> tuple[Any, MetropolisSamplerState]:
    rng, key = jax.random.split(state.rng)
    n_log_probs = chain_length if return_log_probabilities else 1
    samples, accepted, log_probs = any_network.samples(
        sampler, model, parameters, state, numbers, key, chain_length, n_log_probs, n_speculative, updates
    )
    state = _moved(sampler, state.replace(rng=rng), samples, accepted, log_probs)
    return (samples, log_probs) if return_log_probabilities else samples, state


def _moved(
    sampler: Any, state: MetropolisSamplerState, samples: jax.Array, accepted: jax.Array, log_probs: jax.Array
) -> MetropolisSamplerState:
    """The state of chains that have given these samples."""
    moves = sampler.n_batches * sampler.sweep_size * samples.shape[1]
    moved: MetropolisSamplerState = state.replace(
        σ=samples[:, -1],
        log_prob=log_probs[:, -1],
        n_accepted_proc=state.n_accepted_proc + accepted.astype(state.n_accepted_proc.dtype),
        n_steps_proc=state.n_steps_proc + moves,
    )
    return moved


def is_netkets(sampler: Any) -> bool:
    """Whether a sampler is NetKet's, and no subclass, which may do something else."""
    return type(sampler) is nk.sampler.MetropolisSampler
