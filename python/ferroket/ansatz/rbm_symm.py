"""``nk.models.RBMSymm``."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket.ansatz.amplitudes import Amplitudes
from ferroket.ansatz.rbm import of_layer
from ferroket.ansatz.registry import Ansatz, other_activation, other_type, register


class RBMSymm(Ansatz):
    """An RBM whose weights are those of a few filters, at all places where the symmetries take them."""

    name = "RBMSymm"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_type(model, nk.models.RBMSymm) or other_activation(model)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        params = variables["params"]
        symmetries = np.asarray(model.symmetries)
        # As in nk.nn.DenseSymm: (features, sites) becomes (features, symmetries, sites).
        filters = params["Dense"]["kernel"][:, 0, :][:, symmetries]
        layer = {"kernel": filters.reshape(-1, filters.shape[-1]).T}
        if "bias" in params["Dense"]:
            layer["bias"] = jnp.repeat(params["Dense"]["bias"], len(symmetries))
        bias = params.get("visible_bias")
        bias = None if bias is None else jnp.broadcast_to(bias, first.shape)
        return of_layer(layer, bias, first, step)


register(RBMSymm())
