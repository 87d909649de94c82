"""The quantum geometric tensor as a matrix, from the factors of the log-derivatives."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
from jax.flatten_util import ravel_pytree

from ferroket import ffi
from ferroket._compat.sharding import on_each_device
from ferroket.natural_gradient.in_chunks import Derivatives, DerivativesInChunks
from ferroket.natural_gradient.jacobian import jacobian_of
from ferroket.natural_gradient.log_derivatives import LogDerivatives
from ferroket.natural_gradient.ntk import adjoint_dot, sharded
from ferroket.natural_gradient.tiles import length_in_rust

PART = 1 << 25
"""How many bytes the rows that are formed at once may take: enough samples for fast products."""


def layout_of(rows: Derivatives, mode: str) -> str:
    """The layout of a Jacobian (:func:`.jacobian.jacobian_of`) in which the tensor has the fewest elements."""
    if rows.is_holomorphic:
        return "holomorphic"
    is_real = rows.network.is_real or not jnp.issubdtype(rows.network.dtype, jnp.complexfloating)
    return "real" if is_real else mode


def _flat(tree: Any, layout: str) -> jax.Array:
    """Parameters in one array, real parts before imaginary ones unless the layout is ``holomorphic``."""
    tree = tree if layout == "holomorphic" else nkjax.tree_to_real(tree)[0]
    vector: jax.Array = ravel_pytree(tree)[0]
    return vector


def weighted_sum(rows: Derivatives, weights: jax.Array, layout: str) -> jax.Array:
    """``O† w`` for weights ``(Ns, C)`` of the components, ``(Np,)``."""
    leaves = adjoint_dot(rows, weights)
    return _flat(jax.tree.unflatten(rows.network.treedef, leaves), layout)


def dense_tensor(rows: Derivatives, mass: jax.Array, layout: str) -> jax.Array:
    """``S = Σ_s m_s (O_s − ⟨O⟩)† (O_s − ⟨O⟩)``, of which every device has the whole.

    The rows of a part of a device's samples are formed at once.

    Args:
        rows: Of all samples, sharded.
        mass: Weights ``(Ns,)`` whose sum is 1.
        layout: Of :func:`layout_of`.

    Returns:
        ``(Np, Np)``, complex for a holomorphic ln ψ.
    """
    mass = mass.astype(jnp.finfo(rows.network.dtype).dtype)
    vector = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in rows.network.leaves]
    n_components = jax.eval_shape(lambda: rows.part(0, 1).dot(vector)).shape[1]
    of_each = [mass[:, None] * (jnp.arange(n_components) == component) for component in range(n_components)]
    mean = jnp.stack([weighted_sum(rows, weights, layout).conj() for weights in of_each])
    on_each = on_each_device(partial(_of_device, layout=layout), (sharded(rows), True, False), sums=jax.lax.psum)
    result: jax.Array = on_each(rows, mass, mean)
    return result


def _of_device(rows: Derivatives, mass: jax.Array, mean: jax.Array, layout: str) -> jax.Array:
    n_samples, size = len(mass), mean.shape[-1]
    at_once = max(1, min(n_samples, PART // max(1, math.prod(mean.shape) * mean.dtype.itemsize)))
    if isinstance(rows, DerivativesInChunks):
        at_once = min(at_once, rows.chunk_size)

    def of_part(rows: LogDerivatives, mass: jax.Array) -> jax.Array:
        matrix = jacobian_of(rows, layout, True).reshape(len(mass), -1, size)
        matrix = (matrix - mean) * jnp.sqrt(mass)[:, None, None]
        return _gram(jax.lax.collapse(matrix, 0, 2).conj().T)

    def part(first: Any, count: int) -> tuple[LogDerivatives, jax.Array]:
        return rows.part(first, count), jax.lax.dynamic_slice_in_dim(mass, first, count)

    n_parts = n_samples // at_once
    total = of_part(*part(n_parts * at_once, n_samples - n_parts * at_once)) if n_samples % at_once else None
    if n_parts == 1:
        whole = of_part(*part(0, at_once))
        return whole if total is None else whole + total

    def add(total: jax.Array, first: jax.Array) -> tuple[jax.Array, None]:
        return total + of_part(*part(first, at_once)), None

    start = jnp.zeros((size, size), mean.dtype) if total is None else total
    return jax.lax.scan(add, start, at_once * jnp.arange(n_parts))[0]


def _gram(rows: jax.Array) -> jax.Array:
    """``B B†`` for ``(Np, n)``; Rust computes one triangle of it."""
    matrix: jax.Array = jax.lax.platform_dependent(rows, cpu=_in_rust, default=_by_xla)
    return matrix


def _in_rust(rows: jax.Array) -> jax.Array:
    shape, zero = (len(rows), 1, len(rows), 1), jnp.zeros((1, rows.shape[1]), rows.dtype)
    terms = [("rows", (rows[:, None], rows[:, None], zero))]
    return ffi.gram_tiles(terms, 0, shape, rows.dtype, length_in_rust(len(rows)))[:, 0, :, 0]


def _by_xla(rows: jax.Array) -> jax.Array:
    return rows @ rows.conj().T
