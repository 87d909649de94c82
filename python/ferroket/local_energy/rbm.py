"""``nk.models.RBM``."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk

from ferroket.local_energy.amplitudes import Amplitudes, Machine
from ferroket.local_energy.family import Family, almost, register


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


def linear(layer: Mapping[str, jax.Array], bias: jax.Array | None, first: jax.Array, step: jax.Array) -> Machine:
    """The machine with θ = σ W + b and visible biases a."""
    kernel = layer["kernel"]
    theta = first @ kernel
    bias = jnp.zeros_like(kernel[:, 0]) if bias is None else bias
    return Machine(theta + layer["bias"] if "bias" in layer else theta, kernel * step[:, None], bias * step)


class RBM(Family):
    """ln ψ = Σ a σ + Σ ln cosh(σ W + b), with real or complex parameters, with and without biases."""

    name = "RBM"

    def why_not(self, model: Any) -> str | None:
        """See :class:`Family`."""
        return subclass(model, nk.models.RBM) or other_activation(model)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`Family`."""
        params = variables["params"]
        return linear(params["Dense"], params.get("visible_bias"), first, step)


register(RBM())
