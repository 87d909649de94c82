"""``nk.models.RBMSymm``."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket.local_energy.family import Family, register
from ferroket.local_energy.machine import local_values
from ferroket.local_energy.rbm import linear, other_activation, subclass
from ferroket.operator.compiled import Terms


class RBMSymm(Family):
    """An RBM whose weights are those of a few filters, at all places where the symmetries take them."""

    name = "RBMSymm"

    def why_not(self, model: Any) -> str | None:
        """See :class:`Family`."""
        return subclass(model, nk.models.RBMSymm) or other_activation(model)

    def local_values(self, model: Any, variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        """See :class:`Family`."""
        params = variables["params"]
        symmetries = np.asarray(model.symmetries)
        # As in nk.nn.DenseSymm: (features, sites) becomes (features, symmetries, sites).
        filters = params["Dense"]["kernel"][:, 0, :][:, symmetries]
        layer = {"kernel": filters.reshape(-1, filters.shape[-1]).T}
        if "bias" in params["Dense"]:
            layer["bias"] = jnp.repeat(params["Dense"]["bias"], len(symmetries))
        bias = params.get("visible_bias")
        bias = None if bias is None else jnp.broadcast_to(bias, samples.shape[-1:])
        return local_values(form, samples, linear(layer, bias, form, samples, model.precision))


register(RBMSymm())
