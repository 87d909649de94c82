"""Gram matrices of random log-derivatives: in Rust and by XLA, against rows that are formed."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ferroket._compat.sharding import AXIS
from ferroket.natural_gradient import gram, tiles
from ferroket.natural_gradient.log_derivatives import Factors, LogDerivatives
from ferroket.natural_gradient.masks import nested

N_SAMPLES = 21


def random_numbers(rng: np.random.Generator, dtype: type, *shape: int) -> jax.Array:
    numbers = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return jnp.asarray((numbers if np.issubdtype(dtype, np.complexfloating) else numbers.real).astype(dtype))


PRODUCT = SimpleNamespace(mask=None)
"""What tells of vectors of parameters alone, but for the mask."""
MASKED = SimpleNamespace(mask=nested(np.arange(17)[:, None] // 3 >= np.array([4, 1, 1, 4, 3, 0, 2] * 2)))
SIZES = [(1, 1, 4, 3), (2, 2, 5, 9), (1, 40, 2, 3), (1, 2, 17, 14)]
"""Of the factors of each parameter: B, P, I and O."""


def random_derivatives(
    dtypes: tuple[type, type, type], n_components: int, is_holomorphic: bool, n_samples: int = N_SAMPLES
) -> LogDerivatives:
    """Of factors that are multiplied, of some whose rows take fewer operations, and of rows."""
    rng = np.random.default_rng(5)
    of_x, of_delta, of_rows = dtypes
    factors = {
        leaf: Factors(
            random_numbers(rng, of_x, n_samples, parts, positions, n_in),
            random_numbers(rng, of_delta, n_samples, n_components, parts, positions, n_out),
            product=PRODUCT,
        )
        for leaf, (parts, positions, n_in, n_out) in enumerate(SIZES)
    }
    factors[3] = replace(factors[3], product=MASKED)
    rows = {
        4 + i: random_numbers(rng, of_rows, n_samples, n_components, *shape)
        for i, shape in enumerate([(2, 3), (4,), (300,)])
    }
    return LogDerivatives(factors, {}, rows, None, is_holomorphic)  # type: ignore[arg-type]


def expected(derivatives: LogDerivatives) -> np.ndarray:
    """``(Ns, C, Ns, C)`` of rows without their means."""
    parts = [factors.rows() for factors in derivatives.factors.values()] + list(derivatives.rows.values())
    rows = np.concatenate([np.asarray(part).reshape(*part.shape[:2], -1) for part in parts], axis=2)
    rows = rows.astype(np.result_type(rows, np.float64))
    rows -= rows.mean(axis=0)
    products = np.einsum("scn,tdn->sctd", rows, rows.conj())
    return products if derivatives.is_holomorphic else products.real


def centred(matrix: np.ndarray) -> np.ndarray:
    matrix = matrix - matrix.mean(axis=0, keepdims=True)
    return matrix - matrix.mean(axis=2, keepdims=True)


all_types = pytest.mark.parametrize(
    ("dtypes", "n_components", "is_holomorphic"),
    [
        ((np.float64, np.float64, np.float64), 1, False),
        ((np.float64, np.complex128, np.complex128), 1, False),
        ((np.complex128, np.complex128, np.float64), 2, False),
        ((np.complex128, np.complex128, np.complex128), 1, True),
        ((np.float64, np.complex128, np.complex128), 1, True),
        ((np.complex128, np.float64, np.complex128), 1, True),
        ((np.float32, np.float32, np.float32), 2, False),
        ((np.float32, np.complex64, np.complex64), 1, True),
    ],
)


@pytest.mark.parametrize("function", [gram._in_rust, gram._by_xla])
@all_types
@pytest.mark.parametrize("length", [128, 6])
def test_products_of_rows(
    function: Callable[..., jax.Array],
    dtypes: tuple[type, type, type],
    n_components: int,
    is_holomorphic: bool,
    length: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one tile, and in several of which the last one isn't full."""
    monkeypatch.setitem(tiles._LENGTH, "cpu", length)
    monkeypatch.setattr(tiles, "LENGTH_IN_RUST", length)
    derivatives = random_derivatives(dtypes, n_components, is_holomorphic)
    by_rows = [gram.cost_of(factors, N_SAMPLES).prefers_rows for factors in derivatives.factors.values()]
    assert by_rows == [False, False, True, False]
    found = np.asarray(jax.jit(function)(derivatives, derivatives))
    right = expected(derivatives)
    dtype = np.result_type(*dtypes)
    assert found.dtype == (dtype if is_holomorphic else np.finfo(dtype).dtype)
    tolerance = 1e-13 if found.real.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(centred(found), right, atol=tolerance * np.abs(right).max())


@all_types
@pytest.mark.parametrize(("n_devices", "n_samples"), [(1, 1), (1, 21), (1, 230), (2, 115), (3, 7), (8, 1)])
def test_systems_of_it(
    dtypes: tuple[type, type, type], n_components: int, is_holomorphic: bool, n_devices: int, n_samples: int
) -> None:
    """Less its means, for right-hand sides less theirs; each of several devices is an element of a batch."""
    derivatives = random_derivatives(dtypes, n_components, is_holomorphic, n_devices * n_samples)
    dtype = np.result_type(*dtypes) if is_holomorphic else np.finfo(np.result_type(*dtypes)).dtype
    right = np.asarray(random_numbers(np.random.default_rng(7), dtype.type, n_devices * n_samples, n_components))
    shift = 0.5 * len(right)
    of_devices = jax.tree.map(lambda array: array.reshape(n_devices, n_samples, *array.shape[1:]), derivatives)
    solve = jax.vmap(gram.solve_gram, (0, None, None, None), axis_name=AXIS)
    found = jax.jit(solve)(of_devices, derivatives, right, shift).reshape(right.shape)
    assert found.dtype == dtype
    matrix = expected(derivatives).reshape(right.size, right.size) + shift * np.eye(right.size)
    solution = np.linalg.solve(matrix, (right - right.mean(axis=0)).reshape(-1)).reshape(right.shape)
    tolerance = 1e-12 if found.real.dtype == np.float64 else 2e-4
    np.testing.assert_allclose(found, solution, atol=tolerance * (np.abs(right).max() / shift))


def test_what_is_no_system_in_rust(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of rows which would take much memory, and one that isn't positive definite."""
    derivatives = random_derivatives((np.float64, np.float64, np.float64), 1, is_holomorphic=False)
    right = jnp.ones((N_SAMPLES, 1))
    with monkeypatch.context() as patched:
        patched.setattr(
            gram, "MEMORY", 8 * N_SAMPLES * 6 - 1
        )  # one byte less than the rows of two by three inputs and outputs
        reason = gram.reason_to_form(derivatives, N_SAMPLES)
        assert reason is not None
        assert reason.startswith("rows of factors would take")
    assert np.isnan(gram.solve_gram(derivatives, derivatives, right, jnp.array(-1e4))).all()


def test_it_is_in_rust_on_cpus() -> None:
    derivatives = random_derivatives((np.float64, np.float64, np.float64), 1, is_holomorphic=False)
    assert "ferroket_gram" in jax.jit(gram.gram).lower(derivatives, derivatives).as_text()
