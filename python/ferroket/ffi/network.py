"""The primitive ``network``: networks as programs of operations, on CPUs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi.primitives import make_primitive, on_one_device


def network(inputs: jax.Array, words: Any, tables: jax.Array, n_results: int) -> jax.Array:
    """What a program makes of the numbers of configurations.

    Args:
        inputs: float32 or float64 ``(C, H)``. They may not be sharded, except by :func:`jax.shard_map`.
        words: the program, int32, as :mod:`ferroket.network.program` writes it.
        tables: its numbers, of the same dtype as the inputs.
        n_results: R, how many numbers it gives for each configuration.

    Returns:
        These, ``(C, R)``.
    """
    (values,) = network_p(inputs, jnp.asarray(words, np.int32), tables, n_results=n_results)
    return values


def _types(inputs: Any, *_: Any, n_results: int) -> list[Any]:
    return [on_one_device(inputs, (inputs.shape[0], n_results), inputs.dtype)]


network_p = make_primitive("network", _types, target="ferroket_network")
