"""The neural tangent kernel: the Gram matrix of the log-derivatives of all samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ferroket._compat.sharding import on_each_device
from ferroket.natural_gradient.cholesky import solve_positive
from ferroket.natural_gradient.gram import dtype_of, gram, reason_to_form, solve_gram
from ferroket.natural_gradient.in_chunks import Derivatives, DerivativesInChunks
from ferroket.natural_gradient.log_derivatives import LogDerivatives, components, log_derivatives
from ferroket.natural_gradient.memory import chunk_of, log_derivatives_of_sample
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
    bytes_of_matrix: Callable[[LogDerivatives], int] | None = None,
) -> Derivatives:
    """The log-derivatives for samples ``(Ns, N)``, on each device for those that it holds.

    Where they would take more than :mod:`~ferroket.natural_gradient.memory` allows they are made in chunks.

    Args:
        log_psi: ``log_psi({"params": parameters, **state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        state: Other collections of variables.
        samples: Sharded along their first axis.
        mode: ``real`` for the real part of ln ψ, ``complex`` for both.
        chunk_size: How many samples a device differentiates at once; by default as many as
            :data:`~ferroket.natural_gradient.log_derivatives.MEMORY` has room for.
        is_holomorphic: False for two rows of a sample where one complex row would do.
        bytes_of_matrix: From the log-derivatives of a sample, as shapes, to the bytes of the matrix that is made of
            those of all samples, on each device.
    """
    sample = jax.ShapeDtypeStruct((1, *samples.shape[1:]), samples.dtype)
    of_sample = log_derivatives_of_sample(log_psi, parameters, state, sample, mode, is_holomorphic)
    at_once = chunk_of(of_sample, len(samples), 0 if bytes_of_matrix is None else bytes_of_matrix(of_sample))
    if at_once is not None:
        network = read(log_psi, parameters, state, samples[0], is_holomorphic)
        return DerivativesInChunks(
            parameters,
            state,
            samples,
            log_psi,
            mode,
            min(at_once, chunk_size or at_once),
            is_holomorphic is False,
            network,
            components(network, mode)[1],
        )

    def local(parameters: Any, state: Any, samples: jax.Array) -> LogDerivatives:
        network = read(log_psi, parameters, state, samples[0], is_holomorphic)
        return log_derivatives(network, mode, chunk_size, jax.tree.leaves(parameters), state, samples)

    made: LogDerivatives = on_each_device(local, (False, False, True))(parameters, state, samples)
    return made


def sharded(rows: Derivatives) -> Any:
    """Which of their arrays are."""
    return rows.sharded if isinstance(rows, DerivativesInChunks) else True


def ntk(rows: Derivatives) -> jax.Array:
    """The Gram matrix of all samples, without the means of its rows and columns, over the number of samples.

    Each device makes about half of the rows of its own samples, the others of which it gets from other devices. What
    they send to each other besides are factors, and rows of parameters that have none.

    Returns:
        ``(Ns, C, Ns, C)``, sharded along its first axis.
    """
    matrix = on_each_device(gram, (sharded(rows), False))(rows, rows)
    columns = matrix.mean(axis=0, keepdims=True)
    lines = matrix.mean(axis=2, keepdims=True)
    total = columns.mean(axis=2, keepdims=True)
    return ((matrix - columns - lines + total) / len(matrix)).astype(dtype_of(rows))


@partial(jax.tree_util.register_dataclass, data_fields=["rows", "diag_shift", "proj_reg"], meta_fields=[])
@dataclass(frozen=True)
class ShiftedKernel:
    """The neural tangent kernel with what regularises it: a linear operator, formed if someone asks for it."""

    rows: Derivatives
    diag_shift: Any
    """Added to the diagonal."""
    proj_reg: Any = None
    """Added to all elements, over the number of samples; None for nothing."""

    def to_dense(self) -> jax.Array:
        """``(N, N)`` for all rows of all samples, those of the first sample first."""
        matrix = ntk(self.rows)
        n_samples, n_components = matrix.shape[:2]
        side = n_samples * n_components
        return shifted(matrix.reshape(side, side), self.diag_shift, self.proj_reg, n_samples)

    def solve(self, right: jax.Array) -> jax.Array:
        """What it is multiplied with to get ``right (N,)``, without a part of it that changes no update.

        On CPUs it isn't formed then, unless :func:`~ferroket.natural_gradient.gram.reason_to_form` says why. What it
        doesn't return is the mean over the samples, which centred log-derivatives have no use for.

        Returns:
            ``(N,)``; NaN in all elements where it isn't positive definite in its precision.
        """
        if isinstance(self.rows, LogDerivatives):
            return jax.lax.platform_dependent(self, right, cpu=ShiftedKernel._in_rust, default=ShiftedKernel._dense)
        return self._dense(right)

    def _dense(self, right: jax.Array) -> jax.Array:
        matrix = self.to_dense()
        dtype = jnp.result_type(matrix, right)
        return solve_positive(matrix.astype(dtype), right.astype(dtype))

    def _in_rust(self, right: jax.Array) -> jax.Array:
        assert isinstance(self.rows, LogDerivatives)
        n_samples = self.rows.n_samples
        if reason_to_form(self.rows, n_samples) is not None:
            return self._dense(right)
        # (P G P / Ns + λ) x = b. What is added to all elements changes the mean alone.
        solve = on_each_device(solve_gram, (True, False, False, False))
        of_samples = n_samples * right.reshape(n_samples, -1)
        solution: jax.Array = solve(self.rows, self.rows, of_samples, n_samples * self.diag_shift)
        return solution.reshape(right.shape)


def shifted(matrix: jax.Array, diag_shift: Any, proj_reg: Any, n_samples: int) -> jax.Array:
    """A matrix with a shift, or one for each row, on its diagonal, and one over the number of samples everywhere."""
    matrix = matrix + diag_shift * jnp.eye(len(matrix), dtype=matrix.dtype)
    return matrix if proj_reg is None else matrix + proj_reg / n_samples


def dot(rows: Derivatives, vector: Sequence[jax.Array]) -> jax.Array:
    """O·v for a vector of parameters, ``(Ns, C)``, sharded as the samples are."""
    result: jax.Array = on_each_device(type(rows).dot, (sharded(rows), False))(rows, vector)
    return result


def adjoint_dot(rows: Derivatives, weights: jax.Array) -> list[jax.Array]:
    """O†·w for weights ``(Ns, C)`` of all samples."""
    on_each = on_each_device(type(rows).adjoint_dot, (sharded(rows), True), sums=jax.lax.psum)
    result: list[jax.Array] = on_each(rows, weights)
    return result
