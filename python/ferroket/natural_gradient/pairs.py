"""Log-derivatives of a quadratic form, in closed form: NetKet's Jastrow factor."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


@partial(jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=[])
@dataclass(frozen=True)
class Pairs:
    """Rows ``G_ij = x_i x_j`` of ``ln ψ(x) = Σ_{i>j} W_ij x_i x_j``, in the order of :func:`numpy.tril_indices`."""

    x: jax.Array
    """``(Ns, N)``, real."""

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        return np.tril_indices(self.x.shape[1], k=-1)

    def dot(self, vector: jax.Array) -> jax.Array:
        """O·v, ``(Ns, 1)``."""
        n_sites = self.x.shape[1]
        matrix = jnp.zeros((n_sites, n_sites), vector.dtype).at[self._places].set(vector)
        return ((self.x @ matrix) * self.x).sum(axis=1, keepdims=True)

    def weighted_sum(self, weights: jax.Array) -> jax.Array:
        """Oᵀ·w for ``w (Ns, 1)``."""
        return ((self.x * weights).T @ self.x)[self._places]

    def rows(self) -> jax.Array:
        """``(Ns, 1, N (N − 1)/2)``."""
        first, second = self._places
        return (self.x[:, first] * self.x[:, second])[:, None]

    def gram(self, columns: "Pairs") -> jax.Array:
        """Products with the rows of others, ``(Ns, 1, Ns', 1)``.

        They are ``Σ_{i>j} y_i y_j = ((Σ y)² − Σ y²)/2`` for y = x x'.
        """
        squares = (self.x**2) @ (columns.x**2).T
        return (((self.x @ columns.x.T) ** 2 - squares) / 2)[:, None, :, None]
