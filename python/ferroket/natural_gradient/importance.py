"""Updates from samples of another distribution than |ψ|²: importance sampling."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import netket.jax as nkjax

from ferroket._compat.netket import log_psi_of, sampled_by
from ferroket.ansatz.determinants import with_primitives


@contextmanager
def samples_of_power(state: Any, power: float) -> Iterator[jax.Array]:
    """Has a state draw its samples from ``|ψ|^p`` instead, and gives the weights ``|ψ|^(2−p)``, with a sum of 1.

    Its chains go on from where they are, and do so afterwards, for ``|ψ|²`` again.

    Args:
        state: A :class:`netket.vqs.MCState`.
        power: p, positive.

    Returns:
        Weights of its samples, ``(Ns,)``.
    """
    state.reset()
    try:
        with sampled_by(state, state.sampler.replace(machine_pow=power)):
            samples = state.samples.reshape(-1, state.hilbert.size)
        yield _weights(log_psi_of(state), state.variables, samples, power, chunk_size=state.chunk_size)
    finally:
        state.reset()


@partial(jax.jit, static_argnames=("log_psi", "chunk_size"))
def _weights(
    log_psi: Callable[..., Any], variables: Any, samples: jax.Array, power: Any, chunk_size: int | None
) -> jax.Array:
    def modulus(x: jax.Array) -> jax.Array:
        values: jax.Array = with_primitives(log_psi)(variables, x).real
        return values

    logs = (2 - power) * nkjax.apply_chunked(modulus, chunk_size=chunk_size, axis_0_is_sharded=True)(samples)
    return jax.nn.softmax(logs)


def weighted_statistics(local_values: jax.Array, weights: jax.Array) -> nk.stats.Stats:
    """The mean of local values ``(chains, length)`` with weights whose sum is 1, ``(Ns,)``.

    The error of a quotient of sums, propagated to first order: A. B. Owen, Monte Carlo theory, methods and examples,
    2013, 9.2. So are the correlation time and R̂ those of what is summed up.
    """
    weights = weights.reshape(local_values.shape)
    mean = (weights * local_values).sum()
    difference = local_values - mean
    statistics = nk.stats.statistics(mean + weights.size * weights * difference)
    return statistics.replace(variance=(weights * jnp.abs(difference) ** 2).sum())
