"""``nk.models.RBMModPhase``."""

from typing import Any

import jax
import netket as nk
import numpy as np

from ferroket.local_energy.family import Family, almost, register
from ferroket.local_energy.machine import local_values
from ferroket.local_energy.rbm import linear, other_activation, subclass
from ferroket.operator.compiled import Terms


class RBMModPhase(Family):
    """ln ψ = Σ ln cosh(σ W + b) + i Σ ln cosh(σ V + c), with real parameters."""

    name = "RBMModPhase"

    def why_not(self, model: Any) -> str | None:
        """See :class:`Family`."""
        reason = subclass(model, nk.models.RBMModPhase) or other_activation(model)
        if reason is None and np.issubdtype(model.param_dtype, np.complexfloating):
            return almost("its parameters are complex, and those of modulus and phase have to be real")
        return reason

    def local_values(self, model: Any, variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        """See :class:`Family`."""
        params = variables["params"]
        modulus, phase = (
            linear(params[layer], None, form, samples, model.precision) for layer in ("Dense_0", "Dense_1")
        )
        return local_values(form, samples, modulus, phase)


register(RBMModPhase())
