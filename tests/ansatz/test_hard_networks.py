"""Networks that are easily taken for what they aren't: samples, local energies and updates as in NetKet."""

from collections.abc import Callable
from dataclasses import field
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

from support.network_checks import GATE, SETTINGS, check_network

pytestmark = [pytest.mark.usefixtures("quick_compilation"), pytest.mark.filterwarnings("ignore")]

normal = nn.initializers.normal()
TABLE = jnp.asarray(np.random.default_rng(0).normal(size=(64, 3)))
TRANSLATIONS = jnp.asarray([[(i + k) % 6 for i in range(6)] for k in range(6)])


@jax.custom_jvp
def by_numpy(y: jax.Array) -> jax.Array:
    """A function that JAX can't vmap."""
    return jax.pure_callback(lambda a: np.tanh(np.asarray(a)), jax.ShapeDtypeStruct(y.shape, y.dtype), y)


by_numpy.defjvp(lambda primals, tangents: (by_numpy(*primals), (1 - by_numpy(*primals) ** 2) * tangents[0]))


def out(y: jax.Array) -> jax.Array:
    return nk.nn.log_cosh(y).sum(axis=-1)


def dense(net: Any, x: jax.Array, width: int = 4, dtype: Any = float) -> jax.Array:
    return nn.Dense(width, param_dtype=dtype, parent=net)(x)


def padded(s: jax.Array, before: int, behind: int) -> jax.Array:
    return jnp.concatenate([jnp.zeros((len(s), before)), s, jnp.zeros((len(s), behind))], axis=-1)


# Products of neighbours, which are no sums over the sites


def beside_zeros(net: Any, s: jax.Array) -> jax.Array:
    return 0.7 * (padded(s, 1, 2) * padded(s, 2, 1)).sum(axis=-1)


def lax_padded(net: Any, s: jax.Array) -> jax.Array:
    zero = jnp.zeros(())
    one, other = (jax.lax.pad(s, zero, [(0, 0, 0), (low, high, 1)]) for low, high in ((-1, 2), (1, 0)))
    return 0.3 * out(one * other + dense(net, s, 12))


def rolled(net: Any, s: jax.Array) -> jax.Array:
    return 0.4 * (jnp.roll(s, 1, axis=-1) * jnp.roll(s, 2, axis=-1)).sum(axis=-1)


def reversed_slices(net: Any, s: jax.Array) -> jax.Array:
    return 0.5 * (s[:, ::2] * s[:, ::-2]).sum(axis=-1) + out(dense(net, s[:, 1::2]))


def gathered(net: Any, s: jax.Array) -> jax.Array:
    return 0.4 * (s[:, np.array([0, 0, 1, 2])] * s[:, np.array([1, 2, 1, 5])]).sum(axis=-1)


def chosen_by_configurations(net: Any, s: jax.Array) -> jax.Array:
    """Of a row of sites each takes another one, as its own number says."""
    places = jnp.where(s > 0, jnp.arange(6), (jnp.arange(6) + 2) % 6)
    return out(dense(net, jnp.take_along_axis(s * jnp.arange(1.0, 7.0), places, axis=-1) / 6))


# Tables and functions


