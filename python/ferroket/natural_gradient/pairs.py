"""Log-derivatives of quadratic forms, in closed form: Jastrow factors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket.models.pairs import sum_over_pairs


@partial(jax.tree_util.register_dataclass, data_fields=["x", "delta"], meta_fields=[])
@dataclass(frozen=True)
class PairDerivatives:
    """Rows ``G_ij = δ x_i x_j`` of a sum ``y = Σ_{i>j} W_ij x_i x_j``, in the order of :func:`numpy.tril_indices`."""

    x: jax.Array
    """``(Ns, N)``, real."""
    delta: jax.Array
    """δ, the derivatives of ln ψ by y, ``(Ns, C)``; real if W is."""

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        return np.tril_indices(self.x.shape[1], k=-1)

    def dot(self, vector: jax.Array) -> jax.Array:
        """O·v, ``(Ns, C)``."""
        n_sites = self.x.shape[1]
        matrix = jnp.zeros((n_sites, n_sites), vector.dtype).at[self._places].set(vector)
        return self.delta * ((self.x @ matrix) * self.x).sum(axis=1, keepdims=True)

    def weighted_sum(self, weights: jax.Array) -> jax.Array:
        """Oᵀ·w for ``w (Ns, C)``."""
        return ((self.x * (self.delta * weights).sum(axis=1, keepdims=True)).T @ self.x)[self._places]

    def rows(self) -> jax.Array:
        """``(Ns, C, N (N − 1)/2)``."""
        first, second = self._places
        return self.delta[:, :, None] * (self.x[:, first] * self.x[:, second])[:, None]

    def gram(self, columns: "PairDerivatives", is_holomorphic: bool = False) -> jax.Array:
        """Products G·G'* with the rows of others, ``(Ns, C, Ns', C)``; their real parts unless ln ψ is holomorphic.

        They are ``δ δ'* Σ_{i>j} y_i y_j``, and the sum is ``((Σ y)² − Σ y²)/2`` for y = x x'.
        """
        squares = (self.x**2) @ (columns.x**2).T
        sums = (((self.x @ columns.x.T) ** 2 - squares) / 2)[:, None, :, None]
        scales = self.delta[:, :, None, None] * columns.delta.conj()
        return sums * (scales if is_holomorphic else scales.real)


def with_sums_over_pairs(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that traces a network, in which NetKet's Jastrow factors are :func:`sum_over_pairs`."""

    def interceptor(
        call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: nn.module.InterceptorContext
    ) -> Any:
        module = context.module
        # A subclass may be another function.
        if type(module) is nk.models.Jastrow and context.method_name == "__call__" and not module.is_initializing():
            (x,) = (*args, *kwargs.values())
            kernel: jax.Array = module.get_variable("params", "kernel")
            return sum_over_pairs(x.astype(jnp.result_type(x, jnp.finfo(kernel.dtype).dtype)), kernel)
        return call(*args, **kwargs)

    def traced(*args: Any) -> Any:
        with nn.intercept_methods(interceptor):
            return function(*args)

    return traced
