"""Forces ⟨(O_loc - ⟨O⟩)* ∂ ln ψ⟩ in chunks of samples, and those of determinants.

NetKet's own rule for chunks asks JAX to check over which devices a value varies, which the loops of many networks don't
pass. And with NetKet's rules JAX decomposes the matrices of determinants, in threads that may wait for each other for
ever in jaxlib 0.10.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
from netket.operator import AbstractOperator
from netket.stats import Stats, statistics
from netket.vqs import MCState, expect_and_forces, get_local_kernel, get_local_kernel_arguments

from ferroket._compat.netket import log_psi_of
from ferroket._compat.sharding import on_each_device
from ferroket.ansatz.determinants import has_some, with_primitives
from ferroket.local_energy.any_network import LogPsi, in_chunks
from ferroket.local_energy.dispatch import PRECEDENCE
from ferroket.local_energy.patching import netket_only_reason
from ferroket.operator.algebra.accelerated import Accelerated

_NETKETS = expect_and_forces.invoke(MCState, AbstractOperator, int)
_NETKETS_AT_ONCE = expect_and_forces.invoke(MCState, AbstractOperator, type(None))


@partial(expect_and_forces.dispatch, precedence=PRECEDENCE)
def _expect_and_forces(
    vstate: MCState, operator: Accelerated, chunk_size: int, *, mutable: Any = False
) -> tuple[Stats, Any]:
    if mutable is not False or netket_only_reason(vstate) is not None:
        stats, forces = _NETKETS(vstate, operator, chunk_size, mutable=mutable)
        return stats, forces
    return _ours(vstate, operator, get_local_kernel(vstate, operator, chunk_size), chunk_size)


@partial(expect_and_forces.dispatch, precedence=PRECEDENCE)
def _expect_and_forces_at_once(
    vstate: MCState, operator: Accelerated, chunk_size: None, *, mutable: Any = False
) -> tuple[Stats, Any]:
    sample = jax.ShapeDtypeStruct((vstate.hilbert.size,), vstate.sampler.dtype)
    if mutable is not False or not has_some(log_psi_of(vstate), vstate.variables, sample):
        stats, forces = _NETKETS_AT_ONCE(vstate, operator, chunk_size, mutable=mutable)
        return stats, forces
    return _ours(vstate, operator, get_local_kernel(vstate, operator), None)


def _ours(
    vstate: MCState, operator: Accelerated, kernel: Callable[..., jax.Array], chunk_size: int | None
) -> tuple[Stats, Any]:
    samples, arguments = get_local_kernel_arguments(vstate, operator)
    model = (log_psi_of(vstate), vstate.parameters, vstate.model_state)
    result: tuple[Stats, Any] = _statistics_and_forces(kernel, chunk_size, *model, samples, arguments)
    return result


@partial(jax.jit, static_argnums=(0, 1, 2))
def _statistics_and_forces(
    kernel: Callable[..., jax.Array],
    chunk_size: int | None,
    apply: LogPsi,
    parameters: Any,
    model_state: Any,
    samples: jax.Array,
    arguments: Any,
) -> tuple[Stats, Any]:
    rows = samples.reshape(-1, samples.shape[-1])
    local = kernel(apply, {"params": parameters, **model_state}, rows, arguments, chunk_size=chunk_size)
    stats = statistics(local.reshape(samples.shape[:-1]))
    weights = jnp.conj(local - stats.mean) / len(rows)
    weighted = nkjax.HashablePartial(_weighted, apply, chunk_size)
    of_each = (False, False, True, True)
    forces = on_each_device(weighted, of_each, jax.lax.psum)
    return stats, forces(parameters, model_state, rows, weights)


def _weighted(
    apply: LogPsi, chunk_size: int | None, parameters: Any, model_state: Any, samples: jax.Array, weights: jax.Array
) -> Any:
    """Σ_σ w(σ) ∂ ln ψ(σ), conjugate, of the samples of one device: activations are kept for one chunk at a time."""

    @with_primitives
    def log_psi(parameters: Any, samples: jax.Array) -> jax.Array:
        return apply({"params": parameters, **model_state}, samples)

    chunked = in_chunks(jax.checkpoint(log_psi), chunk_size)
    _, pullback = nkjax.vjp(lambda moved: chunked(moved, samples), parameters, conjugate=True)
    return pullback(weights)[0]
