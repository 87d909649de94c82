"""``fk.models.SlaterJastrow``."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ansatz.amplitudes import Amplitudes, JastrowAmplitudes, ProductAmplitudes, SlaterAmplitudes
from ferroket.ansatz.registry import Ansatz, other_type, register
from ferroket.ansatz.slater import orbitals_of, other_space
from ferroket.models import SlaterJastrow
from ferroket.models.slater_jastrow import bloch_orbitals_of, correlation_orbits


class _SlaterJastrow(Ansatz):
    """A determinant times the exponential of pairs of occupations."""

    name = "SlaterJastrow"

    def unsupported_reason(self, model: Any) -> str | None:
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
        of_pairs, of_sites = correlation_orbits(model)
        lower = jnp.zeros((sites, sites), params["jastrow"].dtype).at[places].set(params["jastrow"][of_pairs])
        pairs = jnp.kron(jnp.ones((sectors, sectors)), lower + lower.T)
        if sectors > 1:
            pairs += jnp.kron(1 - jnp.eye(sectors), jnp.diag(params["gutzwiller"][of_sites]))
        own = orbitals_of(model, params["slater"]) if model.characters is None else bloch_orbitals_of(model, params)
        orbitals = tuple(sector[None] for sector in own)
        jastrow = JastrowAmplitudes(jnp.zeros_like(pairs[0]), pairs)
        return ProductAmplitudes((SlaterAmplitudes(orbitals), jastrow))


register(_SlaterJastrow())