def looked_up(net: Any, s: jax.Array) -> jax.Array:
    """In a table that the network closes over."""
    return out(dense(net, TABLE[((s + 1) // 2).astype(int) @ 2 ** np.arange(6)]))


def translated(net: Any, s: jax.Array) -> jax.Array:
    """In several orders, by indices that the network closes over."""
    return 0.3 * out(dense(net, s[..., TRANSLATIONS])).sum(axis=-1)


def called_back(net: Any, s: jax.Array) -> jax.Array:
    return by_numpy(dense(net, s)).sum(axis=-1)


# Parameters that are used more than once


def tied(net: Any, s: jax.Array) -> jax.Array:
    w, b = net.param("w", normal, (6, 4), float), net.param("b", normal, (4,), float)
    return 0.3 * out(jnp.tanh(s @ w + b) @ w.T + b.sum())


def shared_bias(net: Any, s: jax.Array) -> jax.Array:
    w, b = net.param("w", normal, (6, 4), float), net.param("b", normal, (4,), float)
    return out(jnp.tanh(s @ w + b)) + 0.3 * b.sum() * out(s @ w)


def shifted_by_the_bias(net: Any, s: jax.Array) -> jax.Array:
    w, b = net.param("w", normal, (6, 4), float), net.param("b", normal, (4,), float)
    return out(jnp.tanh(s @ w + b) + b.sum())


# Forbidden configurations


def forbidden(value: float, minus: float, dtype: Any = float) -> Callable[[Any, jax.Array], jax.Array]:
    def log_psi(net: Any, s: jax.Array) -> jax.Array:
        is_forbidden = (s == value) & (np.arange(6) == 2)
        y = 0.3 * jnp.tanh(dense(net, s.astype(dtype), dtype=dtype)).sum(axis=-1)
        return y + jnp.where(is_forbidden, jnp.asarray(minus, dtype), 0.4 * s.astype(dtype)).sum(axis=-1)

    return log_psi


def forbidden_pair(net: Any, s: jax.Array) -> jax.Array:
    """No two neighbours that are up, of the first three sites."""
    up = s[:, :3] > 0
    return jnp.where((up & jnp.roll(up, 1, axis=-1)).any(axis=-1), -jnp.inf, out(dense(net, s)))


def logarithm_of_zero(net: Any, s: jax.Array) -> jax.Array:
    weights = (s[:, :2] + 1) / 2 @ jnp.array([1.0, 0.5])
    return jnp.log(weights) + out(dense(net, s))


# Configurations that the network takes together


def behind_a_gate(net: Any, s: jax.Array) -> jax.Array:
    y = dense(net, s)
    return out(y - net.param(GATE, nn.initializers.zeros, (), float) * y.mean(axis=0))


def normalised(net: Any, s: jax.Array) -> jax.Array:
    y = dense(net, s)
    y = (y - y.mean(axis=0)) / jnp.sqrt(y.var(axis=0) + 1e-5)
    return jnp.tanh(y) @ net.param("w", normal, (4,), float)


class Network(nn.Module):
    """ln ψ of a function."""

    function: Callable[[Any, jax.Array], jax.Array] = field(hash=True)
    mixes_samples: bool = False
    bits: int = 64

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        # Some parameter is needed that matters.
        slope = self.param("slope", normal, (6,), float if self.bits == 64 else np.float32)
        return self.function(self, x.astype(float)) + 0.1 * x @ slope


class SquashedJastrow(nk.models.Jastrow):
    """A known model only in name."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return 3 * jnp.tanh(super().__call__(x))


class RolledRBM(nk.models.RBM):
    """Also with the same parameters, of other configurations."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return super().__call__(x * jnp.roll(x, 1, axis=-1))


NETWORKS = {
    **{
        function.__name__: Network(function)
        for function in (
            *(beside_zeros, lax_padded, rolled, reversed_slices, gathered, chosen_by_configurations),
            *(looked_up, translated, called_back, tied, shared_bias, shifted_by_the_bias),
            *(forbidden_pair, logarithm_of_zero),
        )
    },
    "forbidden_first_state": Network(forbidden(1.0, -np.inf)),
    "forbidden_second_state": Network(forbidden(-1.0, -np.inf)),
    "forbidden_by_a_large_number": Network(forbidden(1.0, -1e30)),
    "forbidden_in_single_precision": Network(forbidden(-1.0, -1e9, np.float32), bits=32),
    "behind_a_gate": Network(behind_a_gate, mixes_samples=True),
    "normalised": Network(normalised, mixes_samples=True),
    "subclass_of_jastrow": SquashedJastrow(param_dtype=float),
    "subclass_of_jastrow, complex": SquashedJastrow(param_dtype=complex),
    "subclass_of_rbm": RolledRBM(param_dtype=float),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    check_network(SETTINGS["local"], NETWORKS[name])
