"""The linear system of an update."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk

Solver = Callable[..., Any]

_COMPLEX = {
    getattr(nk.optimizer.solver, name)
    for name in ("cholesky", "cholesky_with_fallback", "pinv", "pinv_smooth", "solve", "svd", "LU")
    if hasattr(nk.optimizer.solver, name)
}
"""Solvers of NetKet's that take complex Hermitian matrices."""


def takes_complex(solver: Solver) -> bool:
    """Whether a solver is known to take complex Hermitian matrices. Those of users get real ones, as from NetKet."""
    function = getattr(solver, "func", solver)
    return any(function is known or function is getattr(known, "__wrapped__", None) for known in _COMPLEX)


def solve(
    solver: Solver,
    matrix: jax.Array,
    right: jax.Array,
    diag_shift: float | jax.Array,
    proj_reg: float | jax.Array | None,
    n_samples: int,
    dv: jax.Array | None = None,
) -> tuple[jax.Array, dict[str, Any]]:
    """Solves ``(matrix + diag_shift + proj_reg/n_samples) x = right``.

    Args:
        solver: Takes a matrix and a vector, and gives the solution, alone or with what it tells.
        matrix: Positive semidefinite.
        right: The right-hand side.
        diag_shift: Added to the diagonal.
        proj_reg: Added to all elements, over the number of samples; None for nothing.
        n_samples: The number of samples.
        dv: The centred local energies, for solvers that have an argument of this name.

    Returns:
        x, and what the solver tells.
    """
    matrix = matrix + diag_shift * jnp.eye(len(matrix), dtype=matrix.dtype)
    if proj_reg is not None:
        matrix = matrix + proj_reg / n_samples
    wants_dv = dv is not None and "dv" in inspect.signature(solver).parameters
    solution = solver(matrix, right, dv=dv) if wants_dv else solver(matrix, right)
    if isinstance(solution, tuple):
        solution, info = solution
        return solution, {} if info is None else info
    return solution, {}
