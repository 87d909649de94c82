"""Factors of wave functions that depend on the numbers of fermions on sites: Gutzwiller's, Jastrow's and more."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np

from ferroket.models.fermions import check_fermions, numbers_on_sites
from ferroket.models.pairs import sum_over_pairs
from ferroket.models.ties import hashable, parameters_of_densities, parameters_of_sites

_INIT = nn.initializers.normal(0.01)


class Gutzwiller(nn.Module):
    r"""Gutzwiller's factor, :math:`\ln \psi(n) = \sum_i g_i\, n_{i\uparrow} n_{i\downarrow}`.

    M. C. Gutzwiller, Phys. Rev. Lett. 10, 159 (1963). The parameter is ``gutzwiller``, g, ``(L,)``, or one for each
    orbit of sites. Take it as a factor of a :class:`Product`.

    Raises:
        TypeError: When its parameters are made, if the Hilbert space isn't one of fermions.
        ValueError: Alike, if there are no two spins, or the translations aren't permutations of the sites.
    """

    hilbert: Any
    """The :class:`netket.hilbert.SpinOrbitalFermions`, with two spins."""

    translations: Any = None
    """Permutations of sites that have the same g: a permutation group or an array ``(G, L)``, see
    :func:`sublattice_translations`; or :class:`TiedParameters`."""

    kernel_init: Any = _INIT
    """Initialises g."""

    param_dtype: Any = float
    """The dtype of g."""

    def __post_init__(self) -> None:
        """Makes arrays hashable, as JAX wants models to be."""
        self.translations = hashable(self.translations)
        super().__post_init__()

    def setup(self) -> None:
        """Makes the parameters."""
        check_fermions(self.hilbert, type(self).__name__, spins=2)
        self.orbits = parameters_of_sites(self.translations, self.hilbert.n_orbitals)
        self.gutzwiller = self.param("gutzwiller", self.kernel_init, (self.orbits.max() + 1,), self.param_dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """``ln ψ`` of occupations ``(..., N)``, of shape ``(...)``."""
        n = numbers_on_sites(x, self.hilbert.n_orbitals)
        log_psi: jax.Array = (n * (n - 1) / 2) @ self.gutzwiller[self.orbits]
        return log_psi


class DensityJastrow(nn.Module):
    r"""A factor of densities, :math:`\ln \psi(n) = \sum_{i>j} v_{ij}\, (n_i - 1)(n_j - 1)`.

    R. Jastrow, Phys. Rev. 98, 1479 (1955); the densities are those of T. Misawa et al., Comput. Phys. Commun. 235, 447
    (2019), mVMC's paper. The parameter is ``jastrow``, v row by row below the diagonal, ``(L (L − 1) / 2,)``, or one
    for each orbit of pairs, in the same order. Take it as a factor of a :class:`Product`.

    Raises:
        TypeError: When its parameters are made, if the Hilbert space isn't one of fermions.
        ValueError: Alike, if the translations aren't permutations of the sites.
    """

    hilbert: Any
    """The :class:`netket.hilbert.SpinOrbitalFermions`."""

    translations: Any = None
    """Permutations of sites whose pairs have the same v: a permutation group or an array ``(G, L)``, see
    :func:`sublattice_translations`; or :class:`TiedParameters`."""

    kernel_init: Any = _INIT
    """Initialises v."""

    param_dtype: Any = float
    """The dtype of v."""

    def __post_init__(self) -> None:
        """Makes arrays hashable, as JAX wants models to be."""
        self.translations = hashable(self.translations)
        super().__post_init__()

    def setup(self) -> None:
        """Makes the parameters."""
        check_fermions(self.hilbert, type(self).__name__, spins=None)
        self.orbits = parameters_of_densities(self.translations, self.hilbert.n_orbitals)
        self.jastrow = self.param("jastrow", self.kernel_init, (self.orbits.max(initial=-1) + 1,), self.param_dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """``ln ψ`` of occupations ``(..., N)``, of shape ``(...)``."""
        n = numbers_on_sites(x, self.hilbert.n_orbitals)
        return sum_over_pairs(n - 1, self.jastrow[self.orbits])


class DoublonHolon(nn.Module):
    r"""A factor of how many empty sites there are around doubly occupied ones, and the other way round.

    .. math::

        \ln \psi(n) = \sum_{s} \sum_i \left[ D_i\, \alpha^{D}_{s, h_s(i)} + H_i\, \alpha^{H}_{s, d_s(i)} \right]

    with :math:`D_i = n_{i\uparrow} n_{i\downarrow}`, :math:`H_i = (1 - n_{i\uparrow})(1 - n_{i\downarrow})`, and the
    numbers :math:`h_s(i)` of empty and :math:`d_s(i)` of doubly occupied sites among the neighbours of site i in shell
    s: H. Yokoyama and H. Shiba, J. Phys. Soc. Jpn. 59, 3669 (1990). With two and with four neighbours a shell these are
    the factors of mVMC.

    The parameters are ``shell_0``, ``shell_1``, …, α of each shell, ``(2, z + 1)`` for z neighbours: of doubly occupied
    sites, and of empty ones. Take it as a factor of a :class:`Product`.

    Raises:
        TypeError: When its parameters are made, if the Hilbert space isn't one of fermions.
        ValueError: Alike, if there are no two spins, or neighbours aren't sites.
    """

    hilbert: Any
    """The :class:`netket.hilbert.SpinOrbitalFermions`, with two spins."""

    neighbours: Any
    """For each shell the neighbours of each site: arrays ``(L, z)``."""

    kernel_init: Any = _INIT
    """Initialises α."""

    param_dtype: Any = float
    """The dtype of α."""

    def __post_init__(self) -> None:
        """Makes arrays hashable, as JAX wants models to be."""
        self.neighbours = tuple(map(hashable, self.neighbours))
        super().__post_init__()

    def setup(self) -> None:
        """Makes the parameters."""
        check_fermions(self.hilbert, type(self).__name__, spins=2)
        n_sites = self.hilbert.n_orbitals
        self.shells = [np.asarray(shell) for shell in self.neighbours]
        for shell in self.shells:
            if shell.ndim != 2 or len(shell) != n_sites or (shell < 0).any() or (shell >= n_sites).any():  # noqa: PLR2004
                raise ValueError(f"a shell names the neighbours of {n_sites} sites, (L, z), but got {shell.shape}")
        self.alphas = [
            self.param(f"shell_{number}", self.kernel_init, (2, shell.shape[1] + 1), self.param_dtype)
            for number, shell in enumerate(self.shells)
        ]

    def __call__(self, x: jax.Array) -> jax.Array:
        """``ln ψ`` of occupations ``(..., N)``, of shape ``(...)``."""
        n = numbers_on_sites(x, self.hilbert.n_orbitals)
        doublons, holons = (n == 2).astype(self.param_dtype), (n == 0).astype(self.param_dtype)  # noqa: PLR2004
        log_psi: Any = 0
        for shell, alpha in zip(self.shells, self.alphas, strict=True):
            for of_sites, others, own in ((doublons, holons, alpha[0]), (holons, doublons, alpha[1])):
                count = others[..., shell].sum(axis=-1)
                for number in range(shell.shape[1] + 1):
                    log_psi += own[number] * (of_sites * (count == number)).sum(axis=-1)
        result: jax.Array = log_psi
        return result
