"""The rules of the primitive: derivatives and batching, against NetKet's operator under the same transformation."""

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.operator import Ising

HILBERT = nk.hilbert.Spin(0.5, 5)
GRAPH = nk.graph.Chain(5)
X = np.asarray(HILBERT.random_state(jax.random.key(0), 6))
WEIGHTS = np.random.default_rng(0).normal(size=(6, 6))


def both(function):
    """The outcome with our operator and with NetKet's."""
    return [function(lambda h, J, cls=cls: cls(HILBERT, GRAPH, h=h, J=J)) for cls in (Ising, nk.operator.IsingJax)]


def assert_both(function, rtol=1e-12):
    ours, theirs = both(function)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13), ours, theirs)
    return ours


def loss(make):
    # The samples are an argument: up to jaxlib 0.8, XLA computes NetKet's operator wrongly on constants.
    return lambda h, J, x=X: jnp.sum(WEIGHTS * jnp.abs(make(h, J).get_conn_padded(x)[1]) ** 3)


@pytest.mark.quick("argnums2")
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_derivatives(wrap, derivative, argnums):
    result = assert_both(lambda make: wrap(derivative(loss(make), argnums))(1.3, -0.7, X))
    assert all(np.abs(leaf) > 1e-3 for leaf in jax.tree.leaves(result))


def test_derivative_by_definition():
    (by_h, by_j) = jax.jacfwd(lambda h, J: Ising(HILBERT, GRAPH, h=h, J=J).get_conn_padded(X)[1], (0, 1))(1.3, 0.7)
    np.testing.assert_array_equal(by_h, [[0, -1, -1, -1, -1, -1]] * 6)
    np.testing.assert_array_equal(by_j[:, 0], (X * np.roll(X, 1, axis=1)).sum(axis=1))
    np.testing.assert_array_equal(by_j[:, 1:], 0)


def test_samples_that_are_constants_of_the_program():
    function = jax.grad(loss(lambda h, J: Ising(HILBERT, GRAPH, h=h, J=J)), (0, 1))
    np.testing.assert_allclose(jax.jit(lambda h, J: function(h, J, X))(1.3, 0.7), function(1.3, 0.7, X), rtol=1e-12)


def test_second_derivatives():
    result = assert_both(lambda make: jax.hessian(loss(make), (0, 1))(1.3, -0.7))
    assert np.abs(result[0][0]) > 1e-3
    of_linear = jax.hessian(lambda h: Ising(HILBERT, GRAPH, h=h).get_conn_padded(X)[1].sum())(1.3)
    assert of_linear == 0


def test_complex_coefficients():
    def holomorphic(make):
        return jax.grad(lambda c: jnp.sum(WEIGHTS * make(c, c**2).get_conn_padded(X)[1] ** 2), holomorphic=True)(1 + 2j)

    def to_real(make):
        return jax.grad(loss(make), (0, 1))(1 + 2j, 0.5 - 1j)

    assert abs(assert_both(holomorphic).imag) > 1e-3
    assert_both(to_real)


@pytest.mark.parametrize("dtype", [np.int8, np.float64])
def test_products_with_vectors(dtype):
    x = X.astype(dtype)
    assert_both(lambda make: jax.jvp(lambda h, J: make(h, J).get_conn_padded(x)[1], (1.3, 0.7), (0.5, -2.0)))

    def pulled_back(make):
        mels, pullback = jax.vjp(lambda h, J: make(h, J).get_conn_padded(x)[1], 1.3, 0.7)
        return mels, pullback(jnp.asarray(WEIGHTS))

    assert_both(pulled_back)


def test_samples_have_no_derivative():
    x = X.astype(float)
    operator = Ising(HILBERT, GRAPH, h=1.3)
    (xp, mels), (xp_dot, mels_dot) = jax.jvp(operator.get_conn_padded, (x,), (np.ones_like(x),))
    np.testing.assert_array_equal(xp_dot, np.zeros_like(xp))
    np.testing.assert_array_equal(mels_dot, np.zeros_like(mels))
    np.testing.assert_array_equal(jax.grad(lambda x: operator.get_conn_padded(x)[0].sum())(x), np.zeros_like(x))


def test_derivative_by_the_operator():
    gradient = jax.grad(lambda op: op.get_conn_padded(X)[1].sum(), allow_int=True)(Ising(HILBERT, GRAPH, h=1.3, J=0.7))
    assert type(gradient) is Ising
    assert gradient.h == -30
    assert (X * np.roll(X, 1, axis=1)).sum() == gradient.J


def test_linearize_and_checkpoint():
    def f(make):
        _, linear = jax.linearize(loss(make), 1.3, 0.7)
        return linear(0.5, 0.25), jax.grad(jax.checkpoint(loss(make)))(1.3, 0.7)

    assert_both(f)


# Batching


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_batches_of_samples(axis):
    x = np.moveaxis(np.stack([X, -X, X[::-1]]), 0, axis)
    assert_both(lambda make: jax.vmap(make(1.3, 0.7).get_conn_padded, in_axes=axis)(x), rtol=0)


def test_one_sample_at_a_time():
    operator = Ising(HILBERT, GRAPH, h=1.3)
    for mapped, direct in zip(
        jax.vmap(jax.vmap(operator.get_conn_padded))(X[None]), operator.get_conn_padded(X[None]), strict=True
    ):
        np.testing.assert_array_equal(mapped, direct)
    np.testing.assert_array_equal(jax.vmap(operator.n_conn)(X), operator.n_conn(X))


@pytest.mark.parametrize("in_axes", [(0, None, None), (None, 0, None), (0, 0, None), (0, None, 0), (0, 0, 0)])
def test_batches_of_operators(in_axes):
    values = [np.array([1.3, 0.2, -4.0]), np.array([0.7, 1.0, 2.0]), np.stack([X, -X, X[::-1]])]
    args = [v if axis == 0 else v[0] for v, axis in zip(values, in_axes, strict=True)]

    def elements(make):
        return jax.jit(jax.vmap(lambda h, J, x: make(h, J).get_conn_padded(x), in_axes))(*args)

    assert_both(elements, rtol=1e-15)


def test_derivatives_of_batches():
    h, J = np.array([1.3, 0.2, -4.0]), np.array([0.7, 1.0, 2.0])
    assert_both(lambda make: jax.vmap(jax.grad(loss(make), (0, 1)))(h, J))
    assert_both(lambda make: jax.grad(lambda h, J: jax.vmap(loss(make))(h, J).sum(), (0, 1))(h, J))


@pytest.mark.parametrize("loop", ["scan", "cond", "while"])
def test_control_flow(loop):
    def f(make):
        operator = make(1.3, 0.7)

        def first_connected(x):
            xp, mels = operator.get_conn_padded(x)
            return xp[..., 2, :], mels.sum()

        if loop == "scan":
            return jax.jit(lambda x: jax.lax.scan(lambda x, _: first_connected(x), x, None, length=4))(X)
        if loop == "cond":
            return jax.jit(lambda x: jax.lax.cond(x[0, 0] > 0, first_connected, lambda x: (x, 0.0), x))(X)
        return jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: first_connected(x)[0], x))(X)

    assert_both(f, rtol=1e-14)


def test_public_names():
    assert fk.operator.Ising is Ising
