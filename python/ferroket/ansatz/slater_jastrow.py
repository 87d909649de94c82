"""``fk.models.SlaterJastrow``."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ansatz.amplitudes import Amplitudes, JastrowAmplitudes, ProductAmplitudes, SlaterAmplitudes
from ferroket.ansatz.registry import Ansatz, other_type, register
from ferroket.ansatz.slater import orbitals_of, other_space
from ferroket.models import SlaterJastrow


class _SlaterJastrow(Ansatz):
    """A determinant times the exponential of pairs of occupations."""

    name = "SlaterJastrow"

    def why_not(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_type(model, SlaterJastrow)

    def why_not_on(self, model: Any, hilbert: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_space(model, hilbert)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        params, sites = variables["params"], model.hilbert.n_orbitals
        sectors = first.size // sites
        places = np.tril_indices(sites, k=-1)
        lower = jnp.zeros((sites, sites), params["jastrow"].dtype).at[places].set(params["jastrow"])
        pairs = jnp.kron(jnp.ones((sectors, sectors)), lower + lower.T)
        if sectors > 1:
            pairs += jnp.kron(1 - jnp.eye(sectors), jnp.diag(params["gutzwiller"]))
        orbitals = tuple(sector[None] for sector in orbitals_of(model, params["slater"]))
        jastrow = JastrowAmplitudes(jnp.zeros_like(pairs[0]), pairs)
        return ProductAmplitudes((SlaterAmplitudes(orbitals), jastrow))


register(_SlaterJastrow())
