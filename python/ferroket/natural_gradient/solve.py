"""The linear system of an update."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax
import netket as nk

from ferroket.natural_gradient import solvers
from ferroket.natural_gradient.gram import reason_to_form
from ferroket.natural_gradient.log_derivatives import LogDerivatives
from ferroket.natural_gradient.ntk import ShiftedKernel
from ferroket.reasons import Reason, ReasonKind

Solver = Callable[..., Any]

_NETKETS = {
    name: getattr(nk.optimizer.solver, name)
    for name in ("cholesky", "cholesky_with_fallback", "pinv", "pinv_smooth", "solve", "svd", "LU")
    if hasattr(nk.optimizer.solver, name)
}
_OURS = (solvers.cholesky, solvers.cg, solvers.pinv_smooth)
_COMPLEX = (*_NETKETS.values(), *_OURS)
"""Solvers that take complex Hermitian matrices."""

_REPLACED = [(_NETKETS["cholesky"], solvers.cholesky)]
"""What takes the place of the defaults of NetKet's drivers."""
_with_fallback: Callable[[Solver, Solver], Any] | None = getattr(nk.optimizer.solver, "nan_fallback", None)
if _with_fallback is not None:  # NetKet 3.20 has none
    _REPLACED += [(_NETKETS["cholesky_with_fallback"], _with_fallback(solvers.cholesky, _NETKETS["pinv_smooth"]))]

SHARED_FROM = 512
"""The number of unknowns from which several devices share the Cholesky factorisation.

On two ranks with a core each, and real numbers of 64 bits, it takes 1.9 ms there in the place of 2.9, at 2048 43 of
160, and at 4096 320 of 960. Fewer unknowns gain less than a millisecond, for a program that takes a second more to
compile.
"""


def takes_complex(solver: Solver) -> bool:
    """Whether a solver is known to take complex Hermitian matrices. Those of users get real ones, as from NetKet."""
    function = getattr(solver, "func", solver)
    if _with_fallback is not None and function is _with_fallback(*_OURS[:2]).func:
        return all(map(takes_complex, solver.args))  # type: ignore[attr-defined]
    return _is_among(_COMPLEX, solver)


def splits_reason(solver: Solver, proj_reg: Any) -> Reason | None:
    """Why a system has real and imaginary parts apart, as the end of a sentence; None if it may be complex."""
    if proj_reg is not None:  # added to all elements, which no complex number does to its two parts
        return Reason("proj_reg treats real and imaginary parts alike", ReasonKind.SOLVER)
    return None if takes_complex(solver) else Reason("the solver isn't known", ReasonKind.SOLVER)


def _is_among(known: Iterable[Solver], solver: Solver) -> bool:
    """Whether a solver is one of some, with arguments of its own or without."""
    function = getattr(solver, "func", solver)
    return any(function is one or function is getattr(one, "__wrapped__", None) for one in known)


def replaced(solver: Solver, side: int) -> Solver:
    """What solves a system in the place of a driver's solver.

    The defaults of NetKet's drivers, ``cholesky`` and ``cholesky_with_fallback``, leave the matrix to LAPACK, on each
    device by itself. On one CPU Rust factors it. Several devices share it from :data:`SHARED_FROM` unknowns on. Other
    solvers stay as they are.

    Args:
        solver: What the driver has.
        side: The number of unknowns.
    """
    is_worth_it = jax.default_backend() == "cpu" if jax.device_count() == 1 else side >= SHARED_FROM
    return next((ours for theirs, ours in _REPLACED if solver is theirs), solver) if is_worth_it else solver


def takes_kernel(solver: Solver, side: int) -> bool:
    """Whether a system of so many unknowns is solved by a solver of ours, which asks a kernel for the solution."""
    return replaced(solver, side) is not solver or _is_among([solvers.cholesky], solver)


def reason_to_form_kernel(of_sample: LogDerivatives, n_samples: int, solver: Solver) -> Reason | None:
    """Why CPUs form the kernel of so many samples, as the end of a sentence; None if it doesn't.

    Args:
        of_sample: The log-derivatives of a sample, or their shapes.
        n_samples: How many there are in all.
        solver: What the driver has.
    """
    if not takes_kernel(solver, n_samples * of_sample.n_components):
        return Reason("the solver asks for it", ReasonKind.SOLVER)
    return reason_to_form(of_sample, n_samples)


def text_of_solver(solver: Solver, side: int) -> str:
    """Which solver a system has, and how the devices share it.

    Args:
        solver: What the driver has.
        side: The number of unknowns.
    """
    name = getattr(getattr(solver, "func", solver), "__name__", repr(solver))
    n_devices = jax.device_count()
    is_replaced = replaced(solver, side) is not solver
    if n_devices == 1:
        return f"fk.optimizer.solver.cholesky in the place of {name}" if is_replaced else name
    if is_replaced:
        return f"fk.optimizer.solver.cholesky in the place of {name}: {n_devices} devices share the matrix"
    if any(solver is theirs for theirs, _ in _REPLACED):
        return f"{name}, on each device: fewer than {SHARED_FROM} unknowns aren't worth sharing"
    if reason_not_to_share(solver):
        return f"{name}, on each device"
    return f"fk.optimizer.solver.{name}: {n_devices} devices share the matrix"


def reason_not_to_share(solver: Solver) -> Reason | None:
    """Why each of several devices solves the whole system by itself, however large it is; None if they share it."""
    is_known = any(solver is theirs for theirs, _ in _REPLACED) or _is_among(_OURS, solver)
    if jax.device_count() == 1 or is_known:
        return None
    return Reason("each device solves the whole system: the solver doesn't share the matrix", ReasonKind.SOLVER)


def solve(
    solver: Solver, matrix: jax.Array | ShiftedKernel, right: jax.Array, dv: jax.Array | None = None
) -> tuple[jax.Array, dict[str, Any]]:
    """Solves ``matrix x = right``.

    Args:
        solver: Takes a matrix and a vector, and gives the solution, alone or with what it tells. See :func:`replaced`.
        matrix: Positive definite. A kernel isn't formed for a solver of ours, and x then has no mean over the samples.
        right: The right-hand side.
        dv: The centred local energies, for solvers that have an argument of this name.

    Returns:
        x, and what the solver tells.
    """
    if isinstance(matrix, ShiftedKernel) and not takes_kernel(solver, len(right)):
        matrix = matrix.to_dense()
    solver = replaced(solver, len(right))
    wants_dv = dv is not None and "dv" in inspect.signature(solver).parameters
    solution = solver(matrix, right, dv=dv) if wants_dv else solver(matrix, right)
    if isinstance(solution, tuple):
        solution, info = solution
        return solution, {} if info is None else info
    return solution, {}
