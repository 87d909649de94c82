"""Local values of known models: from the ratios of amplitudes, without a connected configuration."""

from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
from netket.vqs import MCState

from ferroket._compat.netket import model_of
from ferroket.ansatz import Amplitudes, Ansatz, registry
from ferroket.ansatz.amplitudes import first_and_step
from ferroket.ffi import known_local_values
from ferroket.ffi.varying import align
from ferroket.local_energy import any_network
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.compiled import Form, Matrices, Terms
from ferroket.operator.constraints.projected_form import Projected
from ferroket.reasons import USER_CONSTRAINT, Reason, ReasonKind


def find(vstate: MCState, operator: Accelerated) -> tuple[Ansatz | None, list[Reason]]:
    """The ansatz that evaluates an operator for a state, if there is one, and otherwise the reasons why not."""
    found, reasons = registry.find(model_of(vstate), vstate.variables, vstate.hilbert)
    reasons = [*reasons, *_of_operator(operator._form)]
    return (None if reasons else found), reasons


def _of_operator(form: Form) -> list[Reason]:
    if isinstance(form, Terms):
        return []
    if isinstance(form, Matrices):
        return [Reason("the operator acts on sites that have more than two local states", ReasonKind.LOCAL_STATES)]
    if isinstance(form, Projected):
        return [USER_CONSTRAINT]
    text = "the operator isn't a sum of non-branching terms, the form that the kernels take"
    return [Reason(text, ReasonKind.OPERATOR_FORM)]


def from_ratios(amplitudes: Amplitudes, form: Terms, samples: jax.Array) -> jax.Array:
    """The local values ``(Ns,)`` of samples ``(Ns, N)`` on one device; complex."""
    amplitudes = amplitudes.for_kernels()
    return known_local_values(
        form.family,
        amplitudes.kernel,
        samples,
        *map(jnp.asarray, form.with_weights().tables),
        of_amplitudes=amplitudes.arrays(),
        **form.attributes,
        **amplitudes.attributes(),
    )


def local_values(
    logpsi: any_network.LogPsi,
    variables: Any,
    samples: jax.Array,
    operator: Accelerated,
    *,
    ansatz: Ansatz,
    model: Any,
    vstate_logpsi: Any = None,
    chunk_size: int | None = None,
) -> jax.Array:
    """The local values of samples ``(Ns, N)``: as :func:`ferroket.local_energy.any_network.local_values`.

    A ``logpsi`` other than ``vstate_logpsi``, the one of the ansatz, is evaluated as any network. ``chunk_size``
    matters only there, for derivatives, and on other platforms than CPUs.
    """
    if vstate_logpsi is not None and logpsi != vstate_logpsi:
        return any_network.local_values(logpsi, variables, samples, operator, chunk_size=chunk_size)
    forward = nkjax.HashablePartial(_forward, ansatz, model)
    return any_network.differentiable(forward, logpsi, variables, samples, operator, chunk_size)


def _forward(
    ansatz: Ansatz,
    model: Any,
    logpsi: any_network.LogPsi,
    chunk_size: int | None,
    variables: Any,
    form: Terms,
    samples: jax.Array,
) -> jax.Array:
    sample = jax.ShapeDtypeStruct((1, samples.shape[-1]), samples.dtype)
    dtype = jnp.result_type(form.dtype, jax.eval_shape(logpsi, variables, sample).dtype)

    def on_cpu(variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        first, step = first_and_step(form.sites, jnp.result_type(samples, *jax.tree.leaves(variables)))
        local = from_ratios(ansatz.amplitudes(model, variables, first, step), form, samples)
        local = (local if jnp.issubdtype(dtype, jnp.complexfloating) else local.real).astype(dtype)
        # All parameters are part of every ψ(σ), and so of every ratio.
        finite = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(variables)]).all()
        local, _ = align([jnp.where(finite, local, any_network.nan(dtype)), samples])
        return local

    def elsewhere(variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        return any_network.forward(False, logpsi, chunk_size, variables, form, samples)

    return jax.lax.platform_dependent(variables, form, samples, cpu=on_cpu, default=elsewhere)
