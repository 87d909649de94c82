"""Decompositions of matrices in lanes, and elements whose places depend on the configuration: kernels, twin and JAX."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import jax.scipy as jsp
import netket as nk
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_networks_in_lanes import ROWS, compare, numbers

import ferroket as fk
from ferroket.bench import models
from ferroket.models.fermions import occupied_rows
from ferroket.network import UnreadableError, read, read_function, structure
from ferroket.network.program import Rows
from support.generated_operators import checks

pytestmark = pytest.mark.usefixtures("quick_compilation")

SPACE = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(3, 2))
BALANCED = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(2, 2))


def matrix(x: Any, n: int, dtype: Any = float) -> Any:
    """A matrix of other numbers for each configuration, with a zero on its diagonal."""
    a = jnp.sin(jnp.outer(x[:n], jnp.arange(1.0, n + 1)) + x[n : 2 * n]) * (np.arange(n * n) > 0).reshape(n, n)
    return a if dtype is float else a + 1j * jnp.cos(3 * a)


def of(x: Any) -> Any:
    """A real number of any result."""
    return sum((leaf * jnp.cos(jnp.arange(leaf.size)).reshape(leaf.shape)).sum() for leaf in jax.tree.leaves(x))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "slogdet": jnp.linalg.slogdet,
    "logdet": nk.jax.logdet_cmplx,
    "det": jnp.linalg.det,
    "inv": jnp.linalg.inv,
    "solve": lambda a: jnp.linalg.solve(a, a.T[:, :3]),
    "transposed": lambda a: jsp.linalg.lu_solve(jsp.linalg.lu_factor(a), a[0], trans=2),
    "factors": lambda a: jsp.linalg.lu_factor(a)[0] @ a,
    "from the right": lambda a: jax.lax.linalg.triangular_solve(a + 3 * jnp.eye(len(a)), a[:2], lower=True),
    "own slogdet": fk.linalg.slogdet,
    "Pfaffian": lambda a: fk.linalg.logpfaffian((a - a.T)[:-1, :-1] if len(a) % 2 else a - a.T),
    "gradient": lambda a: jax.grad(lambda b: jnp.linalg.slogdet(b)[1])(a) if a.dtype == float else a,
    "gradient of own": lambda a: jax.grad(lambda b: fk.linalg.slogdet(b)[1])(a) if a.dtype == float else a,
    "gradient of a Pfaffian": lambda a: jax.grad(
        lambda b: fk.linalg.slogpfaffian((b - b.T)[:4, :4])[1] if b.dtype == float else 0.0
    )(a.real),
    "batches": lambda a: jax.vmap(jnp.linalg.slogdet)(jnp.stack([a, a.T, a @ a])),
}


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_matrices(name: str, dtype: Any) -> None:
    for n in (2, 5, 8) if name in ("slogdet", "inv") else (5,):

        def function(_: Any, x: Any, n: int = n) -> Any:
            value = of(FUNCTIONS[name](matrix(x, n, dtype)))
            return value + 0 * x[0]

        compare(function, (), numbers(4, ROWS, 2 * n), 1e-9)


def test_singular_matrices() -> None:
    """Their determinant is 0, exactly, in lanes beside others."""

    def function(_: Any, x: Any) -> Any:
        a = x.reshape(3, 3)
        sign, log_modulus = jnp.linalg.slogdet(a)
        return jnp.exp(log_modulus) * sign + jnp.isneginf(log_modulus)

    x = np.asarray(numbers(1, ROWS, 9)).copy()
    x[3], x[5, :3], x[9, ::3] = 0, 0, 0
    compare(function, (), jnp.asarray(x), 1e-12)


@checks(20)
@given(data=st.data())
def test_elements_at_places_that_depend_on_the_configuration(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3), "shape"))
    axis = data.draw(st.integers(0, len(shape) - 1), "axis")
    count = data.draw(st.integers(1, 4), "count")
    mode = data.draw(st.sampled_from(["clip", "promise_in_bounds"]))
    is_complex, is_parameter = data.draw(st.booleans()), data.draw(st.booleans())
    w, size = numbers(5, *shape, dtype=complex if is_complex else float), int(np.prod(shape))

    def index(x: Any) -> Any:
        return (x[:count] > 0).astype(int) * (shape[axis] - 1)

    def function(w: Any, x: Any) -> Any:
        y = w if is_parameter else w * jnp.cos(x[count:]).reshape(shape)
        taken = jnp.take(y, index(x), axis, mode=mode if mode == "clip" else None)
        back = jax.grad(lambda y: (jnp.take(y, index(x), axis, mode="clip").real ** 2).sum() if mode == "clip" else 0.0)
        of_gradient = back(y.real) if mode == "clip" else 0.0 * y.real
        return of(taken) + of(of_gradient) + 0 * x[0]

    compare(function, w, numbers(6, 7, count + size), 1e-11)


@checks(20)
@given(data=st.data())
def test_rows_that_are_chosen(data: st.DataObject) -> None:
    """Of products with parameters only those are computed that a configuration takes."""
    choices, depth, columns = (data.draw(st.integers(2, most)) for most in (9, 7, 40))
    count = data.draw(st.integers(1, 3 * choices // 4))
    has_product, has_bias, has_more, is_complex = (data.draw(st.booleans()) for _ in range(4))
    mode, dtype = (
        "clip" if is_complex else data.draw(st.sampled_from(["clip", "fill"])),
        complex if is_complex else float,
    )
    shapes = (depth, choices * columns), (choices * columns,), (choices, columns)
    w = tuple(numbers(5 + place, *shape, dtype=dtype) for place, shape in enumerate(shapes))

    def function(w: Any, x: Any) -> Any:
        weights, bias, more = w
        y = x[:depth] @ weights + (bias if has_bias else 0) if has_product else bias
        y = y.reshape(choices, columns) + (more if has_more else 0)
        index = (x[depth:] > 0).astype(int).cumsum() * 2
        taken = jnp.take(y, index, 0, mode=mode)
        return of(taken if is_complex else jnp.nan_to_num(taken, nan=3.0)) + 0 * x[0]

    inputs = numbers(8, ROWS, depth + count)
    program = read(function, w, inputs[0])
    assert any(isinstance(one, Rows) for one in program.operations)
    compare(function, w, inputs, 1e-11)


def test_the_rows_of_occupied_modes() -> None:
    """As NetKet's users find them."""
    w = numbers(2, 8, 3)

    def function(w: Any, x: Any) -> Any:
        rows = x.nonzero(size=5)[0]
        return of(w[rows] * jnp.arange(1.0, 6)[:, None]) + of(jnp.take_along_axis(w, rows[:3, None] % 4, axis=0))

    x = jnp.asarray(np.asarray(SPACE.all_states())[:ROWS], float)
    compare(function, w, x, 1e-12)


