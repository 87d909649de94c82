"""The update of stochastic reconfiguration, as NetKet's ``VMC_SR`` and ``Infidelity_SR`` ask for it."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
from jax.flatten_util import ravel_pytree

from ferroket.natural_gradient.dense import dense_tensor, layout_of, weighted_sum
from ferroket.natural_gradient.in_chunks import Derivatives
from ferroket.natural_gradient.log_derivatives import LogDerivatives
from ferroket.natural_gradient.memory import bytes_of_kernel, bytes_of_tensor
from ferroket.natural_gradient.ntk import ShiftedKernel, adjoint_dot, dot, log_derivatives_of, shifted
from ferroket.natural_gradient.solve import reason_to_form_kernel, solve, splits_reason

Solver = Callable[..., Any]


@partial(jax.jit, static_argnames=("log_psi", "solver_fn", "mode", "chunk_size"))
def update_by_ntk(
    log_psi: Callable[..., Any],
    local_energies: jax.Array,
    parameters: Any,
    model_state: Any,
    samples: jax.Array,
    *,
    diag_shift: float | jax.Array,
    solver_fn: Solver,
    mode: str,
    proj_reg: float | jax.Array | None = None,
    momentum: float | jax.Array | None = None,
    old_updates: Any = None,
    chunk_size: int | None = None,
    weights: jax.Array | None = None,
) -> tuple[Any, Any, dict[str, Any]]:
    """The update ``O† (O O† + λ)⁻¹ 2 (E_loc − E)`` with centred O and local energies over √Ns: minSR.

    Chen and Heyl, Nature Physics 20, 1476 (2024); Rende et al., Communications Physics 7, 260 (2024). With momentum
    it is SPRING: Goldshlager, Abrahamsen, Lin, Journal of Computational Physics 516, 113351 (2024). Equals NetKet's
    ``srt_onthefly``, whose arguments these are.

    Args:
        log_psi: ``log_psi({"params": parameters, **model_state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        local_energies: ``(Ns,)``, or a shape with as many elements.
        parameters: A pytree.
        model_state: Other collections of variables.
        samples: ``(Ns, N)``, sharded along the first axis.
        diag_shift: λ.
        solver_fn: Solves ``A x = b`` for a positive definite A.
        mode: ``real`` or ``complex``.
        proj_reg: Added to all elements of the Gram matrix, over the number of samples.
        momentum: μ of SPRING.
        old_updates: The last update, with complex parameters as NetKet's ``tree_to_real`` splits them.
        chunk_size: How many samples a device differentiates at once.
        weights: None: the samples are drawn from ``|ψ|²``.

    Returns:
        The update of the parameters, the same for the next ``old_updates``, and what the solver tells.
    """
    if weights is not None:
        raise NotImplementedError("Weighted samples are not supported by the neural tangent kernel.")
    is_holomorphic = None if splits_reason(solver_fn, proj_reg) is None else False
    settings: dict[str, Any] = {"mode": mode, "chunk_size": chunk_size, "is_holomorphic": is_holomorphic}
    n_samples = len(samples)

    def bytes_of_matrix(of_sample: LogDerivatives) -> int:
        return bytes_of_kernel(of_sample, n_samples, reason_to_form_kernel(of_sample, n_samples, solver_fn) is not None)

    rows = log_derivatives_of(log_psi, parameters, model_state, samples, **settings, bytes_of_matrix=bytes_of_matrix)
    local_energies = local_energies.reshape(-1)
    right = _components(2 * (local_energies - local_energies.mean()) / jnp.sqrt(n_samples), rows, mode)
    treedef = jax.tree.structure(parameters)
    if momentum is not None:
        if old_updates is None:
            old_updates = jax.tree.map(jnp.zeros_like, nkjax.tree_to_real(parameters)[0])
        change = dot(rows, jax.tree.leaves(nkjax.tree_to_real(parameters)[1](old_updates)))
        right -= momentum * (change - change.mean(axis=0)) / jnp.sqrt(n_samples)

    solution, info = solve(solver_fn, ShiftedKernel(rows, diag_shift, proj_reg), right.reshape(-1))
    solution = solution.reshape(right.shape)
    solution = (solution - solution.mean(axis=0)) / jnp.sqrt(n_samples)
    updates = jax.tree.unflatten(treedef, adjoint_dot(rows, solution.astype(right.dtype)))
    if momentum is None:
        return updates, old_updates, info
    real, restore = nkjax.tree_to_real(updates)
    old_updates = jax.tree.map(lambda new, old: new + momentum * old, real, old_updates)
    return restore(old_updates), old_updates, info


def update_by_flat_ntk(
    log_psi: Callable[..., Any],
    local_energies: jax.Array,
    parameters: Any,
    model_state: Any,
    samples: jax.Array,
    *,
    proj_reg: float | jax.Array | None = None,
    old_updates: jax.Array | None = None,
    mode: str,
    **settings: Any,
) -> tuple[Any, jax.Array | None, dict[str, Any]]:
    """:func:`update_by_ntk` with ``old_updates`` in one array, as in NetKet's ``srt``.

    There ``proj_reg`` is divided by the number of rows of the matrix, which in complex mode is twice that of samples.
    """
    tree = None
    if old_updates is not None:
        _, unravel = ravel_pytree(nkjax.tree_to_real(parameters)[0])
        tree = unravel(old_updates)
    if proj_reg is not None and mode == "complex":
        proj_reg = proj_reg / 2
    updates, tree, info = update_by_ntk(
        log_psi,
        local_energies,
        parameters,
        model_state,
        samples,
        proj_reg=proj_reg,
        old_updates=tree,
        mode=mode,
        **settings,
    )
    return updates, None if tree is None else ravel_pytree(tree)[0], info


@partial(jax.jit, static_argnames=("log_psi", "solver_fn", "mode", "chunk_size"))
def update_by_qgt(
    log_psi: Callable[..., Any],
    local_grad: jax.Array,
    parameters: Any,
    model_state: Any,
    samples: jax.Array,
    *,
    diag_shift: float | jax.Array,
    solver_fn: Solver,
    mode: str,
    proj_reg: float | jax.Array | None = None,
    momentum: float | jax.Array | None = None,
    old_updates: jax.Array | None = None,
    chunk_size: int | None = None,
    weights: jax.Array | None = None,
    diag_scale: float | jax.Array | None = None,
) -> tuple[Any, jax.Array | None, dict[str, Any]]:
    """The update ``(O† O + λ)⁻¹ O† 2 (E_loc − E)`` for fewer parameters than samples.

    Equals NetKet's ``sr``. See :func:`update_by_ntk` for the other arguments.

    Args:
        log_psi: ``log_psi({"params": parameters, **model_state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        model_state: Other collections of variables.
        samples: ``(Ns, N)``, sharded along the first axis.
        diag_shift: λ.
        solver_fn: Solves ``A x = b`` for a positive definite A.
        mode: ``real`` or ``complex``.
        momentum: μ of SPRING.
        chunk_size: How many samples a device differentiates at once.
        local_grad: The local energies.
        proj_reg: None.
        old_updates: The last update, real parts before imaginary parts in one array.
        weights: The probability of each sample up to a factor; by default all have the same.
        diag_scale: ε: λ + ε (O† O)_kk is added to the diagonal, with ε = 0 by default.
    """
    if proj_reg is not None:
        raise ValueError("proj_reg not implemented for SR")
    is_holomorphic = None if splits_reason(solver_fn, None) is None else False
    settings: dict[str, Any] = {"mode": mode, "chunk_size": chunk_size, "is_holomorphic": is_holomorphic}
    rows = log_derivatives_of(log_psi, parameters, model_state, samples, **settings, bytes_of_matrix=bytes_of_tensor)
    mass = jnp.full(len(samples), 1 / len(samples)) if weights is None else weights / weights.sum()
    layout = layout_of(rows, mode)
    matrix = dense_tensor(rows, mass, layout)

    local_grad = local_grad.reshape(-1)
    change = 2 * (local_grad - (mass * local_grad).sum())
    force = weighted_sum(rows, _components(change * mass, rows, mode), layout).astype(matrix.dtype)
    right = _components(change * jnp.sqrt(mass), rows, mode).reshape(-1).astype(matrix.dtype)
    if diag_scale is not None:
        diag_shift = diag_shift + diag_scale * jnp.diagonal(matrix).real
    if momentum is not None:
        old = (
            jnp.zeros(force.size * (1 + rows.is_holomorphic), matrix.real.dtype) if old_updates is None else old_updates
        )
        old = jax.lax.complex(*jnp.split(old, 2)) if rows.is_holomorphic else old
        force = force + diag_shift * momentum * old
    solution, info = solve(solver_fn, shifted(matrix, diag_shift, None, len(samples)), force, dv=right)
    if rows.is_holomorphic:
        solution = jnp.concatenate([solution.real, solution.imag])
    real, restore = nkjax.tree_to_real(parameters)
    updates = restore(ravel_pytree(real)[1](solution))
    return updates, (old_updates if momentum is None else solution), info


def _components(values: jax.Array, rows: Derivatives, mode: str) -> jax.Array:
    """Local energies as ``(Ns, C)``: what belongs to each row of a sample."""
    if mode == "real" or rows.network.is_real:
        return values.real[:, None]
    if rows.is_holomorphic:
        return values[:, None].astype(jnp.result_type(values, 1j))
    return jnp.stack([values.real, values.imag], axis=-1)
