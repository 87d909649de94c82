"""``nk.models.Jastrow``."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk

from ferroket.local_energy.amplitudes import Amplitudes, Quadratic
from ferroket.local_energy.family import Family, register
from ferroket.local_energy.rbm import subclass


class Jastrow(Family):
    """ln ψ = Σ_{i>j} σ_i W_ij σ_j."""

    name = "Jastrow"

    def why_not(self, model: Any) -> str | None:
        """See :class:`Family`."""
        return subclass(model, nk.models.Jastrow)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`Family`."""
        kernel = variables["params"]["kernel"]
        lower = jnp.zeros((first.size, first.size), kernel.dtype).at[jnp.tril_indices(first.size, k=-1)].set(kernel)
        symmetric = lower + lower.T
        return Quadratic(step * (symmetric @ first), step[:, None] * symmetric * step)


register(Jastrow())