class UserPairs(nn.Module):
    """Pfaffians as a user writes them."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        pairs = self.param("pairs", nn.initializers.normal(1.0), (x.shape[-1], x.shape[-1]), float)
        rows = occupied_rows(pairs - pairs.T, x, BALANCED.n_fermions)
        return fk.linalg.logpfaffian(occupied_rows(rows.swapaxes(-1, -2), x, BALANCED.n_fermions))


NETWORKS = {
    "Backflow": fk.models.Backflow(SPACE, (5,)),
    "Backflow, complex and generalized": fk.models.Backflow(SPACE, (5,), generalized=True, param_dtype=complex),
    "Backflow of a network": fk.models.Backflow(
        SPACE, network=nn.Sequential([nn.Dense(3, param_dtype=float), nn.gelu])
    ),
    "HiddenFermions": fk.models.HiddenFermions(SPACE, 3, (5,)),
    "HiddenFermions, complex": fk.models.HiddenFermions(SPACE, 2, (5,), param_dtype=complex),
    "a user's pairs": UserPairs(),
    "doublons": fk.models.Product(
        (
            fk.models.PairProduct(BALANCED),
            fk.models.DoublonHolon(BALANCED, (np.array([[1, 3], [0, 2], [1, 3], [0, 2]]),)),
        )
    ),
    "a user's backflow": models.Backflow(SPACE, 5),
    "a user's hidden fermions": models.HiddenFermions(SPACE, 2, 5),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_fermions(name: str) -> None:
    model = NETWORKS[name]
    space = BALANCED if "pairs" in name or "doublons" in name else SPACE
    x = jnp.asarray(np.asarray(space.all_states())[-ROWS:], float)
    variables = model.init(jax.random.key(0), x)
    variables = jax.tree.map(lambda leaf: leaf + 0.3 * numbers(2, *leaf.shape, dtype=leaf.dtype), variables)

    def of_one(variables: Any, x: Any) -> Any:
        # Phases may differ by turns.
        return jnp.exp(model.apply(variables, x[None])[0] / 3)

    compare(lambda variables, x: of_one(variables, x).real, variables, x, 1e-8) if "complex" not in name else None
    found = structure(model.apply, variables, x[0], key=model)
    assert (found.rest is not None, found.reason) == (True, None)
    has_rows = any(isinstance(one, Rows) and one.weights is not None for one in found.rest.operations)
    assert has_rows == ("Backflow" in name or name == "a user's backflow")

    # Derivatives, as an update asks for them.
    def derivatives(variables: Any, x: Any) -> Any:
        value, pullback = jax.vjp(lambda variables: model.apply(variables, x[None])[0], variables)
        return pullback(jnp.ones_like(value))[0]

    program = read_function(derivatives, variables, x[0], np.float64)
    expected = jax.vmap(derivatives, (None, 0))(variables, x)
    for a, b in zip(jax.tree.leaves(jax.jit(program)(variables, x)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * np.abs(b).max())


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: jax.lax.linalg.lu(x.reshape(2, 4))[0].sum(), "it decomposes matrices that aren't square"),
        (lambda x: x.reshape(2, 4)[(x[:1] > 0).astype(int), (x[1:2] > 0).astype(int)].sum(), "along several axes"),
        (lambda x: x.at[(x[:1] > 0).astype(int)].get(mode="fill", fill_value=1.0).sum(), "others out of bounds"),
        (
            lambda x: jnp.zeros((2, 4)).at[np.array([1, 5]), (x[:2] > 0).astype(int)].add(x[:2]).sum(),
            "out of bounds, whatever the configuration is",
        ),
        (
            lambda x: x.reshape(2, 4).at[np.array([1, 5]), (x[:2] > 0).astype(int)].get(mode="fill").sum(),
            "out of bounds, whatever the configuration is",
        ),
        (
            lambda x: jnp.zeros((2, 4)).at[(x[:1] > 0).astype(int), (x[1:2] > 0).astype(int)].add(x[0]).sum(),
            "along several axes",
        ),
    ],
)
def test_what_cannot_be_read_is_told(function: Any, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        read(lambda _, x: function(x), (), jax.ShapeDtypeStruct((8,), float))


def test_integers_are_divided() -> None:
    def function(_: Any, x: Any) -> Any:
        counts = jnp.cumsum((x > 0).astype(int)) * jnp.array([1, -1, 1, -1, 1])
        others = [
            counts // 2,
            counts % 3,
            jax.lax.div(counts, -2),
            jax.lax.rem(counts, 4),
            jnp.sign(counts),
            counts // 1,
        ]
        return sum((one * x).sum() * (place + 1) for place, one in enumerate(others))

    compare(function, (), numbers(3, ROWS, 5), 1e-12)
