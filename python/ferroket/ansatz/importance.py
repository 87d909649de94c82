"""Importance sampling: samples of another power of the amplitudes than |ψ|², and their weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import netket.jax as nkjax

from ferroket._compat.netket import sampled_by
from ferroket._compat.sharding import on_each_device
from ferroket.ansatz.determinants import with_primitives

_OF_PROBABILITIES = 2
"""The ``machine_pow`` of samples without weights."""


def power_of_samples(state: Any, machine_pow: float | None) -> float | None:
    """The power p of samples of ``|ψ|^p``, if they have weights or aren't the state's own; None if neither.

    Args:
        state: A variational state.
        machine_pow: p; None for that of the state's sampler.

    Raises:
        ValueError: p isn't positive, or is given for a state without samples.
    """
    if not hasattr(state, "sampler"):
        if machine_pow is not None:
            raise ValueError(
                f"machine_pow={machine_pow} is for samples, but {type(state).__name__} has none: leave it out"
            )
        return None
    own = state.sampler.machine_pow
    power = own if machine_pow is None else machine_pow
    if not power > 0:
        raise ValueError(f"machine_pow={power} must be positive: samples are drawn from |ψ|^machine_pow")
    return None if own == power == _OF_PROBABILITIES else power


@contextmanager
def samples_of_power(state: Any, power: float | None) -> Iterator[None]:
    """Has a state draw its samples from ``|ψ|^p``, as long as the context lasts.

    Its chains go on from where they are, and do so afterwards with the state's own sampler.

    Args:
        state: A variational state.
        power: p, of :func:`power_of_samples`; None for the state's samples as they are.
    """
    if power is None:
        yield
        return
    state.reset()
    try:
        with sampled_by(state, state.sampler.replace(machine_pow=power)):
            yield
    finally:
        state.reset()


@partial(jax.jit, static_argnames=("log_psi", "chunk_size"))
def weights_of_power(
    log_psi: Callable[..., Any], variables: Any, samples: jax.Array, power: Any, chunk_size: int | None
) -> jax.Array:
    """The weights ``|ψ|^(2−p)`` of samples of ``|ψ|^p``, with a sum of 1, ``(Ns,)``.

    Args:
        log_psi: ``log_psi(variables, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        variables: Those of the model.
        samples: ``(Ns, N)``, sharded along the first axis.
        power: p.
        chunk_size: How many samples a device evaluates at once.
    """

    def moduli(variables: Any, samples: jax.Array) -> jax.Array:
        def modulus(x: jax.Array) -> jax.Array:
            values: jax.Array = with_primitives(log_psi)(variables, x).real
            return values

        of_all: jax.Array = nkjax.apply_chunked(modulus, chunk_size=chunk_size, axis_0_is_sharded=False)(samples)
        return of_all

    return jax.nn.softmax((2 - power) * on_each_device(moduli, (False, True))(variables, samples))


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
