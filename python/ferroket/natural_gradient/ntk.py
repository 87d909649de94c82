"""The neural tangent kernel: the Gram matrix of the log-derivatives of all samples."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from ferroket._compat.sharding import on_each_device
from ferroket.natural_gradient.gram import gram
from ferroket.natural_gradient.log_derivatives import LogDerivatives, log_derivatives
from ferroket.natural_gradient.structure import read


def log_derivatives_of(
    log_psi: Callable[..., Any],
    parameters: Any,
    state: Any,
    samples: jax.Array,
    *,
    mode: str,
    chunk_size: int | None = None,
    is_holomorphic: bool | None = None,
) -> LogDerivatives:
    """The log-derivatives for samples ``(Ns, N)``, on each device for those that it holds.

    Args:
        log_psi: ``log_psi({"params": parameters, **state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        state: Other collections of variables.
        samples: Sharded along their first axis.
        mode: ``real`` for the real part of ln ψ, ``complex`` for both.
        chunk_size: How many samples a device differentiates at once; by default as many as
            :data:`~ferroket.natural_gradient.log_derivatives.MEMORY` has room for.
        is_holomorphic: False for two rows of a sample where one complex row would do.
    """

    def local(parameters: Any, state: Any, samples: jax.Array) -> LogDerivatives:
        network = read(log_psi, parameters, state, samples[0], is_holomorphic)
        return log_derivatives(network, mode, chunk_size, jax.tree.leaves(parameters), state, samples)

    made: LogDerivatives = on_each_device(local, (False, False, True), varying=(True, False, False))(
        parameters, state, samples
    )
    return made


ROWS = 1 << 31
"""How many bytes the rows of parameters without factors may take where the caller has asked for small chunks."""


def bytes_of_rows(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: jax.Array, mode: str) -> int:
    """What the rows of parameters without factors take, those of all samples together.

    Args:
        log_psi: As for :func:`log_derivatives_of`, as are the others.
        parameters: A pytree.
        state: Other collections of variables.
        samples: ``(Ns, N)``, or its shape.
        mode: ``real`` or ``complex``.
    """
    sample = jax.ShapeDtypeStruct((1, *samples.shape[1:]), samples.dtype)
    leaves, treedef = jax.tree.flatten((parameters, state, sample))
    key = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    return int(samples.shape[0]) * _bytes_of_sample(log_psi, treedef, key, mode)


@lru_cache(maxsize=64)
def _bytes_of_sample(log_psi: Callable[..., Any], treedef: Any, key: tuple[Any, ...], mode: str) -> int:
    shapes = jax.tree.unflatten(treedef, [jax.ShapeDtypeStruct(*leaf) for leaf in key])

    def rows(parameters: Any, state: Any, samples: jax.Array) -> Any:
        network = read(log_psi, parameters, state, samples[0])
        return log_derivatives(network, mode, None, jax.tree.leaves(parameters), state, samples).rows

    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(rows, *shapes)))


def ntk(rows: LogDerivatives) -> jax.Array:
    """The Gram matrix of all samples, without the means of its rows and columns, over the number of samples.

    Each device makes about half of the rows of its own samples, the others of which it gets from other devices. What
    they send to each other besides are factors, and rows of parameters that have none.

    Returns:
        ``(Ns, C, Ns, C)``, sharded along its first axis.
    """
    matrix = on_each_device(gram, (True, False))(rows, rows)
    columns = matrix.mean(axis=0, keepdims=True)
    lines = matrix.mean(axis=2, keepdims=True)
    total = columns.mean(axis=2, keepdims=True)
    return (matrix - columns - lines + total) / len(matrix)


def dot(rows: LogDerivatives, vector: Sequence[jax.Array]) -> jax.Array:
    """O·v for a vector of parameters, ``(Ns, C)``, sharded as the samples are."""
    result: jax.Array = on_each_device(LogDerivatives.dot, (True, False))(rows, vector)
    return result


def adjoint_dot(rows: LogDerivatives, weights: jax.Array) -> list[jax.Array]:
    """O†·w for weights ``(Ns, C)`` of all samples."""
    result: list[jax.Array] = on_each_device(LogDerivatives.adjoint_dot, (True, True), sums=jax.lax.psum)(rows, weights)
    return result
