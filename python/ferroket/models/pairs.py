"""Sums over pairs of sites."""

import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def sum_over_pairs(x: jax.Array, weights: jax.Array) -> jax.Array:
    """``Σ_{i>j} W_ij x_i x_j``.

    Stochastic reconfiguration knows it by its name in a network's program, and has its derivatives in closed form:
    :class:`ferroket.natural_gradient.pairs.Pairs`.

    Args:
        x: ``(..., N)``.
        weights: W, ``(N (N − 1)/2,)``, in the order of :func:`numpy.tril_indices`, as NetKet's Jastrow factor has it.

    Returns:
        The sums, ``(...)``.
    """
    first, second = np.tril_indices(x.shape[-1], k=-1)
    return jnp.matmul(x[..., first] * x[..., second], weights)
