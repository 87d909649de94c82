"""Batches of square matrices, as the primitives take them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_DTYPES = tuple(map(np.dtype, (np.float32, np.float64, np.complex64, np.complex128)))


def square_matrices(a: Any, what: str) -> jax.Array:
    """Matrices ``(..., n, n)`` as an array.

    Args:
        a: What may be some; integers become real numbers.
        what: What is asked of them, for errors.

    Raises:
        ValueError: The last two dimensions differ.
        TypeError: They aren't float32, float64, complex64 or complex128.
    """
    a = jnp.asarray(a)
    if jnp.issubdtype(a.dtype, jnp.integer) or a.dtype == np.bool_:
        a = a.astype(jnp.result_type(float))
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:  # noqa: PLR2004 - rows and columns
        raise ValueError(f"{what} are those of square matrices (..., n, n), but got an array of shape {a.shape}")
    if a.dtype not in _DTYPES:
        raise TypeError(f"{what} of {a.dtype} aren't computed: convert the matrices to float32, say")
    return a


def flattened(a: jax.Array) -> jax.Array:
    """Matrices ``(..., n, n)`` as ``(..., n n)``."""
    return a.reshape(*a.shape[:-2], a.shape[-1] ** 2)


def unflattened(x: jax.Array, n: int) -> jax.Array:
    """Matrices ``(..., n n)`` as ``(..., n, n)``."""
    return x.reshape(*x.shape[:-1], n, n)
