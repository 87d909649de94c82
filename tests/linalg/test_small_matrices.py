"""Determinants and Pfaffians of small matrices, against NumPy and against their definition."""

import itertools

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ferroket as fk
from ferroket.ffi.small_matrices import pfaffian_program
from ferroket.linalg.determinants import _reference, factorized
from ferroket.linalg.matrices import flattened
from ferroket.linalg.pfaffians import _factors, pfaffian_factors_p
from support.determinants import pfaffian

assert nk  # with it come numbers of 64 bits
DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


def matrices(shape, n, dtype, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(*shape, n, n)) + 1j * rng.normal(size=(*shape, n, n))
    return (a if np.issubdtype(dtype, np.complexfloating) else a.real).astype(dtype)


def skew(*args, **settings):
    a = matrices(*args, **settings)
    return a - a.swapaxes(-1, -2)


def tolerance(dtype):
    return 2e-4 if np.finfo(dtype).bits == 32 else 1e-11


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 13, 28, 57])
def test_determinants_are_numpys(dtype, n):
    a = matrices((41,), n, dtype)
    sign, log_modulus = jax.jit(fk.linalg.slogdet)(a)
    expected_sign, expected = np.linalg.slogdet(a.astype(np.result_type(dtype, np.float64)))
    assert sign.dtype == dtype
    assert log_modulus.dtype == np.finfo(dtype).dtype
    np.testing.assert_allclose(sign, expected_sign, atol=tolerance(dtype))
    np.testing.assert_allclose(log_modulus, expected, rtol=tolerance(dtype), atol=n * tolerance(dtype))
    logarithm = fk.linalg.logdet(a[0])
    np.testing.assert_allclose(np.exp(logarithm - expected[0]), expected_sign[0], atol=n * tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 4, 6, 8])
