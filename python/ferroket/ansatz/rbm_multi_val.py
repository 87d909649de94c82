"""``nk.models.RBMMultiVal``, on sites with two local states."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk

from ferroket.ansatz.amplitudes import Amplitudes, RBMAmplitudes
from ferroket.ansatz.registry import Ansatz, other_activation, other_type, register


class RBMMultiVal(Ansatz):
    """An RBM whose inputs say which of the numbers 0, 1, 2... a site has."""

    name = "RBMMultiVal"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_type(model, nk.models.RBMMultiVal) or other_activation(model)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        params = variables["params"]["RBM"]
        kernel = params["Dense"]["kernel"]
        bias = params.get("visible_bias", jnp.zeros_like(kernel[:, 0]))
        # Row 0 has all first local states, row 1 + i the second one on site i alone.
        states = first + jnp.stack([jnp.zeros_like(step), *jnp.diag(step)])
        inputs = (states[..., None] == jnp.arange(model.n_classes)).reshape(len(states), -1)
        inputs = inputs.astype(jnp.result_type(float, kernel))
        changes = inputs[1:] - inputs[0]
        theta = inputs[0] @ kernel
        theta = theta + params["Dense"]["bias"] if "bias" in params["Dense"] else theta
        return RBMAmplitudes(theta, changes @ kernel, changes @ bias)


register(RBMMultiVal())
