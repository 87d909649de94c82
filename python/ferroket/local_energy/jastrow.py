"""``nk.models.Jastrow``."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk

from ferroket.local_energy.family import Family, of_amplitudes, planes, register, steps
from ferroket.local_energy.rbm import subclass
from ferroket.operator.compiled import Terms


class Jastrow(Family):
    """ln ψ = Σ_{i>j} σ_i W_ij σ_j; see ``rust/kernels/src/jastrow.rs`` for the formula."""

    name = "Jastrow"

    def why_not(self, model: Any) -> str | None:
        """See :class:`Family`."""
        return subclass(model, nk.models.Jastrow)

    def local_values(self, model: Any, variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        """See :class:`Family`."""
        kernel = variables["params"]["kernel"]
        n_sites = samples.shape[-1]
        dtype = jnp.result_type(samples.dtype, kernel.dtype)
        rows, columns = jnp.tril_indices(n_sites, k=-1)

        def symmetric(kernel: jax.Array) -> jax.Array:
            lower = jnp.zeros((n_sites, n_sites), kernel.dtype).at[rows, columns].set(kernel)
            return lower + lower.T

        step = steps(form, dtype)
        # Real and imaginary part by themselves: the samples are real.
        parts = [symmetric(part) for part in planes(kernel.astype(dtype))]
        real = samples.astype(step.dtype)
        fields = jnp.stack([(real @ part) * step for part in parts])
        pairs = jnp.stack([step[:, None] * part * step for part in parts])
        return of_amplitudes("jastrow", [fields, pairs], form, samples)


register(Jastrow())
