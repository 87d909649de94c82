"""A small network of N sites in frameworks other than linen."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx


class OfNnx(nnx.Module):
    def __init__(self, n_sites: int) -> None:
        self.dense = nnx.Linear(n_sites, 4, rngs=nnx.Rngs(0), param_dtype=jnp.float64)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.tanh(self.dense(x.astype(float))).sum(axis=-1)


class OfEquinox(eqx.Module):
    dense: eqx.nn.Linear

    def __init__(self, n_sites: int) -> None:
        self.dense = eqx.nn.Linear(n_sites, 4, key=jax.random.key(0), dtype=jnp.float64)

    def __call__(self, x: jax.Array, key: Any = None) -> jax.Array:  # NetKet 3.20 gives a key
        return jax.vmap(lambda one: jnp.tanh(self.dense(one.astype(float))).sum())(x)


FRAMEWORKS = {"NNX": OfNnx, "Equinox": OfEquinox}
