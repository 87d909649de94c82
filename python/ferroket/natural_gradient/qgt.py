"""The quantum geometric tensor S = ⟨ΔO† ΔO⟩ from the factors of the log-derivatives, without a Jacobian."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
from flax import struct
from jax.flatten_util import ravel_pytree
from netket.optimizer import LinearOperator
from netket.vqs import FullSumState

from ferroket._compat.netket import log_psi_of
from ferroket.natural_gradient.dense import dense_tensor, layout_of
from ferroket.natural_gradient.in_chunks import Derivatives
from ferroket.natural_gradient.ntk import adjoint_dot, dot, log_derivatives_of
from ferroket.natural_gradient.verification import unsupported_reason


@struct.dataclass
class QGTFactors(LinearOperator):
    """S as factors of the log-derivatives: products with vectors cost as much as with two layers of the network.

    Vectors are pytrees of parameters, or arrays of all parameters one after the other. As NetKet's
    :func:`~netket.optimizer.qgt.QGTOnTheFly` it acts on the real and imaginary parts of complex parameters as on real
    numbers, unless ln ψ is holomorphic.
    """

    rows: Derivatives = None  # type: ignore[assignment]
    """Of all samples, sharded; in chunks where they would take too much memory."""
    pdf: jax.Array | None = None
    """The weights of the samples, ``(Ns,)``; None for equal ones."""
    splits: bool = struct.field(pytree_node=False, default=False)  # type: ignore[no-untyped-call]
    """Whether vectors have real and imaginary parts apart."""

    @jax.jit
    def __matmul__(self, vector: Any) -> Any:
        """S·v, with the shift."""
        real, restore = self._forms()
        unravel = None
        if hasattr(vector, "ndim"):
            example = real if self.splits else restore(real)
            flat, unravel = ravel_pytree(example)
            if vector.shape != flat.shape:
                raise ValueError(f"the vector has shape {vector.shape}, and the parameters {flat.shape}")
            vector = unravel(vector)
        parameters = restore(vector) if self.splits else nkjax.tree_cast(vector, restore(real))
        result = product(self.rows, parameters, self.diag_shift, self.pdf)
        if self.splits:
            result, _ = nkjax.tree_to_real(result)
        return result if unravel is None else ravel_pytree(result)[0]

    def restored(self, vector: Any) -> Any:
        """A vector that has real and imaginary parts of parameters apart, as a pytree of parameters."""
        return self._forms()[1](vector)

    def _forms(self) -> tuple[Any, Callable[..., Any]]:
        """Zeros of the parameters with real and imaginary parts apart, and what puts these together."""
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.rows.network.tree)
        forms: tuple[Any, Callable[..., Any]] = nkjax.tree_to_real(zeros)
        return forms

    @jax.jit
    def _solve(self, solve_fun: Callable[..., Any], y: Any, *, x0: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        splits = not self.rows.is_holomorphic and not self.splits
        system = self.replace(splits=True) if splits else self
        real, restore = self._forms()
        _, unravel = ravel_pytree(restore(real))
        is_flat = hasattr(y, "ndim")
        vectors = [None if v is None else (unravel(v) if is_flat else v) for v in (y, x0)]
        vectors = [None if v is None else nkjax.tree_cast(v, restore(real)) for v in vectors]
        if splits:
            vectors = [None if v is None else nkjax.tree_to_real(v)[0] for v in vectors]
        y, x0 = vectors
        if x0 is None:
            x0 = jax.tree.map(jnp.zeros_like, y)
        solution, info = solve_fun(system, y, x0=x0, **kwargs)
        solution = restore(solution) if splits else solution
        return (ravel_pytree(solution)[0] if is_flat else solution), info

    @jax.jit
    def to_dense(self) -> jax.Array:
        """S as a matrix, of real and imaginary parts of complex parameters unless ln ψ is holomorphic."""
        n_samples = self.rows.n_samples
        mass = jnp.full(n_samples, 1 / n_samples) if self.pdf is None else self.pdf
        matrix = dense_tensor(self.rows, mass, layout_of(self.rows, "complex"))
        return matrix + self.diag_shift * jnp.eye(len(matrix), dtype=matrix.dtype)

    def __repr__(self) -> str:
        return f"QGTFactors(diag_shift={self.diag_shift})"


def product(rows: Derivatives, vector: Any, diag_shift: Any, pdf: jax.Array | None) -> Any:
    """``S·v + diag_shift·v`` for a pytree of parameters. The shift is a number, or a pytree of one for each leaf."""
    values = dot(rows, jax.tree.leaves(vector))
    if pdf is None:
        values = (values - values.mean(axis=0)) / len(values)
    else:
        values = pdf[:, None] * (values - jnp.tensordot(pdf, values, 1))
    result = jax.tree.unflatten(jax.tree.structure(vector), adjoint_dot(rows, values))
    if jax.tree.structure(diag_shift) != jax.tree.structure(vector):
        diag_shift = jax.tree.map(lambda _: diag_shift, vector)

    def shifted(new: jax.Array, old: jax.Array, shift: Any) -> jax.Array:
        return new + jnp.asarray(shift, new.real.dtype) * old

    return jax.tree.map(shifted, result, vector, diag_shift)


def mat_vec(
    forward_fn: Callable[..., Any],
    params: Any,
    model_state: Any,
    samples: jax.Array,
    pdf: jax.Array | None = None,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The function ``(v, diag_shift) -> S·v + diag_shift·v``, as NetKet's ``QGTOnTheFly`` asks for it.

    Args:
        forward_fn: ``forward_fn({"params": params, **model_state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        params: A pytree, as are v and what the function returns.
        model_state: Other collections of variables.
        samples: ``(Ns, N)``.
        pdf: The weights of the samples, ``(Ns,)``; None for equal ones.
        chunk_size: How many samples a device differentiates at once.
    """
    return jax.tree_util.Partial(_mat_vec, _rows(forward_fn, params, model_state, samples, chunk_size, False), pdf)


