"""The primitive ``network``: networks as programs of operations, on CPUs."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi.primitives import make_primitive, on_one_device

INSTRUCTIONS = (
    *("add", "sub", "mul", "div", "max", "min", "lt", "le", "gt", "ge", "eq", "ne", "and", "or", "atan2"),
    *("neg", "abs", "sign", "signbit", "not", "is_finite", "square", "reciprocal", "sqrt", "rsqrt"),
    *("exp", "expm1", "log", "log1p", "tanh", "logistic", "softplus", "sin", "cos", "sinh", "cosh", "relu"),
    *("gelu", "silu", "log_cosh", "select", "elu", "selu", "rem", "quotient"),
)
"""What the kernels compute of single numbers; a truth value is 1 or 0. They have the same list, in the same order."""


def network(inputs: jax.Array, words: Any, tables: jax.Array, n_results: int) -> jax.Array:
    """What a program makes of the numbers of configurations.

    Args:
        inputs: ``(C, H)`` of float32 or float64; or complex ones, each of which is two numbers. They may not be
            sharded, except by :func:`jax.shard_map`.
        words: the program, int32, as :mod:`ferroket.network.program` writes it.
        tables: its numbers, of the same dtype as the inputs.
        n_results: R, how many numbers it gives for each configuration.

    Returns:
        These, ``(C, R)``.
    """
    (values,) = network_results(inputs, words, tables, (n_results,))
    return values


def network_results(inputs: jax.Array, words: Any, tables: jax.Array, widths: Sequence[int]) -> list[jax.Array]:
    """As :func:`network`, with the numbers of each configuration in several arrays, ``(C, width)``."""
    made: list[jax.Array] = network_p(inputs, jnp.asarray(words, np.int32), tables, widths=tuple(widths))
    return made


def _types(inputs: Any, *_: Any, widths: Sequence[int]) -> list[Any]:
    dtype = jnp.finfo(inputs.dtype).dtype
    return [on_one_device(inputs, (inputs.shape[0], width), dtype) for width in widths]


network_p = make_primitive("network", _types, target="ferroket_network")
