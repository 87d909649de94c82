"""``nk.models.RBM``."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk

from ferroket.local_energy.family import Family, almost, planes, register, steps
from ferroket.local_energy.machine import Machine, local_values
from ferroket.operator.compiled import Terms


def other_activation(model: Any) -> str | None:
    """Why a model with an attribute ``activation`` isn't one of ln cosh; None if it is."""
    if model.activation is nk.nn.activation.log_cosh:
        return None
    activation = getattr(model.activation, "__name__", repr(model.activation))
    return almost(f"the activation is {activation}, and amplitude ratios are known for nk.nn.log_cosh")


def subclass(model: Any, cls: type) -> str | None:
    """Why a model isn't exactly of a class; None if it is."""
    if type(model) is cls:
        return None
    if isinstance(model, cls):
        return almost(f"{type(model).__name__} is a subclass of {cls.__name__}, and may be another function")
    return f"it is no nk.models.{cls.__name__}"


def linear(
    layer: Mapping[str, jax.Array], bias: jax.Array | None, form: Terms, samples: jax.Array, precision: Any
) -> Machine:
    """The machine with θ = σ W + b and visible biases a."""
    kernel = layer["kernel"]
    dtype = jnp.result_type(samples.dtype, kernel.dtype)
    step = steps(form, dtype)
    # Real and imaginary part by themselves: the samples are real.
    parts = [jnp.dot(samples.astype(step.dtype), part, precision=precision) for part in planes(kernel.astype(dtype))]
    theta = jax.lax.complex(*parts) if len(parts) == 2 else parts[0]  # noqa: PLR2004
    delta = kernel * step[:, None]
    bias = jnp.zeros_like(kernel[:, 0]) if bias is None else bias
    return Machine(theta + layer["bias"] if "bias" in layer else theta, delta, bias * step)


class RBM(Family):
    """ln ψ = Σ a σ + Σ ln cosh(σ W + b), with real or complex parameters, with and without biases."""

    name = "RBM"

    def why_not(self, model: Any) -> str | None:
        """See :class:`Family`."""
        return subclass(model, nk.models.RBM) or other_activation(model)

    def local_values(self, model: Any, variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        """See :class:`Family`."""
        params = variables["params"]
        machine = linear(params["Dense"], params.get("visible_bias"), form, samples, model.precision)
        return local_values(form, samples, machine)


register(RBM())
