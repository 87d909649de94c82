"""The networks of the benchmarks, most of them on periodic square lattices with one or two species of sites."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from netket.utils.group import Permutation, PermutationGroup

from ferroket.models import (
    DensityJastrow,
    DoublonHolon,
    Gutzwiller,
    PairProduct,
    Product,
    SlaterJastrow,
    spin_rotations,
    sublattice_translations,
)
from ferroket.models.pair_product import pair_elements

_SMALL = nn.initializers.normal(0.02)
"""For complex parameters: gelu has poles away from the real axis."""


class MLP(nn.Module):
    """Dense layers with GELUs between them."""

    hidden: tuple[int, ...] = (100, 200, 200)

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Gives ln ψ of configurations ``(n, N)``."""
        for features in self.hidden:
            x = nn.gelu(nn.Dense(features, param_dtype=float)(x))
        return nn.Dense(1, param_dtype=float)(x)[..., 0]


class ResCNN(nn.Module):
    """Residual blocks of 3×3 periodic convolutions, then a mean over the features and a sum over the sites."""

    shape: tuple[int, int]
    species: int = 1
    features: int = 4
    blocks: int = 2
    dtype: Any = float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Gives ln ψ of configurations ``(n, N)``."""
        convolution = partial(nn.Conv, kernel_size=(3, 3), padding="CIRCULAR", param_dtype=self.dtype)
        if jnp.issubdtype(self.dtype, complex):
            convolution = partial(convolution, kernel_init=_SMALL)
        x = _on_lattice(x, self.shape, self.species)
        x = convolution(self.features)(x)
        for _ in range(self.blocks):
            y = convolution(self.features)(nn.gelu(x))
            x = x + convolution(self.features)(nn.gelu(y))
        return nk.nn.activation.log_cosh(x).mean(axis=-1).sum(axis=(-2, -1))


class ViT(nn.Module):
    """A vision transformer: attention between patches of 2×2 sites, then a mean over the patches."""

    shape: tuple[int, int]
    species: int = 1
    features: int = 16
    heads: int = 4
    layers: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Gives ln ψ of configurations ``(n, N)``."""
        x = _on_lattice(x, self.shape, self.species)
        x = nn.Conv(self.features, (2, 2), strides=(2, 2), padding="VALID", param_dtype=float)(x)
        x = x.reshape(x.shape[0], -1, self.features)
        x = x + self.param("place", nn.initializers.normal(0.1), x.shape[-2:], float)
        for _ in range(self.layers):
            y = nn.LayerNorm(param_dtype=float)(x)
            x = x + nn.MultiHeadDotProductAttention(self.heads, param_dtype=float)(y, y)
            y = nn.Dense(2 * self.features, param_dtype=float)(nn.LayerNorm(param_dtype=float)(x))
            x = x + nn.Dense(self.features, param_dtype=float)(nn.gelu(y))
        return nk.nn.activation.log_cosh(x.mean(axis=-2)).sum(axis=-1)


def _on_lattice(x: jax.Array, shape: tuple[int, int], species: int) -> jax.Array:
    """Configurations ``(n, N)`` as images ``(n, *shape, species)``."""
    return jnp.moveaxis(x.reshape(-1, species, *shape), 1, -1).astype(float)


def gcnn(shape: tuple[int, int], species: int = 1) -> Any:
    """Convolutions over the translations of the lattice, which move all species together."""
    translations = np.asarray(nk.graph.Grid(shape, pbc=True).translation_group())
    sites = translations.shape[1]
    moved = np.concatenate([translations + species_ * sites for species_ in range(species)], axis=1)
    group = PermutationGroup([Permutation(permutation_array=row) for row in moved], degree=sites * species)
    return nk.models.GCNN(symmetries=group, layers=2, features=4, mode="irreps", param_dtype=float)


def gcnn_of_space_group(length: int) -> Any:
    """Convolutions over all symmetries of a square lattice, 8 for each site, by Fourier transforms."""
    square = nk.graph.Square(length)
    return nk.models.GCNN(square, layers=2, features=4, mode="fft", shape=(length, length), param_dtype=float)


def complex_mlp() -> Any:
    """NetKet's MLP with complex parameters."""
    return nk.models.MLP(hidden_dims=(100, 200, 200), param_dtype=complex, kernel_init=_SMALL)


ONE_LAYER = "one hidden layer"


def networks(shape: tuple[int, int], species: int) -> dict[str, Any]:
    """Networks whose amplitude ratios aren't known."""
    found = {
        "MLP": MLP(),
        ONE_LAYER: MLP((400,)),
        "ResCNN": ResCNN(shape, species),
        "GCNN": gcnn(shape, species),
        "ViT": ViT(shape, species),
    }
    if species == 1:
        found |= {
            "ResCNN, 16 features": ResCNN(shape, features=16, blocks=4),
            "ViT, 32 features, 4 layers": ViT(shape, features=32, layers=4),
            "complex MLP": complex_mlp(),
            "complex ResCNN": ResCNN(shape, dtype=complex),
        }
    return found


