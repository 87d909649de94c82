"""Local values with restricted Boltzmann machines, for which no connected configuration is built.

See ``rust/kernels/src/rbm.rs`` for the formula.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import netket.jax as nkjax
import numpy as np

from ferroket.ffi import rbm_local_values
from ferroket.local_energy import any_network
from ferroket.operator.accelerated import Accelerated
from ferroket.operator.compiled import Form, Terms

UNITS = 8
"""The kernel takes hidden units in multiples of this."""
_DTYPES = tuple(np.dtype(dtype) for dtype in (np.float32, np.float64, np.complex64, np.complex128))


def why_not(model: Any, operator: Accelerated) -> str | None:
    """Why the kernel can't evaluate a model, or None if it can."""
    if type(model) is not nk.models.RBM:
        return f"{type(model).__name__} is no nk.models.RBM"
    if model.activation is not nk.nn.activation.log_cosh:
        return f"its activation is {getattr(model.activation, '__name__', model.activation)}, not log_cosh"
    if np.dtype(model.param_dtype) not in _DTYPES:
        return f"its parameters are of {np.dtype(model.param_dtype)}"
    if not isinstance(operator._form, Terms):
        return "the operator is on sites with more than two local states"
    return None


def local_values(
    logpsi: any_network.LogPsi,
    variables: Any,
    samples: jax.Array,
    operator: Accelerated,
    *,
    model: nk.models.RBM,
    chunk_size: int | None = None,
) -> jax.Array:
    """The local values of samples ``(Ns, N)``: as :func:`ferroket.local_energy.any_network.local_values`."""
    forward = nkjax.HashablePartial(_forward, model)
    return any_network.differentiable(forward, logpsi, variables, samples, operator, chunk_size)


def _forward(
    model: nk.models.RBM,
    logpsi: any_network.LogPsi,
    chunk_size: int | None,
    variables: Any,
    form: Form,
    samples: jax.Array,
) -> jax.Array:
    return jax.lax.platform_dependent(
        variables,
        form,
        samples,
        cpu=functools.partial(_on_cpu, model),
        default=functools.partial(any_network.forward, logpsi, chunk_size),
    )


def _on_cpu(model: nk.models.RBM, variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
    params = variables["params"]
    kernel = params["Dense"]["kernel"]
    bias = params["Dense"].get("bias", jnp.zeros_like(kernel[0]))
    visible_bias = params.get("visible_bias", jnp.zeros_like(kernel[:, 0]))
    more = -kernel.shape[1] % UNITS
    kernel, bias = jnp.pad(kernel, ((0, 0), (0, more))), jnp.pad(bias, (0, more))

    theta = jnp.dot(samples.astype(kernel.dtype), kernel, precision=model.precision) + bias
    step = jnp.asarray(form.sites.steps, kernel.real.dtype)[form.sites.kind if len(form.sites.steps) > 1 else 0]
    delta = kernel * jnp.broadcast_to(step, kernel.shape[:1])[:, None]
    machine = [theta, jnp.tanh(theta), delta, jnp.cosh(delta), jnp.sinh(delta), visible_bias * step]

    dtype = jnp.result_type(form.dtype, kernel.dtype)
    double = np.complex128 if jnp.issubdtype(form.dtype, jnp.complexfloating) else np.float64
    form = form.replace_values(form.values.astype(double))
    local = rbm_local_values(
        form.family, samples, *map(jnp.asarray, form.tables), machine=list(map(_planes, machine)), **form.attributes
    )
    return (local if jnp.issubdtype(dtype, jnp.complexfloating) else local.real).astype(dtype)


def _planes(numbers: jax.Array) -> jax.Array:
    """Real and imaginary parts, or real numbers alone, along a new first dimension."""
    complex_ = jnp.issubdtype(numbers.dtype, jnp.complexfloating)
    return jnp.stack([numbers.real, numbers.imag]) if complex_ else numbers[None]
