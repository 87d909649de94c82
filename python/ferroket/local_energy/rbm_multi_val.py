"""``nk.models.RBMMultiVal``, on sites with two local states."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk

from ferroket.local_energy.family import Family, register, steps
from ferroket.local_energy.machine import Machine, local_values
from ferroket.local_energy.rbm import other_activation, subclass
from ferroket.operator.compiled import Terms


class RBMMultiVal(Family):
    """An RBM whose inputs say which of the numbers 0, 1, 2... a site has."""

    name = "RBMMultiVal"

    def why_not(self, model: Any) -> str | None:
        """See :class:`Family`."""
        return subclass(model, nk.models.RBMMultiVal) or other_activation(model)

    def local_values(self, model: Any, variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        """See :class:`Family`."""
        params = variables["params"]["RBM"]
        kernel = params["Dense"]["kernel"]
        bias = params.get("visible_bias", jnp.zeros_like(kernel[:, 0]))

        def inputs(samples: jax.Array) -> jax.Array:
            of_sites = jax.nn.one_hot(samples, model.n_classes)
            return of_sites.reshape(len(samples), -1).astype(jnp.result_type(of_sites, kernel))

        # Row i has its second local state on site i alone.
        first = jnp.asarray(form.sites.starts)[form.sites.kind if form.sites.kind.size else 0]
        n_sites = samples.shape[-1]
        states = first + jnp.stack([jnp.zeros(n_sites), *jnp.diag(steps(form, kernel.dtype))])
        inputs_of_states = inputs(states.astype(samples.dtype))
        changes = inputs_of_states[1:] - inputs_of_states[0]

        theta = inputs(samples) @ kernel
        theta = theta + params["Dense"]["bias"] if "bias" in params["Dense"] else theta
        return local_values(form, samples, Machine(theta, changes @ kernel, changes @ bias))


register(RBMMultiVal())