def _occupied(n: jax.Array, rows: jax.Array, count: int) -> jax.Array:
    """The rows of the modes that are occupied."""
    return rows[n.nonzero(size=count)[0]]


class Backflow(nn.Module):
    """Orbitals of each spin that a dense network changes, as users of NetKet write them."""

    hilbert: Any
    hidden: int = 64

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Gives ln ψ of occupations ``(n, N)``."""
        sites, fermions = self.hilbert.n_orbitals, self.hilbert.n_fermions_per_spin
        orbitals = [self.param(f"M_{spin}", _ORBITALS, (sites, count), float) for spin, count in enumerate(fermions)]
        features = jnp.tanh(nn.Dense(self.hidden, param_dtype=float)(x))
        changes = nn.Dense(sites * sum(fermions), param_dtype=float, kernel_init=_SMALL)(features)

        def log_psi(n: jax.Array, changes: jax.Array) -> jax.Array:
            ends = np.cumsum([matrix.size for matrix in orbitals])[:-1]
            return sum(
                nk.jax.logdet_cmplx(_occupied(own, matrix + change.reshape(matrix.shape), matrix.shape[1]))
                for own, matrix, change in zip(
                    jnp.split(n, len(orbitals)), orbitals, jnp.split(changes, ends), strict=True
                )
            )

        return jax.vmap(log_psi)(x, changes)


class HiddenFermions(nn.Module):
    """A determinant with rows that a dense network gives, as users of NetKet write it."""

    hilbert: Any
    n_hidden: int = 8
    features: int = 64

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Gives ln ψ of occupations ``(n, N)``."""
        fermions = self.hilbert.n_fermions
        columns = fermions + self.n_hidden
        orbitals = self.param("orbitals", _ORBITALS, (x.shape[-1], columns), float)
        features = jnp.tanh(nn.Dense(self.features, param_dtype=float)(x))
        rows = nn.Dense(self.n_hidden * columns, param_dtype=float)(features).reshape(-1, self.n_hidden, columns)

        def log_psi(n: jax.Array, rows: jax.Array) -> jax.Array:
            return nk.jax.logdet_cmplx(jnp.concatenate([_occupied(n, orbitals, fermions), rows]))

        return jax.vmap(log_psi)(x, rows)


class PairsByXLA(nn.Module):
    """:class:`ferroket.models.PairProduct` with JAX's determinants."""

    model: PairProduct

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Gives ln ψ of occupations ``(n, N)``."""
        orbits, _ = pair_elements(self.model)
        f = self.param("pairs", self.model.kernel_init, (orbits.max() + 1,), float)[orbits]
        fermions = self.model.hilbert.n_fermions_per_spin

        def log_psi(n: jax.Array) -> jax.Array:
            up, down = jnp.split(n, 2)
            return nk.jax.logdet_cmplx(_occupied(down, _occupied(up, f, fermions[0]).T, fermions[1]))

        return jax.vmap(log_psi)(x)


_ORBITALS = nn.initializers.normal(0.3)


def pairs(
    hilbert: Any,
    *,
    lattice: tuple[int, int] | None = None,
    angles: int | None = None,
    doublons: bool = False,
    by_xla: bool = False,
) -> Any:
    """MVMC's wave function: pairs of unequal spins with a Jastrow and a Gutzwiller factor.

    Args:
        hilbert: The space.
        lattice: Its extent, if parameters are tied by translations of 2×2 sites.
        angles: How many angles project it onto a singlet.
        doublons: With a factor of empty sites next to doubly occupied ones as well. It takes a lattice.
        by_xla: With JAX's determinants.
    """
    grid = None if lattice is None else nk.graph.Grid(lattice, pbc=True)
    ties: dict[str, Any] = {} if grid is None else {"translations": sublattice_translations(grid, (2, 2))}
    state = PairProduct(hilbert, rotations=None if angles is None else spin_rotations(0, angles), **ties)
    factors: list[Any] = [DensityJastrow(hilbert, **ties), Gutzwiller(hilbert, **ties)]
    if grid is not None and doublons:
        factors.append(DoublonHolon(hilbert, [grid.adjacency_list()]))
    return Product((PairsByXLA(state) if by_xla else state, *factors))


DETERMINANTS = {
    "Slater2nd": nk.models.Slater2nd,
    "MultiSlater2nd of 4": partial(nk.models.MultiSlater2nd, n_determinants=4),
    "SlaterJastrow": SlaterJastrow,
}
"""Wave functions of fermions by name, as functions of the Hilbert space."""

BACKFLOW = {"backflow MLP": Backflow, "hidden fermions": HiddenFermions}
"""Determinants of orbitals that depend on the configuration, alike."""
