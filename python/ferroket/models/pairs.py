"""Sums over pairs of sites."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi.primitives import make_primitive, per_sample


def sum_over_pairs(x: jax.Array, weights: jax.Array) -> jax.Array:
    """``Σ_{i>j} W_ij x_i x_j``.

    It is a primitive of JAX: stochastic reconfiguration finds it in a network's program, and has its derivatives in
    closed form, :class:`ferroket.natural_gradient.pairs.PairDerivatives`.

    Args:
        x: ``(..., N)``.
        weights: W, ``(N (N − 1)/2,)``, in the order of :func:`numpy.tril_indices`, as NetKet's Jastrow factor has it.

    Returns:
        The sums, ``(...)``.
    """
    (sums,) = sum_over_pairs_p(jnp.asarray(x), jnp.asarray(weights))
    return sums


def _types(x: Any, weights: Any) -> list[Any]:
    n_pairs = x.shape[-1] * (x.shape[-1] - 1) // 2
    if weights.shape != (n_pairs,):
        raise TypeError(f"{x.shape[-1]} numbers have {n_pairs} pairs, but the weights have shape {weights.shape}")
    return [per_sample(x, (), jnp.promote_types(x.dtype, weights.dtype))]


def _definition(x: jax.Array, weights: jax.Array) -> list[jax.Array]:
    first, second = np.tril_indices(x.shape[-1], k=-1)
    dtype = jnp.promote_types(x.dtype, weights.dtype)
    return [jnp.matmul((x[..., first] * x[..., second]).astype(dtype), weights.astype(dtype))]


sum_over_pairs_p = make_primitive("sum_over_pairs", _types, reference=_definition, any_batch=True)
