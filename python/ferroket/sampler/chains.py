"""Chains in Rust in the place of NetKet's: for which samplers and models, and how they are called."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import netket.jax as nkjax
import numpy as np
from netket.sampler import MetropolisSamplerState

from ferroket._compat.sharding import on_each_device
from ferroket.ansatz import Ansatz, registry
from ferroket.ansatz.amplitudes import first_and_step
from ferroket.ffi import metropolis_chains
from ferroket.operator import compiled
from ferroket.sampler.confined import confined
from ferroket.sampler.transition_rules import KernelRule, kernel_rule

_STATES = 2


@dataclass(frozen=True)
class Plan:
    """What runs instead of NetKet's sampler."""

    ansatz: Ansatz
    rule: KernelRule


def plan(sampler: Any, machine: Any, parameters: Any) -> Plan | list[str]:
    """What runs the chains of a sampler for a model, or why NetKet's own code does, as ends of sentences."""
    rule = kernel_rule(sampler.rule, sampler.hilbert)
    ansatz, reasons = registry.find(machine, parameters, sampler.hilbert.size)
    reasons = [*_of_hilbert(sampler.hilbert), *([rule] if isinstance(rule, str) else []), *reasons]
    if reasons or isinstance(rule, str) or ansatz is None:
        return reasons
    platform = jax.default_backend()
    if platform != "cpu":
        return [f"the chains run on CPUs, and this is {platform}"]
    return Plan(ansatz, rule)


@functools.lru_cache(maxsize=256)
def _of_hilbert(hilbert: Any) -> tuple[str, ...]:
    try:
        sizes = set(compiled.local_states(hilbert).sizes)
    except TypeError as error:
        return (str(error),)
    return () if sizes == {_STATES} else ("some sites don't have two local states",)


def sample_chain(
    netkets: Callable[..., Any],
    sampler: Any,
    machine: Any,
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
    found = plan(sampler, machine, parameters) if chain_length > 0 else []
    if isinstance(found, list):
        return netkets(confined(sampler), machine, parameters, state, chain_length, return_log_probabilities)
    expected = (sampler.n_batches, sampler.hilbert.size)
    if state.σ.shape != expected:
        raise ValueError(
            f"the sampler's state has configurations of shape {state.σ.shape}, but this sampler has {expected[0]} "
            f"chains on {expected[1]} sites: take the state that init_state or reset of this sampler returns"
        )
    sampler = sampler.replace(rule=found.rule)
    return _in_rust(sampler, found.ansatz, machine, parameters, state, chain_length, return_log_probabilities)


def sample_next(
    netkets: Callable[..., Any], sampler: Any, machine: Any, parameters: Any, state: MetropolisSamplerState
) -> tuple[MetropolisSamplerState, Any]:
    """As ``_sample_next`` of NetKet's sampler: as :func:`sample_chain`."""
    if isinstance(plan(sampler, machine, parameters), list):
        return netkets(confined(sampler), machine, parameters, state)
    samples, state = sample_chain(netkets, sampler, machine, parameters, state, 1)
    return state, (samples[:, 0], state.log_prob)


@functools.partial(jax.jit, static_argnums=(1, 2, 5, 6))
def _in_rust(
    sampler: Any,
    ansatz: Ansatz,
    machine: Any,
    parameters: Any,
    state: MetropolisSamplerState,
    chain_length: int,
    return_log_probabilities: bool,
) -> tuple[Any, MetropolisSamplerState]:
    rule: KernelRule = sampler.rule
    dtype = state.σ.dtype
    rng, key = jax.random.split(state.rng)
    parts = jnp.result_type(dtype, *jax.tree.leaves(parameters))
    first, step = first_and_step(compiled.local_states(sampler.hilbert), parts)
    amplitudes = ansatz.amplitudes(machine, parameters, first, step).log_modulus()
    first, step = first.astype(dtype), step.astype(dtype)
    static: dict[str, Any] = {"rule": rule.name, "sweep": sampler.sweep_size, **dict(rule.attributes)}
    run = functools.partial(_run, amplitudes=amplitudes.kernel, length=chain_length, **static)
    samples, accepted = on_each_device(run, (True, True, *(False,) * 6), (False, False))(
        state.σ,
        jnp.arange(len(state.σ), dtype=np.uint32),
        key,
        jnp.asarray(sampler.machine_pow, float),
        rule.arrays,
        tuple(amplitudes.arrays()),
        first,
        step,
    )
    apply = nkjax.apply_chunked(machine.apply, in_axes=(None, 0), chunk_size=sampler.chunk_size)

    def log_probabilities(x: jax.Array) -> jax.Array:
        flat = sampler.machine_pow * apply(parameters, x.reshape(-1, x.shape[-1])).real
        return flat.reshape(x.shape[:-1]).astype(state.log_prob.dtype)

    last = samples[:, -1]
    if return_log_probabilities:
        of_samples = log_probabilities(samples)
        result, log_prob = (samples, of_samples), of_samples[:, -1]
    else:
        result, log_prob = samples, log_probabilities(last)
    moves = sampler.n_batches * sampler.sweep_size * chain_length
    return result, state.replace(
        σ=last,
        log_prob=log_prob,
        rng=rng,
        n_accepted_proc=state.n_accepted_proc + accepted.astype(state.n_accepted_proc.dtype),
        n_steps_proc=state.n_steps_proc + moves,
    )


def _run(
    x: jax.Array,
    chains: jax.Array,
    key: jax.Array,
    power: jax.Array,
    of_rule: tuple[jax.Array, ...],
    of_amplitudes: tuple[jax.Array, ...],
    first: jax.Array,
    step: jax.Array,
    **options: Any,
) -> tuple[jax.Array, jax.Array]:
    """The samples ``(C, L, N)`` of the chains of one device, and how many moves of each were accepted."""
    # The kernel knows that there is no local index 2, and says so.
    start = jnp.where(x == first, 0, jnp.where(x == first + step, 1, 2))
    samples, accepted = metropolis_chains(
        start=start, chains=chains, key=key, power=power, of_rule=of_rule, of_amplitudes=of_amplitudes, **options
    )
    return first + step * samples.astype(first.dtype), accepted


def is_netkets(sampler: Any) -> bool:
    """Whether a sampler is NetKet's, and no subclass, which may do something else."""
    return type(sampler) is nk.sampler.MetropolisSampler
