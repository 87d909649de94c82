"""The Jacobian of ln ψ in NetKet's layout, from the factors of the log-derivatives."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
from jax.flatten_util import ravel_pytree

from ferroket._compat.sharding import on_each_device
from ferroket.natural_gradient.log_derivatives import LogDerivatives
from ferroket.natural_gradient.ntk import log_derivatives_of


@partial(
    jax.jit,
    static_argnames=("apply_fun", "mode", "chunk_size", "center", "dense", "_sqrt_rescale", "_axis_0_is_sharded"),
)
def jacobian(
    apply_fun: Callable[..., Any],
    params: Any,
    samples: jax.Array,
    model_state: Any = None,
    *,
    mode: str,
    pdf: jax.Array | None = None,
    chunk_size: int | None = None,
    center: bool = False,
    dense: bool = False,
    _sqrt_rescale: bool = False,
    _axis_0_is_sharded: bool | None = None,
) -> Any:
    """What :func:`netket.jax.jacobian` gives, whose arguments these are, from the factors of the log-derivatives.

    Raises:
        ValueError: The samples aren't ``(Ns, N)``.
        NotImplementedError: The mode isn't ``real``, ``complex`` or ``holomorphic``.
        TypeError: ``mode="complex"``, and ln ψ is real.
    """
    if samples.ndim != 2:  # noqa: PLR2004
        raise ValueError(f"samples must be a 2D array, and their shape is {samples.shape}")
    if mode not in ("real", "complex", "holomorphic"):
        raise NotImplementedError(f"mode is 'real', 'complex', or 'holomorphic', and not {mode!r}")
    rows = log_derivatives_of(
        apply_fun,
        params,
        model_state or {},
        samples,
        mode="real" if mode == "real" else "complex",
        chunk_size=chunk_size,
        is_holomorphic=True if mode == "holomorphic" else None,
    )
    if mode == "complex" and not jnp.issubdtype(rows.network.dtype, jnp.complexfloating):
        raise TypeError("Cannot build the complex jacobian for a real-valued function.")
    tree = on_each_device(partial(jacobian_of, mode=mode, dense=dense), (True,))(rows)
    if pdf is None:
        if center:
            tree = jax.tree.map(lambda x: x - x.mean(axis=0, keepdims=True), tree)
        return jax.tree.map(lambda x: x / len(samples) ** 0.5, tree) if _sqrt_rescale else tree

    def weighted(x: jax.Array, weights: jax.Array) -> jax.Array:
        return x * jax.lax.broadcast_in_dim(weights, x.shape, (0,))

    if center:
        tree = jax.tree.map(lambda x: x - weighted(x, pdf).sum(axis=0), tree)
    return jax.tree.map(lambda x: weighted(x, jnp.sqrt(pdf)), tree) if _sqrt_rescale else tree


def jacobian_of(rows: LogDerivatives, mode: str, dense: bool) -> Any:
    """The rows as a pytree of parameters, or ``(Ns, …, Np)`` if dense, in NetKet's layout for a mode.

    ``real`` and ``complex`` have derivatives by real and imaginary parts, ``holomorphic`` by complex parameters;
    ``complex`` has an axis of two for the components of ln ψ behind that of the samples.
    """
    leaves = rows.dense()
    if mode == "complex" and rows.is_holomorphic:  # Im ln ψ is the real part of −i ln ψ
        leaves = [jnp.concatenate([leaf, -1j * leaf], axis=1) for leaf in leaves]
    elif mode == "complex" and rows.network.is_real:
        leaves = [jnp.concatenate([leaf, jnp.zeros_like(leaf)], axis=1) for leaf in leaves]
    tree = jax.tree.unflatten(rows.network.treedef, leaves)
    if mode != "holomorphic":
        tree, _ = nkjax.tree_to_real(jax.tree.map(jnp.conj, tree))
    if mode != "complex":
        tree = jax.tree.map(lambda x: x[:, 0], tree)
    if not dense:
        return tree
    flat = jax.vmap(lambda row: ravel_pytree(row)[0])
    return jax.vmap(flat)(tree) if mode == "complex" else flat(tree)
