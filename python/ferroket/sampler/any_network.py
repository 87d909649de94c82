"""Chains around a network of which nothing is known: Rust does all but to evaluate it.

A loop of one program: the network on the configurations that the chains ask about, and one call that tells them the
answers, and lets them go on until they ask again. A move that leads nowhere is made without the network.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
import numpy as np

from ferroket._compat.sharding import on_each_device
from ferroket.ffi import Chains, chain_proposals
from ferroket.operator import compiled
from ferroket.operator.algebra.sectors import own_constraints
from ferroket.operator.compiled import Constraints, allowed

_NOWHERE = np.iinfo(np.uint16).max
"""A local index that no site has: the kernel says so."""


def samples(
    sampler: Any, machine: Any, parameters: Any, state: Any, numbers: jax.Array, key: jax.Array, length: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The samples of a sampler whose rule is one of the kernels.

    Args:
        sampler: The sampler.
        machine: The model.
        parameters: Its variables.
        state: The sampler's state, with configurations ``(C, N)``.
        numbers: The number of each chain, ``(C,)``, on which its random numbers depend.
        key: What the random numbers depend on.
        length: L, how many samples each chain gives.

    Returns:
        Samples ``(C, L, N)``; how many moves of each chain were accepted, ``(C,)``; and the logarithms of |ψ|^p of the
        samples, ``(C, L)``.
    """
    rule = sampler.rule
    sites = compiled.local_states(sampler.hilbert)
    kind = sites.kind if sites.kind.size else np.zeros(sites.n_sites, np.int32)
    first, step = (np.asarray(values)[kind].astype(state.σ.dtype) for values in (sites.starts, sites.steps))
    static = {"rule": rule.name, "sweep": sampler.sweep_size, **dict(rule.attributes)}
    constraints = own_constraints(sampler.hilbert)
    apply = nkjax.HashablePartial(_log_probabilities, machine.apply, sampler.chunk_size, constraints)
    run = functools.partial(_run, apply, length=length, kept=rule.kept, together=1, **static)
    result: tuple[jax.Array, jax.Array, jax.Array] = on_each_device(
        run, (True, True, True, *(False,) * 7), (False, False, False)
    )(
        state.σ,
        state.log_prob,
        numbers,
        key,
        parameters,
        jnp.asarray(sampler.machine_pow, float),
        rule.tables(sampler.hilbert.size),
        jnp.asarray(first),
        jnp.asarray(step),
        jnp.asarray(sites.sizes_of_sites, np.uint16),
    )
    return result


def _log_probabilities(
    apply: Callable[..., Any],
    chunk_size: int | None,
    constraints: Constraints,
    variables: Any,
    power: jax.Array,
    x: jax.Array,
    inside: jax.Array,
) -> jax.Array:
    """The logarithms of |ψ|^p of configurations ``(n, N)``, on one device.

    The network sees `inside`, a configuration of the Hilbert space, in the place of those that are none.
    """
    if constraints:
        is_inside = allowed(constraints, x)
        x = jnp.where(is_inside[:, None], x, inside)
    in_chunks = nkjax.apply_chunked(apply, in_axes=(None, 0), chunk_size=chunk_size, axis_0_is_sharded=False)
    result: jax.Array = power * in_chunks(variables, x).real
    return jnp.where(is_inside, result, -jnp.inf) if constraints else result


def _run(
    log_probabilities: Callable[..., jax.Array],
    x: jax.Array,
    log_prob: jax.Array,
    numbers: jax.Array,
    key: jax.Array,
    variables: Any,
    power: jax.Array,
    of_rule: tuple[jax.Array, ...],
    first: jax.Array,
    step: jax.Array,
    sizes: jax.Array,
    *,
    length: int,
    kept: int,
    together: int,
    **attributes: Any,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """As :func:`samples`, of the chains of one device."""
    dtype = jnp.float32 if jnp.finfo(log_prob.dtype).bits <= jnp.finfo(jnp.float32).bits else jnp.float64
    index = jnp.round((x - first) / jnp.where(step == 0, 1, step))  # a site with one local state has no step
    index = jnp.where((first + step * index == x) & (index >= 0) & (index < sizes), index, _NOWHERE)
    chains = Chains.starting(index, log_prob.astype(dtype), length, kept)

    def go_on(chains: Chains, answers: jax.Array) -> tuple[Chains, jax.Array, jax.Array]:
        return chain_proposals(chains, answers, numbers, key, sizes, of_rule, **attributes)

    def step_of_loop(carry: tuple[Chains, jax.Array, jax.Array]) -> tuple[Chains, jax.Array, jax.Array]:
        chains, proposals, _ = carry
        configurations = first + step * proposals.reshape(-1, proposals.shape[-1]).astype(first.dtype)
        answers = log_probabilities(variables, power, configurations, x[0]).astype(dtype)
        return go_on(chains, answers.reshape(proposals.shape[:-1]))

    start = go_on(chains, jnp.zeros((len(x), together), dtype))
    chains, _, _ = jax.lax.while_loop(lambda carry: carry[2] > 0, step_of_loop, start)
    values = first + step * chains.samples.astype(first.dtype)
    return values, chains.accepted, chains.log_probs.astype(log_prob.dtype)
