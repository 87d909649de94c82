"""``nk.models.RBMModPhase``."""

from typing import Any

import jax
import netket as nk
import numpy as np

from ferroket.ansatz.amplitudes import Amplitudes, ModulusAndPhase
from ferroket.ansatz.rbm import of_layer
from ferroket.ansatz.registry import Almost, Ansatz, other_activation, other_type, register
from ferroket.reasons import ReasonKind


class RBMModPhase(Ansatz):
    """ln ψ = Σ ln cosh(σ W + b) + i Σ ln cosh(σ V + c), with real parameters."""

    name = "RBMModPhase"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        reason = other_type(model, nk.models.RBMModPhase) or other_activation(model)
        if reason is None and np.issubdtype(model.param_dtype, np.complexfloating):
            text = "its parameters are complex, and those of modulus and phase have to be real"
            return Almost(text, ReasonKind.DTYPE)
        return reason

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        params = variables["params"]
        modulus, phase = (of_layer(params[layer], None, first, step) for layer in ("Dense_0", "Dense_1"))
        return ModulusAndPhase(modulus, phase)


register(RBMModPhase())
