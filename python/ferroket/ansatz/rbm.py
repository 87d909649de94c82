"""``nk.models.RBM``."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk

from ferroket.ansatz.amplitudes import Amplitudes, RBMAmplitudes
from ferroket.ansatz.registry import Ansatz, other_activation, other_type, register


def of_layer(
    layer: Mapping[str, jax.Array], bias: jax.Array | None, first: jax.Array, step: jax.Array
) -> RBMAmplitudes:
    """The amplitudes with θ = σ W + b, of a dense layer's kernel W and bias b, and with visible biases a."""
    kernel = layer["kernel"]
    theta = first @ kernel
    bias = jnp.zeros_like(kernel[:, 0]) if bias is None else bias
    return RBMAmplitudes(theta + layer["bias"] if "bias" in layer else theta, kernel * step[:, None], bias * step)


class RBM(Ansatz):
    """ln ψ = Σ a σ + Σ ln cosh(σ W + b), with real or complex parameters, with and without biases."""

    name = "RBM"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_type(model, nk.models.RBM) or other_activation(model)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        params = variables["params"]
        return of_layer(params["Dense"], params.get("visible_bias"), first, step)


register(RBM())
