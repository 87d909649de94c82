"""Configurations that occur again are evaluated once."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from netket.vqs.mc.kernels import local_value_kernel_jax

import ferroket as fk
from ferroket.ffi import distinct_rows
from ferroket.local_energy import local_values


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("n_sites", [0, 1, 3, 70])
def test_the_rows_that_differ(dtype: Any, n_sites: int) -> None:
    rng = np.random.default_rng(1)
    pool = rng.integers(0, 2, (40, n_sites)).astype(dtype)
    x, used = pool[rng.integers(0, 40, 3000)], 2900
    distinct, place, count = map(np.asarray, jax.jit(distinct_rows)(x, jnp.int32(used)))
    expected, first = np.unique(x[:used], axis=0, return_index=True)
    assert count == len(expected)
    np.testing.assert_array_equal(distinct[:count], x[np.sort(first)])
    np.testing.assert_array_equal(distinct[place[:used]], x[:used])
    np.testing.assert_array_equal(place[used:], 0)
    assert distinct.dtype == dtype


def test_none() -> None:
    distinct, place, count = distinct_rows(jnp.ones((4, 2)), jnp.int32(0))
    assert (distinct.shape, place.shape, int(count)) == ((4, 2), (4,), 0)


def evaluate(samples: Any) -> tuple[np.ndarray, int]:
    """Local values, compared with NetKet's, and how many configurations the network has seen."""
    hilbert = nk.hilbert.Spin(0.5, samples.shape[-1])
    operator = fk.operator.Ising(hilbert, nk.graph.Chain(hilbert.size), h=0.7)
    weights = jnp.asarray(np.random.default_rng(2).normal(size=hilbert.size))
    seen = []

    def counting(weights: Any, x: Any) -> jax.Array:
        jax.debug.callback(lambda x: seen.append(len(x)), x)
        return jnp.tanh(x @ weights)

    found = jax.jit(local_values, static_argnums=0, static_argnames="chunk_size")(
        counting, weights, samples, operator, chunk_size=128
    )
    jax.effects_barrier()
    expected = local_value_kernel_jax(lambda weights, x: jnp.tanh(x @ weights), weights, samples, operator)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    return np.asarray(found), sum(seen)


def test_samples_that_are_the_same_cost_one() -> None:
    n_samples, n_sites = 512, 12
    hilbert = nk.hilbert.Spin(0.5, n_sites)
    different = hilbert.random_state(jax.random.key(1), n_samples).astype(np.int8)
    assert evaluate(different)[1] > n_samples * n_sites / 3
    alike = jnp.broadcast_to(different[:1], different.shape)
    values, n_seen = evaluate(alike)
    np.testing.assert_allclose(values, values[0], rtol=1e-12)
    # The samples themselves, and a chunk for each eight.
    assert n_seen <= n_samples + n_samples * n_sites / 8 + 128


def test_where_all_differ_none_is_looked_for_any_more() -> None:
    """The first chunks tell; what comes then is evaluated as it is."""
    n_sites = 40
    different = nk.hilbert.Spin(0.5, n_sites).random_state(jax.random.key(1), 512).astype(np.int8)
    n_elements = 512 * n_sites
    assert evaluate(different)[1] == 512 + n_elements
