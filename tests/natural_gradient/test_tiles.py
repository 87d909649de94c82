"""Hermitian matrices of which half is computed, against all of them."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ferroket._compat.sharding import AXIS
from ferroket.natural_gradient import tiles
from ferroket.natural_gradient.tiles import hermitian

N_COMPONENTS = 2


def products(rows: jax.Array, columns: jax.Array) -> jax.Array:
    return jnp.einsum("scn,tdn->sctd", rows, columns.conj())


def random_rows(n_samples: int) -> jax.Array:
    real, imag = np.random.default_rng(3).normal(size=(2, n_samples, N_COMPONENTS, 3))
    return jnp.asarray(real + 1j * imag)


@pytest.mark.parametrize("n_devices", [1, 2, 3, 4])
@pytest.mark.parametrize(("n_rows", "length"), [(1, 1), (4, 128), (4, 1), (6, 2), (7, 3)])
def test_all_elements(n_devices: int, n_rows: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one device or several, with tiles that fit and tiles that share samples."""
    monkeypatch.setitem(tiles._LENGTH, "cpu", length)
    rows = random_rows(n_devices * n_rows)
    on_devices = jax.vmap(partial(hermitian, products), (0, None), axis_name=AXIS)
    found = jax.jit(on_devices)(rows.reshape(n_devices, n_rows, *rows.shape[1:]), rows)
    np.testing.assert_allclose(found.reshape(*rows.shape[:2], *rows.shape[:2]), products(rows, rows), rtol=1e-13)


@pytest.mark.parametrize(("n_devices", "n_computed"), [(1, 36), (2, 8 * 9), (4, 8 * 17)])
def test_half_of_the_tiles_are_computed(n_devices: int, n_computed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 times 8 on a device, 8 times 16 on two, 8 times 32 on four; on several those half way round twice."""
    monkeypatch.setitem(tiles._LENGTH, "cpu", 2)
    shapes = [jax.ShapeDtypeStruct((n, N_COMPONENTS, 3), float) for n in (16, 16 * n_devices)]
    jaxpr = jax.make_jaxpr(partial(hermitian, products), axis_env=[(AXIS, n_devices)])(*shapes)
    assert [eqn.params["length"] for eqn in jaxpr.eqns if eqn.primitive.name == "scan"] == [n_computed]
