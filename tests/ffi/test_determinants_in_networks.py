"""The primitives of determinants, against numpy, in every batch, and where there are no CPUs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ferroket.ffi import determinant_ratios, log_determinants, log_determinants_p
from ferroket.ffi.determinants import _reference

MODES, FERMIONS = 5, (3, 2)
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def orbitals(dtype: Any = np.float64, determinants: int | None = None, fermions: tuple[int, ...] = FERMIONS) -> Any:
    rng = np.random.default_rng(1)

    def of_sector(count: int) -> np.ndarray:
        shape = (MODES, count) if determinants is None else (determinants, MODES, count)
        numbers = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        return (numbers if np.issubdtype(dtype, np.complexfloating) else numbers.real).astype(dtype)

    return [of_sector(count) for count in fermions]


def occupied(samples: int, seed: int = 0, fermions: tuple[int, ...] = FERMIONS) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = [[rng.permutation(np.arange(MODES) < count) for count in fermions] for _ in range(samples)]
    return np.array(rows, np.int8).reshape(samples, -1)


def by_numpy(n: np.ndarray, sectors: Any) -> tuple[complex, list[np.ndarray]]:
    """ψ, and the derivatives of ln ψ by the orbitals of each sector, of one configuration."""
    psi, rows = 1.0 + 0j, []
    for of_sector, here in zip(sectors, n.reshape(len(sectors), -1), strict=True):
        matrix = of_sector[here.astype(bool)].astype(complex)
        psi *= np.linalg.det(matrix)
        rows.append(np.zeros(of_sector.shape, complex))
        rows[-1][here.astype(bool)] = np.linalg.inv(matrix).T
    return psi, rows


@pytest.mark.parametrize("fermions", [FERMIONS, (4,), (0, 5), (1, 0, 2)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", ["CPU", "elsewhere"])
def test_logarithms_and_derivatives(where: str, dtype: Any, fermions: tuple[int, ...]) -> None:
    n, sectors = occupied(7, fermions=fermions), orbitals(dtype, fermions=fermions)
    arguments = (jnp.asarray(n, jnp.uint8)[:, None], *(jnp.asarray(sector)[None] for sector in sectors))
    evaluate = log_determinants_p.bind if where == "CPU" else _reference
    log_psi, *rows = evaluate(*arguments, rows=True)
    assert log_psi.dtype == np.promote_types(dtype, np.complex64)
    tolerance = 2e-3 if np.finfo(dtype).bits == 32 else 1e-10
    for sample, of_sample in enumerate(n):
        psi, expected = by_numpy(of_sample, sectors)
        np.testing.assert_allclose(np.exp(log_psi[sample, 0]), psi, rtol=tolerance)
        for found, here in zip(rows, expected, strict=True):
            assert found.dtype == dtype
            np.testing.assert_allclose(found[sample, 0], here, rtol=tolerance, atol=tolerance)


def test_every_batch() -> None:
    n, sectors, several = occupied(6), orbitals(), orbitals(determinants=4)
    alone = np.array([[log_determinants(n, [sector[d] for sector in several]) for d in range(4)]])[0]

    def close(found: Any, expected: Any) -> None:
        np.testing.assert_allclose(np.exp(found), np.exp(expected), rtol=1e-12)

    close(jax.vmap(lambda row: log_determinants(row[None], sectors)[0])(n), log_determinants(n, sectors))
    close(jax.vmap(log_determinants, (None, 0))(n, several), alone)
    close(jax.vmap(log_determinants, (None, 0), 1)(n, several), alone.T)
    both = jax.vmap(jax.vmap(lambda row, sectors: log_determinants(row[None], sectors)[0], (0, None)), (None, 0))
    close(both(n, several), alone)
    pairs = jax.vmap(lambda row, sectors: log_determinants(row[None], sectors)[0])(n[:4], several)
    close(pairs, alone[np.arange(4), np.arange(4)])
    one = jax.vmap(lambda sector: log_determinants(n, [sector, sectors[1]]))(several[0])
    close(one[2], log_determinants(n, [several[0][2], sectors[1]]))
    close(jax.vmap(lambda n: log_determinants(n, sectors))(n.reshape(2, 3, -1)).ravel(), log_determinants(n, sectors))


def test_derivatives_of_any_order() -> None:
    n = occupied(3)

    def ours(sectors: Any) -> jax.Array:
        return log_determinants(n, sectors).real.sum()

    def by_jax(sectors: Any) -> jax.Array:
        total = jnp.zeros(())
        for row in n.reshape(3, 2, MODES).astype(bool):
            for here, sector in zip(row, sectors, strict=True):
                total += jnp.linalg.slogdet(sector[np.flatnonzero(here)])[1]
        return total

    sectors = [jnp.asarray(sector) for sector in orbitals()]
    for derivative in (jax.grad, jax.hessian, lambda f: jax.jacfwd(jax.hessian(f))):
        found, expected = derivative(ours)(sectors), derivative(by_jax)(sectors)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())


def test_one_sector_alone_is_differentiated() -> None:
    n, (first, second) = occupied(2), orbitals()
    found = jax.grad(lambda first: log_determinants(n, [first, second]).real.sum())(jnp.asarray(first))
    expected = sum(by_numpy(row, (first, second))[1][0] for row in n)
    np.testing.assert_allclose(found, np.real(expected), rtol=1e-10)


@pytest.mark.parametrize("where", ["CPU", "elsewhere"])
def test_where_psi_is_zero(where: str) -> None:
    """A singular matrix, and other numbers of fermions."""
    (sector,) = orbitals(fermions=(2,))
    sector[1] = 2 * sector[0]
    n = jnp.asarray([[1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 0, 0]], jnp.uint8)[:, None]
    evaluate = log_determinants_p.bind if where == "CPU" else _reference
    log_psi, rows = evaluate(n, jnp.asarray(sector)[None], rows=True)
    np.testing.assert_allclose(np.exp(log_psi[:3, 0]), 0, atol=1e-15)
    assert (log_psi[1:3].real == -np.inf).all()
    assert (rows[1:3] == 0).all()
    np.testing.assert_allclose(np.exp(log_psi[3, 0]), np.linalg.det(sector[[1, 2]]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_ratios(dtype: Any) -> None:
    samples, sectors = occupied(4), orbitals(dtype)
    x, sample = occupied(12, seed=5), np.repeat(np.arange(4), 3)
    x[5] = samples[sample[5]]
    x[7] = 1 - x[7]
    found = np.exp(determinant_ratios(x, samples, sample, [jnp.asarray(sector) for sector in sectors]))
    tolerance = 2e-3 if np.finfo(dtype).bits == 32 else 1e-10
    for place, (row, of) in enumerate(zip(x, sample, strict=True)):
        expected = 0 if place == 7 else by_numpy(row, sectors)[0] / by_numpy(samples[of], sectors)[0]
        np.testing.assert_allclose(found[place], expected, rtol=tolerance)


def test_ratios_to_samples_of_another_space_are_refused() -> None:
    samples = occupied(2)
    samples[1, 0] = 1 - samples[1, 0]
    with pytest.raises(jax.errors.JaxRuntimeError, match="fermions, but the determinant has 3 orbitals there"):
        jax.block_until_ready(determinant_ratios(occupied(2), samples, np.arange(2), orbitals()))
