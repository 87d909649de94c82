"""Sums of Pfaffians whose pairs have parameters in common, by definition."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ferroket.ffi import PairArguments
from ferroket.models.pair_sums import _reference, log_pair_sum, pair_matrices_of, pair_sums_p
from support.determinants import pfaffian

MODES, PARAMETERS, FERMIONS = 6, 7, 4
DTYPES = (np.float32, np.float64, np.complex64, np.complex128)


def example(dtype: Any = np.float64, symmetries: int = 2, rotations: int = 3) -> PairArguments:
    rng = np.random.default_rng(1)

    def numbers(*shape: int) -> np.ndarray:
        found = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        return (found if np.issubdtype(dtype, np.complexfloating) else found.real).astype(dtype)

    return PairArguments(
        numbers(PARAMETERS),
        numbers(symmetries * rotations),
        rng.integers(PARAMETERS, size=(MODES, MODES, 2)),
        rng.normal(size=(rotations, MODES, MODES, 2)),
        np.stack([np.roll(np.arange(MODES), shift) for shift in range(symmetries)]),
        rng.choice([-1, 1], size=(symmetries, MODES)),
    )


def configurations(count: int) -> np.ndarray:
    rng = np.random.default_rng(2)
    return np.stack([rng.permutation(MODES) < FERMIONS for _ in range(count)])


def matrices(arguments: PairArguments, parameters: np.ndarray) -> np.ndarray:
    """F of all summands, by definition."""
    found = []
    for moved, signs in zip(arguments.permutations, arguments.signs, strict=True):
        for factors in arguments.factors:
            upper = np.zeros((MODES, MODES), np.result_type(parameters, float))
            for a in range(MODES):
                for b in range(a + 1, MODES):
                    upper[a, b] = sum(factors[a, b] * parameters[arguments.index[a, b]])
            pairs = upper - upper.T
            found.append(pairs[np.ix_(moved, moved)] * np.outer(signs, signs))
    return np.array(found)


def psi(arguments: PairArguments, parameters: np.ndarray, n: np.ndarray) -> Any:
    of_each = [pfaffian(pairs[np.ix_(n, n)]) for pairs in matrices(arguments, parameters)]
    return np.dot(np.asarray(arguments.weights).astype(np.result_type(parameters, float)), of_each)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("where", ["CPU", "elsewhere"])
def test_logarithms_and_derivatives(where: str, dtype: Any) -> None:
    arguments, n = example(dtype), configurations(5)
    evaluate = pair_sums_p if where == "CPU" else _reference
    log_psi, rows = evaluate(jnp.asarray(n), *map(jnp.asarray, arguments), fermions=FERMIONS, rows=True)
    assert (log_psi.dtype, rows.dtype) == (np.promote_types(dtype, np.complex64), dtype)
    tolerance = 1e-3 if np.finfo(dtype).bits == 32 else 1e-9
    parameters = arguments.parameters.astype(np.result_type(dtype, float))
    for sample, of_sample in enumerate(n):
        expected = psi(arguments, parameters, of_sample)
        np.testing.assert_allclose(np.exp(log_psi[sample]), expected, rtol=tolerance)
        for place in range(PARAMETERS):
            step = np.zeros(PARAMETERS)
            step[place] = 1e-5
            change = psi(arguments, parameters + step, of_sample) - psi(arguments, parameters - step, of_sample)
            derivative = change / 2e-5 / expected
            np.testing.assert_allclose(rows[sample, place], derivative, rtol=100 * tolerance, atol=100 * tolerance)


def test_matrices_are_those_of_the_definition() -> None:
    arguments = example()
    found = pair_matrices_of(PairArguments(*map(jnp.asarray, arguments)))
    np.testing.assert_allclose(found, matrices(arguments, arguments.parameters), atol=1e-14)


def test_any_batch_and_derivatives_of_second_order() -> None:
    arguments, n = PairArguments(*map(jnp.asarray, example())), configurations(6)

    def log_psi(n: Any, parameters: Any) -> jax.Array:
        return log_pair_sum(n, arguments._replace(parameters=parameters), FERMIONS)

    parameters = arguments.parameters
    expected = log_psi(n, parameters)
    np.testing.assert_array_equal(jax.vmap(log_psi, (0, None))(n, parameters), expected)
    np.testing.assert_array_equal(jax.jit(log_psi)(n.reshape(2, 3, MODES), parameters).ravel(), expected)
    np.testing.assert_array_equal(log_psi(n[0], parameters), expected[0])
    others = jnp.stack([parameters, 2 * parameters])
    both = jax.vmap(log_psi, (None, 0))(n, others)
    # ψ is homogeneous, of as many degrees as there are pairs.
    np.testing.assert_allclose(np.exp(both[1] - both[0]), 4, rtol=1e-12)

    def by_jax(parameters: Any) -> jax.Array:
        return _reference(n, parameters, *arguments[1:], fermions=FERMIONS, rows=False)[0].real.sum()

    def ours(parameters: Any) -> jax.Array:
        return log_psi(n, parameters).real.sum()

    for derivative in (jax.grad, jax.hessian):
        found, reference = derivative(ours)(parameters), derivative(by_jax)(parameters)
        np.testing.assert_allclose(found, reference, rtol=1e-9, atol=1e-9 * np.abs(reference).max())


@pytest.mark.parametrize("where", ["CPU", "elsewhere"])
def test_other_numbers_of_fermions(where: str) -> None:
    arguments = example()
    evaluate = pair_sums_p if where == "CPU" else _reference
    n = np.eye(MODES, dtype=bool)[:2]
    log_psi, *_ = evaluate(jnp.asarray(n), *map(jnp.asarray, arguments), fermions=FERMIONS, rows=False)
    assert (log_psi.real == -np.inf).all()


def test_a_summand_that_is_zero_has_derivatives() -> None:
    """ψ = p₀ + p₁ at p₀ = 0: by exact zeros, and by small numbers."""
    index = np.zeros((3, 3, 1), int)
    index[1, 2] = 1
    shifted = np.array([[0, 1, 2], [1, 2, 0]])
    for first in (0.0, 1e-12):
        arguments = PairArguments(
            jnp.asarray([first, 3.0]), jnp.ones(2), index, np.ones((1, 3, 3, 1)), shifted, np.ones((2, 3))
        )
        n = jnp.asarray([True, True, False])
        log_psi, rows = pair_sums_p(n, *map(jnp.asarray, arguments), fermions=2, rows=True)
        np.testing.assert_allclose(log_psi, np.log(3), atol=1e-11)
        np.testing.assert_allclose(rows, [1 / 3, 1 / 3], rtol=1e-10)


def test_batches_that_are_sharded_stay_so() -> None:
    devices = np.array(jax.devices())
    sharding = NamedSharding(Mesh(devices, ("S",)), PartitionSpec("S"))
    arguments, n = PairArguments(*map(jnp.asarray, example())), configurations(4 * len(devices))
    found = jax.jit(lambda n: log_pair_sum(n, arguments, FERMIONS))(jax.device_put(n, sharding))
    assert found.sharding.is_equivalent_to(sharding, 1)
    np.testing.assert_allclose(found, log_pair_sum(n, arguments, FERMIONS))


def test_weights_of_another_dtype_are_refused() -> None:
    arguments = example()
    with pytest.raises(TypeError, match="weights have the dtype of the parameters, float64, but got complex64"):
        log_pair_sum(configurations(1), arguments._replace(weights=arguments.weights.astype(np.complex64)), FERMIONS)
