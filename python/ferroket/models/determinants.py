"""Determinants whose orbitals depend on the configuration: backflow, and hidden fermions."""

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from netket.nn.masked_linear import default_kernel_init

from ferroket.linalg import logdet
from ferroket.models.fermions import check_fermions, occupied_rows, sectors_of


class _HiddenLayers(nn.Module):
    """Dense layers of occupations, with a function behind each."""

    features: Sequence[int]
    activation: Callable[[jax.Array], jax.Array]
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for features in self.features:
            x = self.activation(nn.Dense(features, param_dtype=self.dtype)(x))
        return x


class Backflow(nn.Module):
    r"""Slater determinants with neural backflow: orbitals that a network changes for each configuration.

    .. math::

        \ln \psi(n) = \sum_s \ln \det \left[ M_s + F_s(n) \right]_{R_s(n)}

    with the modes :math:`R_s(n)` of spin s that are occupied, as rows. M are orbitals as those of
    :class:`netket.models.Slater2nd`, and F is what a dense layer makes of the features that the network gives:
    D. Luo and B. K. Clark, Phys. Rev. Lett. 122, 226401 (2019), arXiv:1807.10770.

    The parameters are ``M_0``, ``M_1``, …, orbitals ``(L, n_s)`` of each spin, or ``(L S, n)`` of all of them if they
    are generalised; those of the ``network``; and ``backflow``, a dense layer to as many numbers as there are orbitals.

    Raises:
        TypeError: When its parameters are made, if the Hilbert space isn't one of fermions in second quantisation, or
            has no fixed number of them.
    """

    hilbert: Any
    """The :class:`netket.hilbert.SpinOrbitalFermions`, with fixed numbers of fermions."""

    features: Sequence[int] = (64,)
    """How many features each hidden layer has."""

    network: nn.Module | None = None
    """What gives features ``(..., F)`` of occupations ``(..., N)``, in the place of hidden layers."""

    activation: Callable[[jax.Array], jax.Array] = jnp.tanh
    """The function behind each hidden layer."""

    generalized: bool = False
    """Whether each orbital is one of all spins. Else there is a determinant for each spin."""

    kernel_init: Any = default_kernel_init
    """Initialises M."""

    backflow_init: Any = nn.initializers.normal(0.01)
    """Initialises what makes F of features."""

    param_dtype: Any = float
    """The dtype of the parameters, real or complex."""

    def setup(self) -> None:
        """Makes the parameters."""
        check_fermions(self.hilbert, type(self).__name__)
        shapes = sectors_of(self.hilbert, generalized=self.generalized)
        self.orbitals = [
            self.param(f"M_{sector}", self.kernel_init, shape, self.param_dtype) for sector, shape in enumerate(shapes)
        ]
        self.hidden = self.network or _HiddenLayers(self.features, self.activation, self.param_dtype)
        count = sum(modes * fermions for modes, fermions in shapes)
        self.backflow = nn.Dense(count, kernel_init=self.backflow_init, param_dtype=self.param_dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """``ln ψ`` of occupations ``(..., N)``, complex ``(...)``."""
        changes = self.backflow(self.hidden(x))
        log_psi: Any = 0
        first = place = 0
        for orbitals in self.orbitals:
            modes, fermions = orbitals.shape
            change = changes[..., first : first + orbitals.size].reshape(*x.shape[:-1], modes, fermions)
            rows = occupied_rows(orbitals + change, x[..., place : place + modes], fermions)
            log_psi += logdet(rows)
            first, place = first + orbitals.size, place + modes
        result: jax.Array = log_psi
        return result


class HiddenFermions(nn.Module):
    r"""A determinant of visible and hidden fermions, whose places depend on those of the visible ones.

    .. math::

        \ln \psi(n) = \ln \det \begin{pmatrix} \Phi_{R(n)} \\ H(n) \end{pmatrix}

    with orbitals Φ, ``(N, f + h)``, whose rows are those of the f modes R(n) that are occupied, and h rows H(n) that a
    network gives: J. Robledo Moreno, G. Carleo, A. Georges, J. Stokes, PNAS 119, e2122059119 (2022),
    arXiv:2111.10420.

    The parameters are ``orbitals``, Φ; those of the ``network``; and ``hidden``, a dense layer to h (f + h) numbers.

    Raises:
        TypeError: As :class:`Backflow`.
        ValueError: When its parameters are made, if there are no hidden fermions.
    """

    hilbert: Any
    """The :class:`netket.hilbert.SpinOrbitalFermions`, with fixed numbers of fermions."""

    n_hidden: int = 4
    """h, the number of hidden fermions."""

    features: Sequence[int] = (64,)
    """How many features each hidden layer has."""

    network: nn.Module | None = None
    """What gives features ``(..., F)`` of occupations ``(..., N)``, in the place of hidden layers."""

    activation: Callable[[jax.Array], jax.Array] = jnp.tanh
    """The function behind each hidden layer."""

    kernel_init: Any = default_kernel_init
    """Initialises Φ."""

    param_dtype: Any = float
    """The dtype of the parameters, real or complex."""

    def setup(self) -> None:
        """Makes the parameters."""
        check_fermions(self.hilbert, type(self).__name__)
        if self.n_hidden < 1:
            raise ValueError(f"n_hidden is {self.n_hidden}: without hidden fermions it is a nk.models.Slater2nd")
        fermions = self.hilbert.n_fermions + self.n_hidden
        self.orbitals = self.param("orbitals", self.kernel_init, (self.hilbert.size, fermions), self.param_dtype)
        self.layers = self.network or _HiddenLayers(self.features, self.activation, self.param_dtype)
        self.hidden = nn.Dense(self.n_hidden * fermions, param_dtype=self.param_dtype, bias_init=self._rows_init)

    def _rows_init(self, key: Any, shape: Sequence[int], dtype: Any) -> jax.Array:
        """The rows of hidden fermions at first: as those of visible ones, or the determinant would be close to 0."""
        rows: jax.Array = self.kernel_init(key, (self.n_hidden, shape[0] // self.n_hidden), dtype)
        return rows.reshape(shape)

    def __call__(self, x: jax.Array) -> jax.Array:
        """``ln ψ`` of occupations ``(..., N)``, complex ``(...)``."""
        hidden = self.hidden(self.layers(x)).reshape(*x.shape[:-1], self.n_hidden, self.orbitals.shape[1])
        visible = occupied_rows(self.orbitals, x, self.hilbert.n_fermions)
        return logdet(jnp.concatenate([visible, hidden], axis=-2))
