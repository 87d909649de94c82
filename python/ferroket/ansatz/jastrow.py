"""``nk.models.Jastrow``."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk

from ferroket.ansatz.amplitudes import Amplitudes, JastrowAmplitudes
from ferroket.ansatz.registry import Ansatz, other_type, register


class Jastrow(Ansatz):
    """ln ψ = Σ_{i>j} σ_i W_ij σ_j."""

    name = "Jastrow"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_type(model, nk.models.Jastrow)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        kernel = variables["params"]["kernel"]
        lower = jnp.zeros((first.size, first.size), kernel.dtype).at[jnp.tril_indices(first.size, k=-1)].set(kernel)
        symmetric = lower + lower.T
        return JastrowAmplitudes(step * (symmetric @ first), step[:, None] * symmetric * step)


register(Jastrow())