def _mat_vec(rows: Derivatives, pdf: jax.Array | None, vector: Any, diag_shift: Any) -> Any:
    return product(rows, vector, diag_shift, pdf)


def quantum_geometric_tensor(
    vstate: Any = None,
    *,
    chunk_size: int | None = None,
    holomorphic: bool | None = None,
    diag_shift: Any = 0.0,
    diag_scale: Any = None,
) -> Any:
    """The quantum geometric tensor of a variational state, as :class:`QGTFactors`.

    Args:
        vstate: ``MCState`` or ``FullSumState``. Without one, the result makes the tensor of a state.
        chunk_size: How many samples a device differentiates at once; by default that of the state.
        holomorphic: False for a tensor of real and imaginary parts also where ln ψ is holomorphic. By default what the
            network is found to be.
        diag_shift: Added to the diagonal.
        diag_scale: None.

    Raises:
        NotImplementedError: There is a ``diag_scale``: only NetKet's tensors of Jacobians have one.
        ValueError: The network mixes samples; or ``holomorphic=True``, and ln ψ isn't holomorphic, as far as can be
            read.
    """
    if diag_scale is not None:
        raise NotImplementedError("diag_scale needs a Jacobian: take nk.optimizer.qgt.QGTJacobianDense")
    settings = {"chunk_size": chunk_size, "holomorphic": holomorphic, "diag_shift": diag_shift}
    if vstate is None:
        return nkjax.HashablePartial(quantum_geometric_tensor, **settings)
    pdf = None
    if isinstance(vstate, FullSumState):
        samples, pdf = vstate.hilbert.all_states(), vstate.probability_distribution()
    else:
        samples = vstate.samples
    samples = _flattened(samples)
    chunk_size = getattr(vstate, "chunk_size", None) if chunk_size is None else chunk_size
    reason = unsupported_reason(log_psi_of(vstate), vstate.parameters, vstate.model_state, samples)
    if reason is not None:
        raise ValueError(f"{reason}: take nk.optimizer.qgt.QGTOnTheFly")
    rows = _rows(log_psi_of(vstate), vstate.parameters, vstate.model_state, samples, chunk_size, holomorphic is False)
    if holomorphic and not rows.is_holomorphic:
        raise ValueError(
            "holomorphic=True, but ln ψ has real parameters or values, or a conjugate: leave holomorphic out"
        )
    return QGTFactors(diag_shift=diag_shift, rows=rows, pdf=pdf)


@jax.jit
def _flattened(samples: jax.Array) -> jax.Array:
    """Those of all chains, ``(Ns, N)``. Compiled, so that they may be on several devices, and only once."""
    return samples.reshape(-1, samples.shape[-1])


@partial(jax.jit, static_argnums=(0, 4, 5))
def _rows(
    log_psi: Callable[..., Any], parameters: Any, state: Any, samples: jax.Array, chunk_size: int | None, splits: bool
) -> Derivatives:
    value = jax.eval_shape(log_psi, {"params": parameters, **state}, samples[:1])
    mode = "complex" if jnp.issubdtype(value.dtype, jnp.complexfloating) else "real"
    return log_derivatives_of(
        log_psi,
        parameters,
        state,
        samples,
        mode=mode,
        chunk_size=chunk_size,
        is_holomorphic=False if splits else None,
    )
