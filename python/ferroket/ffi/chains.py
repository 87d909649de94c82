"""The primitive ``metropolis_chains``: Markov chains of configurations, on CPUs."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi.arguments import ChainArguments
from ferroket.ffi.family import Attribute
from ferroket.ffi.primitives import make_primitive, on_one_device

_KEY_WORDS = 8


def metropolis_chains(
    amplitudes: str,
    start: jax.Array,
    chains: jax.Array,
    key: jax.Array,
    power: jax.Array,
    *,
    length: int,
    of_rule: Sequence[jax.Array],
    of_amplitudes: Sequence[jax.Array],
    **attributes: Attribute,
) -> tuple[jax.Array, jax.Array]:
    """Samples of |ψ|^p by the rule of Metropolis and Hastings, on sites with two local states each.

    Args:
        amplitudes: What they are: there must be a handler that ends so.
        start: Where the chains start, local indices, ``(C, N)``. They may not be sharded, except by
            :func:`jax.shard_map`.
        chains: The numbers of the chains, uint32 ``(C,)``. A chain's samples depend on its own number and start, and
            on the other arguments, but not on what other chains there are.
        key: A key of :mod:`jax.random`, typed or not, on which the random numbers depend.
        power: p, a real scalar.
        length: L, how many samples each chain gives.
        of_rule: The numbers of the rule that proposes moves.
        of_amplitudes: Those of the amplitudes, all of float32 or float64.
        attributes: ``rule``, its name; ``sweep``, how many moves are proposed between samples; the rule's own.

    Returns:
        ``(samples, accepted)``: local indices, ``(C, L, N)`` of uint16, and how many moves of each chain were accepted,
        integers ``(C,)``.
    """
    common = ChainArguments(start.astype(np.uint16), chains.astype(np.uint32), key_words(key), power)
    args = (*common, *of_rule, *of_amplitudes)
    samples, accepted = metropolis_chains_p(*args, amplitudes=amplitudes, length=length, attributes=attributes)
    return samples, accepted


def key_words(key: jax.Array) -> jax.Array:
    """A key of :mod:`jax.random` as the handlers take it, uint32 ``(8,)``."""
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    words = key.astype(np.uint32).ravel()[:_KEY_WORDS]
    return jnp.pad(words, (0, _KEY_WORDS - words.size))


def _types(start: Any, *_: Any, length: int, **__: Any) -> list[Any]:
    chains, sites = start.shape
    accepted = on_one_device(start, (chains,), jax.dtypes.canonicalize_dtype(np.int64))
    return [on_one_device(start, (chains, length, sites), start.dtype), accepted]


metropolis_chains_p = make_primitive(
    "metropolis_chains", _types, target=lambda amplitudes, **_: f"ferroket_chains_{amplitudes}"
)
