"""Chains of models whose amplitude ratios are known: all their moves are one call on each device."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
import numpy as np

from ferroket._compat.sharding import on_each_device
from ferroket.ansatz import Ansatz
from ferroket.ansatz.amplitudes import first_and_step
from ferroket.ansatz.determinants import with_primitives
from ferroket.ffi import metropolis_chains
from ferroket.operator import compiled


def samples(
    sampler: Any, ansatz: Ansatz, model: Any, parameters: Any, state: Any, key: jax.Array, length: int
) -> tuple[jax.Array, jax.Array]:
    """The samples of a sampler whose rule is one of the kernels, and how many moves of each chain were accepted.

    Args:
        sampler: The sampler, on sites with two local states.
        ansatz: That of the model.
        model: The model.
        parameters: Its variables.
        state: The sampler's state, with configurations ``(C, N)``.
        key: What the random numbers depend on.
        length: L, how many samples each chain gives.

    Returns:
        Samples ``(C, L, N)`` and integers ``(C,)``.
    """
    rule, dtype = sampler.rule, state.σ.dtype
    parts = jnp.result_type(dtype, *jax.tree.leaves(parameters))
    first, step = first_and_step(compiled.local_states(sampler.hilbert), parts)
    amplitudes = ansatz.amplitudes(model, parameters, first, step).log_modulus().for_kernels()
    static: dict[str, Any] = {
        "rule": rule.name,
        "sweep": sampler.sweep_size,
        **dict(rule.attributes),
        **amplitudes.attributes(),
    }
    run = functools.partial(_run, amplitudes=amplitudes.kernel, length=length, **static)
    result: tuple[jax.Array, jax.Array] = on_each_device(run, (True, True, *(False,) * 6), (False, False))(
        state.σ,
        jnp.arange(len(state.σ), dtype=np.uint32),
        key,
        jnp.asarray(sampler.machine_pow, float),
        rule.tables(sampler.hilbert.size),
        tuple(amplitudes.arrays()),
        first.astype(dtype),
        step.astype(dtype),
    )
    return result


def log_probabilities(sampler: Any, model: Any, parameters: Any, x: jax.Array) -> jax.Array:
    """The logarithms of |ψ|^p of configurations ``(C, L, N)``, by the model itself."""
    log_psi = with_primitives(model.apply)

    def local(parameters: Any, power: jax.Array, x: jax.Array) -> jax.Array:
        apply = nkjax.apply_chunked(log_psi, in_axes=(None, 0), chunk_size=sampler.chunk_size, axis_0_is_sharded=False)
        flat: jax.Array = power * apply(parameters, x.reshape(-1, x.shape[-1])).real
        return flat.reshape(x.shape[:-1])

    result: jax.Array = on_each_device(local, (False, False, True))(
        parameters, jnp.asarray(sampler.machine_pow, float), x
    )
    return result


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