def test_pfaffians_are_those_of_the_expansion(dtype, n):
    a = skew((19,), n, dtype)
    sign, log_modulus = jax.jit(fk.linalg.slogpfaffian)(a)
    expected = np.array([pfaffian(one.astype(np.complex128)) for one in a])
    np.testing.assert_allclose(sign * np.exp(log_modulus), expected, rtol=50 * tolerance(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("n", [10, 30, 56])
def test_squares_of_pfaffians_are_determinants(dtype, n):
    a = skew((21,), n, dtype)
    sign, log_modulus = fk.linalg.slogpfaffian(a)
    expected_sign, expected = np.linalg.slogdet(a)
    np.testing.assert_allclose(2 * log_modulus, expected, rtol=1e-11)
    np.testing.assert_allclose(sign**2, expected_sign, atol=1e-9)
    # Pf(B A Bᵀ) = det B Pf A tells the sign.
    b = matrices((21,), n, dtype, seed=1)
    of_product, log_of_product = fk.linalg.slogpfaffian(b @ a @ b.swapaxes(-1, -2))
    of_b, log_of_b = np.linalg.slogdet(b)
    np.testing.assert_allclose(of_product, of_b * sign, atol=1e-8)
    np.testing.assert_allclose(log_of_product, log_of_b + log_modulus, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("n", [3, 9])
def test_what_needs_pivots(dtype, n):
    """Zeros on the diagonal, and permutations, in each lane another one."""
    rng = np.random.default_rng(2)
    a = np.stack([np.eye(n)[rng.permutation(n)] for _ in range(33)]).astype(dtype)
    sign, log_modulus = fk.linalg.slogdet(a)
    np.testing.assert_array_equal(log_modulus, 0)
    np.testing.assert_array_equal(sign, np.linalg.slogdet(a)[0])
    pairs = np.zeros((33, 2 * n, 2 * n), dtype)
    expected = []
    for one in pairs:
        order = rng.permutation(2 * n)
        one[order[::2], order[1::2]], one[order[1::2], order[::2]] = 1, -1
        expected.append(np.linalg.det(np.eye(2 * n)[order]))
    sign, log_modulus = fk.linalg.slogpfaffian(pairs)
    np.testing.assert_array_equal(log_modulus, 0)
    np.testing.assert_allclose(sign, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_ones(dtype):
    a = matrices((20,), 6, dtype)
    a[3] = 0
    a[5, :, 2] = 0
    a[7, 4] = a[7, 1]
    sign, log_modulus = fk.linalg.slogdet(a)
    for place in (3, 5):
        assert sign[place] == 0
        assert log_modulus[place] == -np.inf
    assert log_modulus[7] < -10
    others = [place for place in range(20) if place not in (3, 5, 7)]
    expected = np.linalg.slogdet(a[others].astype(np.complex128))
    np.testing.assert_allclose(log_modulus[np.array(others)], expected[1], rtol=tolerance(dtype), atol=tolerance(dtype))
    b = skew((20,), 6, dtype)
    b[3], b[5, 2], b[5, :, 2] = 0, 0, 0
    sign, log_modulus = fk.linalg.slogpfaffian(b)
    assert not sign[np.array([3, 5])].any()
    assert (log_modulus[np.array([3, 5])] == -np.inf).all()
    b[2, 1, 0] = np.nan
    assert np.isnan(fk.linalg.slogpfaffian(b)[1][2])
    a[2, 1, 0] = np.nan
    assert np.isnan(fk.linalg.slogdet(a)[1][2])
    assert np.isfinite(fk.linalg.slogdet(a)[1][0])


@pytest.mark.parametrize("n", [1, 4, 5, 12])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_derivatives_are_those_of_jax(n, dtype):
    a = jnp.asarray(matrices((11,), n, dtype))

    def real(slogdet):
        def function(a):
            sign, log_modulus = slogdet(a)
            return (log_modulus * jnp.arange(11) + jnp.angle(sign) * 3).sum()

        return function

    found, expected = (jax.grad(real(f))(a) for f in (fk.linalg.slogdet, jnp.linalg.slogdet))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    tangent = jnp.asarray(matrices((11,), n, dtype, seed=5))
    both = [jax.jvp(f, [a], [tangent]) for f in (fk.linalg.slogdet, jnp.linalg.slogdet)]
    for one, other in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    # Twice, by finite differences of the first ones.
    first = jax.grad(real(fk.linalg.slogdet))
    _, second = jax.jvp(first, [a], [tangent])
    step = 1e-5
    differences = (first(a + step * tangent) - first(a - step * tangent)) / (2 * step)
    np.testing.assert_allclose(second, differences, rtol=1e-4, atol=1e-4 * np.abs(second).max())


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_derivatives_of_pfaffians_are_finite_differences(dtype):
    a, tangent = (jnp.asarray(skew((7,), 6, dtype, seed=seed)) for seed in (0, 1))
    _, derivative = jax.jvp(fk.linalg.logpfaffian, [a], [tangent])
    step = 1e-6
    differences = (fk.linalg.logpfaffian(a + step * tangent) - fk.linalg.logpfaffian(a - step * tangent)) / (2 * step)
    np.testing.assert_allclose(derivative, differences, rtol=1e-6, atol=1e-6)
    if dtype == np.float64:
        gradient = jax.grad(lambda a: fk.linalg.slogpfaffian(a)[1].sum())(a)
        np.testing.assert_allclose((gradient * tangent).sum((1, 2)), derivative.real, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_determinants_times_inverses_are_adjugates(dtype):
    """Also where a matrix is singular, of rank n − 1: derivatives of sums of determinants need them."""
    a = matrices((9,), 4, dtype)
    a[2, :, 0] = 0
    a[4, 1] = 0
    a[6] = 0
    for function in (lambda x: factorized(x, 4, inverse=True), lambda x: _reference(x, n=4, inverse=True)):
        *_, inverse = function(flattened(jnp.asarray(a)))
        inverse = np.asarray(inverse).reshape(9, 4, 4)
        assert np.isfinite(inverse).all()
        for one, of_one in zip(a, inverse, strict=True):
            cofactors = np.array(
                [
                    [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(one, i, 0), j, 1)) for j in range(4)]
                    for i in range(4)
                ]
            )
            largest = np.unravel_index(np.abs(cofactors).argmax(), (4, 4))
            if np.abs(cofactors).max() > 0:
                scaled = of_one / of_one[largest]
                np.testing.assert_allclose(scaled, cofactors / cofactors[largest], atol=1e-9)


def test_plain_jax_agrees():
    """What other devices evaluate."""
    for dtype, n in itertools.product([np.float64, np.complex128], [2, 6, 8]):
        a = jnp.asarray(matrices((5, 3), n, dtype)).reshape(5, 3, n * n)
        for inverse in (False, True):
            found = factorized(a, n, inverse=inverse)
            for one, other in zip(found, _reference(a, n=n, inverse=inverse), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
        a = jnp.asarray(skew((5, 3), n, dtype)).reshape(5, 3, n * n)
        np.testing.assert_allclose(
            pfaffian_factors_p(a, *pfaffian_program(n, dtype), n=n)[0], _factors(a, n=n)[0], rtol=1e-8, atol=1e-9
        )


def test_transformations():
    a = jnp.asarray(skew((4, 3, 2), 4, np.float64))
    for function in (fk.linalg.slogdet, fk.linalg.slogpfaffian):
        expected = function(a)
        for axis in range(3):
            found = jax.jit(jax.vmap(function, axis, axis))(a)
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-13), found, expected)
        assert function(a[:0])[0].shape == (0, 3, 2)
        np.testing.assert_array_equal(function(jnp.zeros((5, 0, 0)))[0], np.ones(5))
        np.testing.assert_array_equal(function(jnp.zeros((5, 0, 0)))[1], np.zeros(5))


def test_batches_that_are_sharded_stay_so():
    devices = jax.devices()
    a = skew((6 * len(devices),), 4, np.float64)
    sharding = NamedSharding(Mesh(np.array(devices), ("S",)), PartitionSpec("S"))
    for function in (fk.linalg.slogdet, fk.linalg.logpfaffian):
        found = jax.jit(function)(jax.device_put(a, sharding))
        expected = function(jnp.asarray(a))
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-13), found, expected)
        assert all(leaf.sharding.is_equivalent_to(sharding, 1) for leaf in jax.tree.leaves(found))


def test_what_is_wrong_is_named():
    with pytest.raises(ValueError, match=r"square matrices \(..., n, n\), but got an array of shape \(3, 2\)"):
        fk.linalg.slogdet(jnp.zeros((3, 2)))
    with pytest.raises(ValueError, match="an even number of rows, but these have 3"):
        fk.linalg.logpfaffian(jnp.zeros((3, 3)))
    with pytest.raises(TypeError, match="determinants of float16 aren't computed"):
        fk.linalg.slogdet(jnp.zeros((2, 2), jnp.float16))
    assert fk.linalg.slogdet(np.eye(3, dtype=int))[1] == 0
