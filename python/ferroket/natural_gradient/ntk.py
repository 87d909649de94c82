"""The neural tangent kernel: the Gram matrix of the log-derivatives of all samples."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

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
