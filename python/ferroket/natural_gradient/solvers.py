"""Solvers of linear systems that several devices share, with the arguments of NetKet's."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
from jax.flatten_util import ravel_pytree
from netket.utils.api_utils import partial_from_kwargs

from ferroket._compat.sharding import replicated
from ferroket.natural_gradient.cholesky import solve_positive
from ferroket.natural_gradient.ntk import ShiftedKernel


@partial_from_kwargs
def cholesky(A: Any, b: Any, *, x0: Any = None) -> tuple[Any, None]:
    """Solves ``A x = b`` by a Cholesky factorisation that all devices share; on one device as NetKet's ``cholesky``.

    Each of R devices keeps ``1/R`` of the matrix, does ``1/R`` of the work, and sends about half as many numbers as the
    matrix has.

    Args:
        A: ``(N, N)``, Hermitian and positive definite, real or complex: an array, or a linear operator with
            ``to_dense()``. Sharded along its first axis, as NetKet has it, its rows stay where they are.
        b: A vector, or a pytree of as many numbers.
        x0: Not used.

    Returns:
        x like b, the same on all devices, and None. It is NaN in all elements where A isn't positive definite, which
        :func:`netket.optimizer.solver.nan_fallback` notices.
    """
    del x0
    right, unravel = ravel_pytree(b)
    if isinstance(A, ShiftedKernel):
        return unravel(_solved_by_kernel(A, right)), None
    return unravel(_solved(A if isinstance(A, jax.Array) else A.to_dense(), right)), None


@jax.jit
def _solved_by_kernel(kernel: ShiftedKernel, right: jax.Array) -> jax.Array:
    return replicated(kernel.solve(right))


@jax.jit
def _solved(matrix: jax.Array, right: jax.Array) -> jax.Array:
    dtype = jnp.result_type(matrix, right, float)
    return replicated(solve_positive(matrix.astype(dtype), right.astype(dtype)))


@partial_from_kwargs
def pinv_smooth(
    A: Any, b: Any, *, x0: Any = None, rtol: float = 1e-14, rtol_smooth: float = 1e-14
) -> tuple[Any, dict[str, jax.Array]]:
    """Solves ``A x = b`` by NetKet's smooth pseudo-inverse; where that is the inverse, by Cholesky factorisations.

    :func:`netket.optimizer.solver.pinv_smooth` leaves out eigenvalues below ``rtol`` of the largest one, and divides by
    ``1 + (rtol_smooth λ_max / λ)^6``, after Medvidović and Sels, PRX Quantum 4, 040302 (2023). Where all eigenvalues
    are larger than 1000 times these bounds, and than what rounding makes of zeros, that is A⁻¹ to the last digits: a
    second Cholesky factorisation, of A less such a bound, tells whether they are. Else eigenvalues are computed.

    Args:
        A: ``(N, N)``, Hermitian, real or complex: an array, or a linear operator with ``to_dense()``.
        b: A vector, or a pytree of as many numbers.
        x0: Not used.
        rtol: See above.
        rtol_smooth: See above.

    Returns:
        x like b, the same on all devices, and ``{"is_inverse": whether no eigenvalues were computed}``.
    """
    del x0
    right, unravel = ravel_pytree(b)
    matrix = A if isinstance(A, jax.Array) else A.to_dense()
    solution, is_inverse = _solved_smoothly(matrix, right, rtol, rtol_smooth)
    return unravel(solution), {"is_inverse": is_inverse}


@partial(jax.jit, static_argnums=(2, 3))
def _solved_smoothly(
    matrix: jax.Array, right: jax.Array, rtol: float, rtol_smooth: float
) -> tuple[jax.Array, jax.Array]:
    dtype = jnp.result_type(matrix, right, float)
    matrix, right = matrix.astype(dtype), right.astype(dtype)
    # No eigenvalue is larger than the trace of a matrix that has no negative ones.
    share = max(1000 * rtol, 1000 * rtol_smooth, 100 * float(jnp.finfo(dtype).eps))
    bound = share * jnp.trace(matrix).real
    is_inverse = jnp.isfinite(solve_positive(matrix - bound * jnp.eye(len(matrix), dtype=dtype), right)).all()

    def by_eigenvalues() -> jax.Array:
        smoothed: jax.Array = nk.optimizer.solver.pinv_smooth(matrix, right, rtol=rtol, rtol_smooth=rtol_smooth)[0]
        return replicated(smoothed)

    solution = jax.lax.cond(is_inverse, lambda: replicated(solve_positive(matrix, right)), by_eigenvalues)
    return solution, is_inverse


@partial_from_kwargs
def cg(
    A: Any, b: Any, *, x0: Any = None, tol: float | None = None, atol: float = 0.0, maxiter: int | None = None
) -> tuple[Any, dict[str, jax.Array]]:
    """Solves ``A x = b`` by conjugate gradients, with a matrix that all devices share.

    Hestenes and Stiefel, Journal of Research of the National Bureau of Standards 49, 409 (1952), as
    :func:`jax.scipy.sparse.linalg.cg` has it.

    Args:
        A: ``(N, N)``, Hermitian and positive definite, real or complex, sharded along its first axis. Or a linear
            operator, whose products with vectors like b are taken.
        b: A vector, or a pytree of as many numbers.
        x0: Where to begin, like b; by default at zero.
        tol: Stops where ``|b - A x| <= max(tol |b|, atol)``. By default ε^(2/3) with the precision ε of the numbers:
            4e-11 for those of 64 bits, 2e-5 for those of 32.
        atol: See ``tol``.
        maxiter: The number of iterations after which it stops without; by default 10 N.

    Returns:
        x like b, and ``{"residual": |b - A x| / |b|}``, by which one sees whether it has stopped without.
    """
    if not isinstance(A, jax.Array):
        return _descended(A, b, x0, tol, atol, maxiter)
    right, unravel = ravel_pytree(b)
    start = None if x0 is None else ravel_pytree(x0)[0]
    solution, info = _descended_in(A, right, start, tol, atol, maxiter)
    return unravel(solution), info


@partial(jax.jit, static_argnums=5)
def _descended_in(
    matrix: jax.Array, right: jax.Array, start: jax.Array | None, tol: Any, atol: Any, maxiter: int | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    dtype = jnp.result_type(matrix, right, float)
    start = None if start is None else start.astype(dtype)
    return _descended(lambda x: replicated(matrix @ x), right.astype(dtype), start, tol, atol, maxiter)


def _descended(
    product: Any, right: Any, start: Any, tol: Any, atol: Any, maxiter: int | None
) -> tuple[Any, dict[str, jax.Array]]:
    if tol is None:
        tol = jnp.finfo(ravel_pytree(right)[0].dtype).eps ** (2 / 3)
    solution, _ = jax.scipy.sparse.linalg.cg(product, right, x0=start, tol=tol, atol=atol, maxiter=maxiter)
    right, rest = (ravel_pytree(tree)[0] for tree in (right, product(solution)))
    norm = jnp.linalg.norm(right)
    return solution, {"residual": jnp.linalg.norm(right - rest) / jnp.where(norm, norm, 1)}
