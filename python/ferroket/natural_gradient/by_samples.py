"""Quantum geometric tensors of more parameters than samples, solved in the space of samples, for any gradient."""

from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax

from ferroket.natural_gradient.ntk import ShiftedKernel, adjoint_dot, dot
from ferroket.natural_gradient.qgt import QGTFactors
from ferroket.natural_gradient.solve import solve
from ferroket.natural_gradient.solvers import cholesky


def ntk(A: Any, b: Any, *, x0: Any = None) -> tuple[Any, None]:
    """Solves ``(S + λ) x = b`` by a linear system of as many unknowns as there are rows of samples: the kernel trick.

    For S = O†O, with centred log-derivatives O over √Ns, it is

        x = (b − O† (O O† + λ)⁻¹ O b) / λ,

    the identity of Woodbury. As in minSR (Chen and Heyl, Nature Physics 20, 1476, 2024) O O† takes the place of S; but
    b may be any gradient, and no sum over the samples' log-derivatives. So this is for any driver that takes a
    preconditioner, such as :class:`netket.driver.SteadyState`. The difference loses as many digits as λ is smaller than
    the largest eigenvalues of S; it isn't for a λ of zero.

    Args:
        A: :class:`ferroket.optimizer.qgt.QGTFactors` of a sampled state, with a ``diag_shift``.
        b: The gradient: a pytree of parameters, or an array of all, as A takes them.
        x0: Not used.

    Returns:
        x as b, and None; NaN where O O† + λ isn't positive definite.

    Raises:
        TypeError: A is another tensor.
        ValueError: A is summed over all states.
    """
    if not isinstance(A, QGTFactors):
        raise TypeError(
            f"A is a {type(A).__name__}, but ntk solves tensors of fk.optimizer.qgt.quantum_geometric_tensor: take "
            "fk.optimizer.SR(solver=fk.optimizer.solver.ntk)"
        )
    if A.pdf is not None:
        raise ValueError(
            "the tensor is summed over all states of a FullSumState, which are no fewer than parameters: take a solver "
            "of nk.optimizer.solver"
        )
    if hasattr(b, "ndim"):
        found: tuple[Any, None] = A.solve(ntk, b)
        return found
    if not A.splits:
        return _solved(A, b), None
    return nkjax.tree_to_real(_solved(A, A.restored(b)))[0], None


def _solved(tensor: QGTFactors, gradient: Any) -> Any:
    """The same for a pytree of parameters as they are."""
    scale = jnp.sqrt(tensor.rows.n_samples)
    change = dot(tensor.rows, jax.tree.leaves(gradient))
    right = (change - change.mean(axis=0)) / scale
    weights, _ = solve(cholesky, ShiftedKernel(tensor.rows, tensor.diag_shift), right.reshape(-1))
    weights = weights.reshape(right.shape)
    weights = (weights - weights.mean(axis=0)) / scale
    seen = jax.tree.unflatten(jax.tree.structure(gradient), adjoint_dot(tensor.rows, weights))
    return jax.tree.map(lambda b, part: (b - part) / jnp.asarray(tensor.diag_shift, b.real.dtype), gradient, seen)
