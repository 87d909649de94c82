"""Slater determinants with Jastrow factors."""

from typing import Any

import flax.linen as nn
import jax
import netket as nk
from netket.nn.masked_linear import default_kernel_init

from ferroket.models.fermions import numbers_on_sites
from ferroket.models.pairs import sum_over_pairs


class SlaterJastrow(nn.Module):
    r"""A Slater determinant with a density-density Jastrow factor, and with a Gutzwiller factor if there are spins.

    .. math::

        \ln \psi(n) = \ln \psi_{\mathrm{Slater}}(n) + \sum_{i>j} v_{ij}\, n_i n_j + \sum_i g_i\, \frac{n_i (n_i - 1)}{2}

    with the number of fermions :math:`n_i = \sum_s n_{is}` on orbital i. For spin ½ the last sum is that of
    :math:`g_i n_{i\uparrow} n_{i\downarrow}`: M. C. Gutzwiller, Phys. Rev. Lett. 10, 159 (1963), and the pair
    factor R. Jastrow, Phys. Rev. 98, 1479 (1955).

    The parameters are those of :class:`netket.models.Slater2nd` under ``slater``; ``jastrow``, ``(L (L - 1) / 2,)``, v
    row by row below the diagonal; and ``gutzwiller``, g, ``(L,)``.

    Raises:
        TypeError: When its parameters are made, if the Hilbert space isn't one of fermions in second quantisation, or
            has no fixed number of them.
        ValueError: Alike, if ``restricted`` determinants have spin sectors with other numbers of fermions.
    """

    hilbert: Any
    """The :class:`netket.hilbert.SpinOrbitalFermions`, with fixed numbers of fermions."""

    generalized: bool = False
    """As in :class:`netket.models.Slater2nd`."""

    restricted: bool = True
    """As in :class:`netket.models.Slater2nd`."""

    kernel_init: Any = default_kernel_init
    """Initialises the orbitals."""

    param_dtype: Any = float
    """The dtype of the orbitals."""

    jastrow_init: Any = nn.initializers.normal(0.01)
    """Initialises v and g."""

    jastrow_dtype: Any = float
    """The dtype of v and g."""

    def setup(self) -> None:
        """Makes the parameters."""
        self.slater = nk.models.Slater2nd(
            self.hilbert,
            generalized=self.generalized,
            restricted=self.restricted,
            kernel_init=self.kernel_init,
            param_dtype=self.param_dtype,
        )
        sites = self.hilbert.n_orbitals
        self.jastrow = self.param("jastrow", self.jastrow_init, (sites * (sites - 1) // 2,), self.jastrow_dtype)
        if self.hilbert.n_spin_subsectors > 1:
            self.gutzwiller = self.param("gutzwiller", self.jastrow_init, (sites,), self.jastrow_dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """``ln ψ`` of occupations ``(..., N)``, of shape ``(...)``."""
        n = numbers_on_sites(x, self.hilbert.n_orbitals)
        log_psi: jax.Array = self.slater(x) + sum_over_pairs(n, self.jastrow)
        if self.hilbert.n_spin_subsectors > 1:
            log_psi += (n * (n - 1) / 2) @ self.gutzwiller
        return log_psi
