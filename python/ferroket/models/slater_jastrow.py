"""Slater determinants with Jastrow factors."""

from typing import Any

import flax.linen as nn
import jax
import netket as nk
import numpy as np
from netket.nn.masked_linear import default_kernel_init

from ferroket.ffi import log_determinants
from ferroket.models.fermions import check_fermions, numbers_on_sites, occupations, sectors_of
from ferroket.models.pairs import sum_over_pairs
from ferroket.models.ties import (
    bloch_orbitals,
    hashable,
    parameters_of_densities,
    parameters_of_sites,
    permutations_of,
)


class SlaterJastrow(nn.Module):
    r"""A Slater determinant with a density-density Jastrow factor, and with a Gutzwiller factor if there are spins.

    .. math::

        \ln \psi(n) = \ln \psi_{\mathrm{Slater}}(n) + \sum_{i>j} v_{ij}\, n_i n_j + \sum_i g_i\, \frac{n_i (n_i - 1)}{2}

    with the number of fermions :math:`n_i = \sum_s n_{is}` on orbital i. For spin ½ the last sum is that of
    :math:`g_i n_{i\uparrow} n_{i\downarrow}`: M. C. Gutzwiller, Phys. Rev. Lett. 10, 159 (1963), and the pair
    factor R. Jastrow, Phys. Rev. 98, 1479 (1955).

    The parameters are those of :class:`netket.models.Slater2nd` under ``slater``; ``jastrow``, ``(L (L - 1) / 2,)``, v
    row by row below the diagonal; and ``gutzwiller``, g, ``(L,)``. With ``translations`` there is one v and one g for
    each orbit of pairs and of sites. With ``characters`` orbitals are Bloch functions
    :math:`\phi_k(T r) = \chi_k(T) u_k(r)`, and the parameters are those of a unit of the lattice, ``orbitals_0``,
    ``orbitals_1``, …, ``(L / G, n)`` for each spin.

    Raises:
        TypeError: When its parameters are made, if the Hilbert space isn't one of fermions in second quantisation, or
            has no fixed number of them.
        ValueError: Alike, if ``restricted`` determinants have spin sectors with other numbers of fermions, or
            translations and characters don't fit the sites and orbitals.
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

    translations: Any = None
    """Permutations of sites that have parameters in common: a permutation group or an array ``(G, L)``, see
    :func:`sublattice_translations`."""

    characters: Any = None
    """χ of each orbital and translation, ``(n, G)``, see :func:`free_fermion_characters`; if orbitals aren't
    restricted, one array for each spin. Without them, orbitals have parameters of their own."""

    def __post_init__(self) -> None:
        """Makes arrays hashable, as JAX wants models to be."""
        self.translations = hashable(self.translations)
        if self.characters is not None:
            is_one = self.restricted and not isinstance(self.characters, tuple)
            self.characters = tuple(map(hashable, [self.characters] if is_one else self.characters))
        super().__post_init__()

    def setup(self) -> None:
        """Makes the parameters."""
        if self.characters is None:
            self.slater = nk.models.Slater2nd(
                self.hilbert,
                generalized=self.generalized,
                restricted=self.restricted,
                kernel_init=self.kernel_init,
                param_dtype=self.param_dtype,
            )
        else:
            check_bloch_functions(self)
            for spin, (cells, factors) in enumerate(bloch_functions(self)):
                shape = (int(cells.max()) + 1, factors.shape[1])
                self.param(f"orbitals_{spin}", self.kernel_init, shape, self.param_dtype)
        self.of_pairs, self.of_sites = correlation_orbits(self)
        n_pairs, n_sites = (int(orbits.max(initial=-1)) + 1 for orbits in (self.of_pairs, self.of_sites))
        self.jastrow = self.param("jastrow", self.jastrow_init, (n_pairs,), self.jastrow_dtype)
        if self.hilbert.n_spin_subsectors > 1:
            self.gutzwiller = self.param("gutzwiller", self.jastrow_init, (n_sites,), self.jastrow_dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """``ln ψ`` of occupations ``(..., N)``, of shape ``(...)``."""
        n = numbers_on_sites(x, self.hilbert.n_orbitals)
        # What isn't tied is taken as it is: its derivatives have closed forms.
        is_tied = self.translations is not None
        log_psi: jax.Array = self._log_determinants(x)
        log_psi += sum_over_pairs(n, self.jastrow[self.of_pairs] if is_tied else self.jastrow)
        if self.hilbert.n_spin_subsectors > 1:
            log_psi += (n * (n - 1) / 2) @ (self.gutzwiller[self.of_sites] if is_tied else self.gutzwiller)
        return log_psi

    def _log_determinants(self, x: jax.Array) -> jax.Array:
        if self.characters is None:
            log_psi: jax.Array = self.slater(x)
            return log_psi
        orbitals = bloch_orbitals_of(self, self.variables["params"])
        return log_determinants(occupations(x).reshape(-1, x.shape[-1]), orbitals).reshape(x.shape[:-1])


def correlation_orbits(model: SlaterJastrow) -> tuple[np.ndarray, np.ndarray]:
    """Which v each pair of sites has, in the order of :func:`numpy.tril_indices`, and which g each site."""
    sites = model.hilbert.n_orbitals
    return parameters_of_densities(model.translations, sites), parameters_of_sites(model.translations, sites)


def bloch_functions(model: SlaterJastrow) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of the orbitals of each spin, or of all: see :func:`~ferroket.models.ties.bloch_orbitals`."""
    translations = permutations_of(model.translations, model.hilbert.n_orbitals)
    return [bloch_orbitals(translations, np.asarray(characters)) for characters in model.characters]


def check_bloch_functions(model: SlaterJastrow) -> None:
    """Raises an error if characters don't fit the fermions.

    Raises:
        TypeError: As :class:`SlaterJastrow`.
        ValueError: Alike.
    """
    check_fermions(model.hilbert, type(model).__name__)
    sectors = [count for _, count in sectors_of(model.hilbert, generalized=False)]
    expected = sectors[:1] if model.restricted else sectors
    found = [factors.shape[1] for _, factors in bloch_functions(model)]
    if model.generalized or found != expected or len(set(sectors)) > len(expected):
        raise ValueError(
            f"characters are those of {expected} orbitals of {'both spins' if model.restricted else 'each spin'}, "
            f"which aren't generalized, but there are {found}: spins of other numbers of fermions have orbitals of "
            "their own, restricted=False"
        )
    is_complex = any(np.iscomplexobj(factors) for _, factors in bloch_functions(model))
    if is_complex and not np.issubdtype(model.param_dtype, np.complexfloating):
        raise ValueError("there are complex characters: take param_dtype=complex")


def bloch_orbitals_of(model: SlaterJastrow, params: Any) -> tuple[jax.Array, ...]:
    """The orbitals of each spin, ``(L, n)``."""
    found = [
        params[f"orbitals_{spin}"][cells] * factors for spin, (cells, factors) in enumerate(bloch_functions(model))
    ]
    return tuple(found * (model.hilbert.n_spin_subsectors if model.restricted else 1))
