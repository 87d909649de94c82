"""What is read of networks, evaluated by the kernels and by their readable twin, beside JAX."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lanes_in_numpy import evaluate

import ferroket as fk
from ferroket._compat.sharding import on_each_device
from ferroket.bench import models
from ferroket.ffi import INSTRUCTIONS, network
from ferroket.models.pairs import sum_over_pairs
from ferroket.natural_gradient.log_derivatives import in_lanes
from ferroket.natural_gradient.structure import read as structure_of_parameters
from ferroket.network import UnreadableError, read, read_function, structure
from ferroket.network.characters import character_table
from ferroket.network.numbers import FUNCTIONS
from ferroket.network.program import Contract, Map
from ferroket.network.rules import RULES
from support.generated_operators import checks
from support.mpi import run_on_devices

pytestmark = pytest.mark.usefixtures("quick_compilation")

SQUARE = nk.graph.Square(4)
TRANSLATIONS = SQUARE.translation_group()
X = jax.ShapeDtypeStruct((16,), np.float64)
ROWS = 37  # no multiple of the lanes of any processor


def compare(function: Callable[..., Any], variables: Any, inputs: Any, tolerance: float = 1e-12) -> None:
    """The kernels, their twin and JAX give the same numbers."""
    program = read(function, variables, inputs[0])
    tables = jax.jit(program.tables)(variables)
    expected = np.asarray(jax.jit(jax.vmap(function, (None, 0)))(variables, inputs))
    twin = evaluate(program.words, np.asarray(tables), np.asarray(inputs))
    kernels = np.asarray(network(inputs, program.words, tables, program.results))
    for found in (twin, kernels):
        assert found.shape == (len(inputs), 1 + np.iscomplexobj(expected))
        value = found[:, 0] + (1j * found[:, 1] if found.shape[1] > 1 else 0)
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
    # A configuration is the same to the bit beside whichever others it is.
    np.testing.assert_array_equal(
        np.asarray(network(inputs[5:6], program.words, tables, kernels.shape[1]))[0], kernels[5]
    )


def numbers(seed: int, *shape: int, dtype: Any = float) -> jax.Array:
    made: jax.Array = jax.random.normal(jax.random.key(seed), shape, dtype)
    return made


def bits(x: jax.Array) -> jax.Array:
    made: jax.Array = jax.lax.bitcast_convert_type(x, {4: np.int32, 8: np.int64}[x.dtype.itemsize])
    return made


class Attention(nn.Module):
    """A vision transformer's block, of whatever numbers."""

    dtype: Any = jnp.float64

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        of = {"dtype": self.dtype, "param_dtype": self.dtype}
        x = nn.Dense(6, **of)(x.reshape(-1, 4, 4).astype(self.dtype))
        y = nn.MultiHeadDotProductAttention(2, **of)(nn.LayerNorm(**of)(x))
        x = x + nn.Dense(6, **of)(nn.gelu(nn.Dense(8, **of)(nn.LayerNorm(**of)(x + y))))
        return jax.nn.logsumexp(nn.Dense(3, **of)(x.mean(axis=1)), axis=-1)


class Scaled(nn.Module):
    """With numbers between the layers, a layer's result in two others, and a function with a parameter."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.tanh(nn.Dense(8, param_dtype=float)(x)) * 0.3
        z = nn.Dense(8, param_dtype=float, use_bias=False)(y)
        bias = self.param("bias", nn.initializers.normal(), (8,), float)
        y = y - (z + bias) / 2 + 0.1 * nn.PReLU(param_dtype=float)(z)
        return nk.nn.activation.log_cosh(nn.Dense(5, param_dtype=float)(y)).sum(axis=-1)


class Loops(nn.Module):
    """Layers in loops, also backwards, whose steps give something."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        kernels = self.param("kernels", nn.initializers.normal(0.3), (3, 16, 16), float)

        def step(y: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
            y = jnp.tanh(y @ kernel) + x
            return y, y.sum(axis=-1)

        y, sums = jax.lax.scan(step, x.astype(float), kernels)
        y, others = jax.lax.scan(step, y, kernels[1:], reverse=True)
        return (sums * jnp.arange(1, 4)[:, None]).sum(axis=0) + others[0] * others[1] + y.prod(axis=-1)


class Convolutions(nn.Module):
    """Convolutions with all kinds of edges, strides and groups."""

    dtype: Any = float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Conv(4, (3, 3), padding="CIRCULAR", param_dtype=self.dtype)(x.reshape(-1, 4, 4, 1))
        y = nn.Conv(4, (3, 2), padding="SAME", feature_group_count=2, param_dtype=self.dtype)(jnp.tanh(x))
        y = nn.Conv(6, (2, 2), strides=2, padding="VALID", param_dtype=self.dtype)(jnp.sin(x + y))
        y = nn.ConvTranspose(3, (2, 2), strides=(2, 2), padding="SAME", param_dtype=self.dtype)(y)
        return nk.nn.activation.log_cosh(y).sum(axis=(1, 2, 3))


NETWORKS = {
    "scaled": Scaled(),
    "loops": Loops(),
    "attention": Attention(),
    "convolutions": Convolutions(),
    "complex convolutions": Convolutions(complex),
    "ResCNN": models.ResCNN((4, 4)),
    "ViT": models.ViT((4, 4)),
    "GCNN by Fourier transforms": nk.models.GCNN(SQUARE, layers=2, features=3, mode="fft"),
    "complex GCNN by Fourier transforms": nk.models.GCNN(SQUARE, layers=2, features=2, mode="fft", param_dtype=complex),
    "GCNN": nk.models.GCNN(SQUARE, layers=2, features=3, mode="irreps", param_dtype=float),
    "GCNN of translations": nk.models.GCNN(TRANSLATIONS, layers=2, features=3, mode="irreps", param_dtype=float),
    "complex GCNN of translations": nk.models.GCNN(TRANSLATIONS, layers=2, features=2, mode="irreps"),
    "GCNN with parity": nk.models.GCNN(SQUARE, layers=2, features=2, parity=1),
    "RBM": nk.models.RBM(param_dtype=complex),
    "RBMSymm": nk.models.RBMSymm(symmetries=TRANSLATIONS, alpha=2, param_dtype=complex),
    "RBMModPhase": nk.models.RBMModPhase(),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    model, hilbert = NETWORKS[name], nk.hilbert.Spin(0.5, 16)
    x = hilbert.random_state(jax.random.key(1), ROWS, dtype=float)
    variables = jax.tree.map(
        lambda leaf: leaf + 0.1 * numbers(2, *leaf.shape, dtype=leaf.dtype), model.init(jax.random.key(0), x)
    )
    compare(lambda variables, x: model.apply(variables, x[None])[0], variables, x, 1e-9)
    found = structure(model.apply, variables, X, key=model)
    assert (found.rest is not None, found.reason) == (True, None)


@pytest.mark.quick((4, 9, 6))
@pytest.mark.parametrize("sizes", [(12,), (4, 9, 6), (2, 2, 2, 2), (10, 10), (8, 2)])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_character_tables(sizes: tuple[int, ...], dtype: Any) -> None:
    """The character table of an Abelian group is recognised, with rows and columns in any order."""
    matrix = functools.reduce(np.kron, [np.exp(2j * np.pi * np.outer(*[np.arange(n)] * 2) / n) for n in sizes])
    rng = np.random.default_rng(len(sizes))
    matrix = (0.37 * matrix[rng.permutation(len(matrix))][:, rng.permutation(len(matrix))]).astype(dtype)
    found = character_table(matrix)
    assert found is not None
    # No length has two factors that are coprime.
    assert all(len({p for p in (2, 3, 5) if n % p == 0}) == 1 for n in found.rows.shape)
    lengths, tolerance = found.rows.shape, 1e3 * np.finfo(dtype).eps
    x = rng.normal(size=len(matrix))
    expected = (x @ matrix)[found.columns]
    np.testing.assert_allclose(found.scale * np.fft.fftn(x[found.rows]), expected, atol=tolerance * np.sqrt(len(x)))
    assert sorted(found.rows.ravel()) == sorted(found.columns.ravel()) == list(range(len(x)))
    # The same but for one number, and for the last two characters.
    assert np.prod(lengths) == len(x)
    matrix[3, 5] *= np.exp(1e-3j)
    assert character_table(matrix) is None


def test_what_is_no_character_table() -> None:
    transform = np.fft.fft(np.eye(12))
    assert character_table(transform) is not None
    twice = transform.copy()
    twice[:, 5] = twice[:, 4]
    turned = transform * np.exp(2j * np.pi * np.arange(12) ** 2 / 12)
    others = np.exp(2j * np.pi * np.random.default_rng(0).integers(12, size=(12, 12)) / 12)
    others[0] = 1
    for matrix in (twice, turned, others, np.zeros((12, 12), complex), np.ones((12, 12), complex), 1j * transform):
        assert character_table(matrix) is None


def test_products_with_character_tables_are_transforms() -> None:
    """A GCNN of 36 translations multiplies with irreducible representations, 36 x 36 matrices of complex numbers."""
    model = nk.models.GCNN(nk.graph.Square(6).translation_group(), layers=2, features=2, mode="irreps")
    x = jax.ShapeDtypeStruct((36,), np.float64)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, 36), np.float64))
    program = read(lambda variables, x: model.apply(variables, x[None])[0], shapes, x)
    constant = [
        one for one in program.operations if isinstance(one, Contract) and isinstance(one.weights.value, np.ndarray)
    ]
    assert max(one.places.shape[-1] for one in constant) == 6  # real and imaginary parts, three of each


KINDS = {"fftn": np.fft.fftn, "ifftn": np.fft.ifftn, "rfftn": np.fft.rfftn, "irfftn": np.fft.irfftn}


@checks(40)
@given(data=st.data())
def test_fourier_transforms(data: st.DataObject) -> None:
    """Of real and of complex arrays, along one to three axes of all lengths, beside NumPy's."""
    kind = data.draw(st.sampled_from(sorted(KINDS)), "kind")
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 8, 10, 12]), min_size=1, max_size=3), "shape"))
    is_complex = kind != "rfftn" and data.draw(st.booleans(), "complex")
    axes = range(-data.draw(st.integers(1, len(shape)), "axes"), 0)
    if kind == "irfftn" and shape[-1] == 1:
        shape = (*shape[:-1], 2)  # of one number there is nothing to give

    def array(x: Any) -> Any:
        parts = x.reshape(2, *shape)
        return parts[0] + 1j * parts[1] if is_complex else parts[0]

    x = numbers(3, ROWS, 2 * math.prod(shape))
    program = read_function(lambda _, x: getattr(jnp.fft, kind)(array(x), axes=tuple(axes)), (), x[0], np.float64)
    found = np.asarray(program((), x))
    expected = np.array([KINDS[kind](array(np.asarray(row)), axes=tuple(axes)) for row in x])
    np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())


SHAPE = (6, 5)
WAVES = 30
FOURIER = np.array(nk.graph.Grid(SHAPE, pbc=True).translation_group().character_table())


def by_fft(kernel: jax.Array, x: jax.Array) -> jax.Array:
    """A convolution of real numbers, of which all that is complex comes in pairs."""
    product = jnp.einsum(
        "fk,fgk->gk", *(jnp.fft.fft2(y.reshape(*y.shape[:-1], *SHAPE)).reshape(y.shape) for y in (x, kernel))
    )
    return jnp.fft.ifft2(product.reshape(-1, *SHAPE)).real.reshape(product.shape)


def by_characters(kernel: jax.Array, x: jax.Array) -> jax.Array:
    """The same, by a group's characters."""
    product = jnp.einsum("fk,fgk->gk", x @ FOURIER.T, kernel @ FOURIER.T)
    return (product @ FOURIER.conj()).real / WAVES


def of_derivatives(kernel: jax.Array, x: jax.Array) -> jax.Array:
    """What a backward pass makes of it."""
    return jax.grad(lambda x: (jnp.tanh(by_fft(kernel, x)) ** 2).sum())(x)


def with_factor(kernel: jax.Array, x: jax.Array) -> jax.Array:
    """A product that isn't the same for both of a pair."""
    product = jnp.einsum("fk,fgk->gk", jnp.fft.fft(x), jnp.fft.fft(kernel) * jnp.arange(WAVES))
    return jnp.fft.ifft(product).real


def of_other_transforms(kernel: jax.Array, x: jax.Array) -> jax.Array:
    """Inputs and kernels in pairs, but not in the same ones."""
    pairs = np.fft.fft2(np.eye(WAVES).reshape(WAVES, *SHAPE)).reshape(WAVES, WAVES)
    product = jnp.einsum("fk,fgk->gk", x @ np.fft.fft(np.eye(WAVES)), kernel @ pairs)
    return jnp.fft.ifft(product).real


@pytest.mark.parametrize(
    ("function", "dtype", "groups"),
    [
        (by_fft, float, 16),  # two wave numbers are their own negatives
        (by_characters, float, 16),
        (of_derivatives, float, 16),
        (by_fft, complex, WAVES),
        (with_factor, float, WAVES),
        (of_other_transforms, float, WAVES),
    ],
)
def test_what_comes_in_pairs_is_computed_once(function: Any, dtype: Any, groups: int) -> None:
    kernel, x = numbers(1, 3, 2, WAVES, dtype=dtype), numbers(2, ROWS, 3 * WAVES)

    def summed(kernel: Any, x: Any) -> Any:
        return jnp.sin(
            jnp.arange(1, 4) @ jnp.resize(function(kernel, x.reshape(3, WAVES)), (3, WAVES)) + x[:WAVES]
        ).sum()

    compare(summed, kernel, x)
    program = read(summed, kernel, x[0])
    found = {len(one.out) for one in program.operations if isinstance(one, Contract) and len(one.out) > 1}
    assert found == {groups}


def test_conjugate_columns_take_no_more_memory_than_the_matrix() -> None:
    """All pairs of 1500 columns would be 54 GB."""
    columns = np.exp(2j * np.pi * np.random.default_rng(1).random((1500, 750)))
    matrix = np.concatenate([columns, columns.conj()[:, ::-1]], axis=1)

    def function(w: jax.Array, x: jax.Array) -> jax.Array:
        return (x @ (w @ matrix).real[:4]).sum()

    compare(function, numbers(1, 1500), numbers(2, ROWS, 4))


def mixture(x: jax.Array, weights: Callable[[jax.Array], jax.Array], product: str = "ij,jk->ik") -> jax.Array:
    """Rows of x, mixed by what a function makes of their products."""
    rows = x.reshape(8, 2)
    values = jnp.stack([rows, jnp.cos(rows)], axis=-1)
    return jnp.sin(jnp.einsum(product, weights(rows @ rows.T), values[..., 0] + 2 * values[..., 1])).sum()


SOFTMAX_OF_COLUMNS = functools.partial(jax.nn.softmax, axis=0)


@pytest.mark.parametrize(
    ("weights", "product", "size", "is_behind"),
    [
        (jax.nn.softmax, "ij,jk->ik", 1.0, True),
        (jax.nn.softmax, "ij,jk->ki", 1.0, True),
        (jax.nn.softmax, "ij,jk->ik", 300.0, True),  # exponentials of which all but one are zero
        (SOFTMAX_OF_COLUMNS, "ji,jk->ik", 1.0, True),
        (lambda x: (y := jnp.exp(x - x.max(0))) / y.sum(-1, keepdims=True), "ij,jk->ik", 1.0, True),
        # Not the same factor for all that are summed up; and exponentials that may be large.
        (SOFTMAX_OF_COLUMNS, "ij,jk->ik", 1.0, False),
        (lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True), "ij,jk->ik", 0.5, False),
        (lambda x: (y := jnp.exp(x - 2 * x.max(0))) / y.sum(-1, keepdims=True), "ij,jk->ik", 0.5, False),
        (lambda x: (y := jnp.exp(x - x[::-1].max(0))) / y.sum(-1, keepdims=True), "ij,jk->ik", 1.0, True),
        (lambda x: (y := jnp.exp(x - x[1:].max(0))) / y.sum(-1, keepdims=True), "ij,jk->ik", 0.5, False),
    ],
)
def test_softmax_is_normalized_behind_products(weights: Any, product: str, size: float, is_behind: bool) -> None:
    """By a product for each result in the place of one for each weight, where weights are at most 1."""

    def function(scale: jax.Array, x: jax.Array) -> jax.Array:
        return mixture(scale * x, weights, product)

    inputs = numbers(1, ROWS, 16)
    compare(function, jnp.asarray(size), inputs, 1e-12)
    products = [
        one.outs[0].size
        for one in read(function, size, inputs[0]).operations
        if isinstance(one, Map) and {"mul", "div"} & {name for name, *_ in one.steps}
    ]
    assert (max(products) < 32) == is_behind


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision(dtype: Any) -> None:
    model = Convolutions(dtype)
    x = nk.hilbert.Spin(0.5, 16).random_state(jax.random.key(1), ROWS, dtype=np.float32)
    compare(lambda variables, x: model.apply(variables, x[None])[0], model.init(jax.random.key(0), x), x, 2e-5)


def _of_both(x: jax.Array) -> jax.Array:
    """Two values in a row, which aren't one behind the other in the kernels' memory."""
    t = jnp.tanh(2 * x).sum()
    return jnp.concatenate([jnp.tanh(x + t), jnp.sin(x - t)])[None]


EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        name: getattr(jnp, name)
        for name in ("exp", "expm1", "tanh", "sin", "cos", "sinh", "cosh", "abs", "sign", "square", "negative")
    },
    **{
        f"{function.__name__} of squares": lambda x, function=function: function(x**2 + 1e-3)
        for function in (jnp.log, jnp.log1p, jnp.sqrt, jnp.reciprocal)
    },
    "rsqrt": lambda x: jax.lax.rsqrt(x**2 + 0.1),
    "power": lambda x: x**3 + 1 / (x**2 + 1) ** 2,
    "clip": lambda x: jnp.clip(x, -0.3, 0.7) / (2 + x),
    "where": lambda x: jnp.where((x > 0.2) & ~(x >= 1) | (x < -1), x, jnp.where(x <= 0, 2 * x, jnp.minimum(x, 0.1))),
    "angle": lambda x: jnp.arctan2(x, jnp.roll(x, 1)),
    "is finite": lambda x: jnp.where(jnp.isfinite(1 / jnp.maximum(x, 0)), x, 3.0),
    "equal": lambda x: jnp.where(x == jnp.maximum(x, 0), 1.0, x) + (jnp.sign(x) != 1),
    **{name: getattr(jax.nn, name) for name in ("gelu", "silu", "softplus", "relu", "elu", "selu", "sigmoid")},
    "log_cosh": nk.nn.activation.log_cosh,
    "sums": lambda x: jnp.cumsum(x) + jnp.cumsum(x, axis=0)[::-1] + x.max() - x.min() + jax.lax.cumsum(x, reverse=True),
    "products": lambda x: (x[:3, None] @ x[None, 3:6] + jnp.outer(x[:3], x[3:6])).ravel() + (1 + 0.1 * x).prod(),
    "integers": lambda x: (
        (2 * (x > 1).astype(np.int8) - 1) * x
        + ((x > 1) * 3 + jnp.cumsum(x > 1)).max()
        + (x > 0.5).sum() * (x > 1).sum()
        + jnp.stack(jnp.split((x > 1) * 3, 3)).sum()
    ),
    "sign of bits": lambda x: (bits(x - 1) >> 8 * x.dtype.itemsize - 1) * x + jnp.signbit(1 - x),
    "any and all": lambda x: jnp.where((x > 1).any() | (x < 0.5).all(), x, 2 * x[::-1]),
    "padding with numbers": lambda x: (
        jnp.pad(x[1:], (1, 2), constant_values=1.5) + jnp.pad(x[1:], (1, 2), constant_values=x[0])
    ),
    "pairs": lambda x: sum_over_pairs(x, jnp.arange(15.0)) * jnp.tanh(x),
    "moves": lambda x: jnp.concatenate(
        [
            *(x[::-2], jnp.pad(x[2:4], (1, 2)), jnp.roll(x, 2)[np.array([3, 1, 1])], x.reshape(3, -1).T.ravel()),
            *(jnp.stack([x, x[::-1]], axis=1).ravel(), jnp.tile(x[:3], 2), *jnp.unstack(x.reshape(2, -1), axis=1)),
        ]
    ),
    "a long expression": lambda x: functools.reduce(lambda y, _: jnp.tanh(y) + 0.5 * x, range(300), x),
    "products of several values": lambda x: _of_both(x) @ _of_both(x).T,
    "quotients by a few numbers": lambda x: x[:, None] / (2 + jnp.abs(x[:1])) + ((x > 0).astype(int) * 3)[:, None],
    "one minus a square": getattr(jax.lax, "one_minus_square", lambda x: (1 + x) * (1 - x)),
    "a polynomial": lambda x: getattr(jax.lax, "polynomial", lambda x, a: jnp.polyval(jnp.asarray(a[::-1]), x))(
        x, [0.5, -1.0, 2.0, 0.3]
    ),
    "other axes first": lambda x: jax.lax.reshape(x.reshape(2, 3), (6,), (1, 0)) * jnp.arange(6.0),
    "Fourier transforms back": lambda x: jnp.fft.ifft2(jnp.fft.fft2(x.reshape(2, 3)) * jnp.arange(1, 4)).real.ravel(),
    "a longer Fourier transform": lambda x: jnp.fft.ifft(jnp.fft.fft(jnp.tile(x, 2)) * jnp.arange(12.0)).imag,
    "Fourier transform": lambda x: jnp.abs(jnp.fft.fft(x)) + jnp.fft.irfft(jnp.fft.rfft(x) ** 2, len(x)),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_functions(name: str) -> None:
    function, inputs = EXPRESSIONS[name], numbers(3, ROWS, 6)
    weights = numbers(4, 64)

    def log_psi(w: Any, x: Any) -> Any:
        y = function(x).ravel()
        return (w[: y.size] * y).sum()

    compare(log_psi, weights, inputs)


def test_parameters_with_other_axes_first() -> None:
    weights, inputs = numbers(4, 2, 3), numbers(3, ROWS, 6)
    compare(lambda w, x: jnp.tanh(x + jax.lax.reshape(w, (6,), (1, 0))).sum(), weights, inputs)


COMPLEX = {
    **{
        name: getattr(jnp, name)
        for name in ("exp", "tanh", "sinh", "cosh", "sin", "cos", "log", "log1p", "conj", "square", "negative")
    },
    "quotient": lambda z: z / (2 + z[::-1]) - (1 + 2j) / (3 + z),
    "conjugates of reals": lambda z: jnp.log(jax.lax.conj(z.real)),
    "power": lambda z: z**3 + (2 + z) ** -2,
    "one minus a square": getattr(jax.lax, "one_minus_square", lambda z: (1 + z) * (1 - z)),
    "parts": lambda z: z.real + 2j * jnp.abs(z) + z.imag * z,
    "attention": lambda z: (z[:3, None] @ z[None, 3:]).ravel() + (z.real[:3, None] @ z[None, 3:]).ravel(),
    "log_cosh": nk.nn.activation.log_cosh,
    "where": lambda z: jnp.where(z.real > 0, z, 2j),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_functions_of_complex_numbers(name: str) -> None:
    function, inputs, weights = COMPLEX[name], numbers(5, ROWS, 12), numbers(6, 64, dtype=complex)

    def log_psi(w: Any, x: Any) -> Any:
        y = function(jax.lax.complex(x[:6], x[6:])).ravel()
        return (w[: y.size] * y).sum()

    compare(log_psi, weights, inputs)


AT_THE_ENDS: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(jnp, name) for name in ("exp", "expm1", "tanh", "sinh", "cosh")},
    **{name: getattr(jax.nn, name) for name in ("sigmoid", "elu", "selu")},
    "log of exp": lambda x: jnp.log(jnp.exp(x)),
    "log of tanh": lambda x: jnp.log(jnp.tanh(jnp.abs(x))),
    "log of 1 - exp": lambda x: jnp.log(-jnp.expm1(-jnp.abs(x))),
    "log of a sum of exponentials": lambda x: jax.nn.logsumexp(jnp.stack([x, jnp.full_like(x, -jnp.inf)]), axis=0),
}


@pytest.mark.parametrize(("dtype", "largest", "tolerance"), [(np.float32, 88.5, 1e-5), (np.float64, 709.5, 1e-13)])
@pytest.mark.parametrize("name", AT_THE_ENDS)
def test_small_large_and_infinite_numbers(name: str, dtype: Any, largest: float, tolerance: float) -> None:
    """Each is right relative to itself, or infinite."""
    numbers = [0.0, 1e-30, 1e-6, 0.1, 0.3, 0.35, 3.0, 80.0, largest, np.inf]
    inputs = jnp.asarray([numbers, [-x for x in numbers]], dtype)
    program = read_function(lambda _, x: AT_THE_ENDS[name](x), (), inputs[0], dtype)
    expected = AT_THE_ENDS[name](inputs)
    is_normal = (expected == 0) | (jnp.abs(expected) > 2 * np.finfo(dtype).tiny)
    found = jnp.where(is_normal, program((), inputs), expected)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=0)


NEAR_NOTHING_OR_INFINITE: dict[str, Callable[[Any], Any]] = {
    "log": jnp.log,
    "abs": lambda z: jnp.log(jnp.abs(z)),
    "quotient": lambda z: (1 + 2j) * z / (z * (2 + 1j)),
    "reciprocal": lambda z: jnp.log(z**-1),
    "log1p": lambda z: jnp.log1p(z - 1),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NEAR_NOTHING_OR_INFINITE)
def test_complex_numbers_whose_squares_are_no_numbers(name: str, dtype: Any) -> None:
    """Those of single precision from 1e-30 to 1e30, of double precision from 1e-300 to 1e300."""
    function, largest = NEAR_NOTHING_OR_INFINITE[name], 30 if dtype is np.float32 else 300
    sizes = 10 ** np.linspace(-largest, largest, 61)
    if name == "log1p":  # the square of 1 + (z - 1) is a number
        sizes = sizes[sizes > 10.0 ** (-0.5 * largest)]
    inputs = jnp.asarray(np.stack([0.5 * sizes, -sizes], axis=-1), dtype)

    def log_psi(w: Any, x: Any) -> Any:
        return w * function(jax.lax.complex(x[0], x[1]))

    expected = jax.vmap(log_psi, (None, 0))(1.0, inputs)
    assert np.isfinite(expected).all()
    compare(log_psi, jnp.ones((), dtype), inputs, 2e-5 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_cosh_near_its_zeros(dtype: Any) -> None:
    """Numbers that are off by x from iπ/2, where cosh is x."""
    distance = np.array([[1e-1], [1e-2], [1e-3], [3e-4], [-1e-3], [0.0]])
    inputs = jnp.asarray(np.concatenate([distance, np.full_like(distance, np.pi / 2)], axis=1), dtype)
    compare(
        lambda w, x: w * nk.nn.activation.log_cosh(jax.lax.complex(x[0], x[1])),
        jnp.ones((), dtype),
        inputs,
        2e-4 if dtype is np.float32 else 1e-11,
    )


def test_infinite_terms_of_a_cumulative_sum() -> None:
    """They are infinite in the sums that have them alone."""

    def log_psi(w: Any, x: Any) -> Any:
        terms = jnp.where(x > 1, -jnp.inf, x)
        return w * jnp.where(jnp.isfinite(jnp.cumsum(terms)), jnp.cumsum(terms), -7.0).sum()

    compare(log_psi, jnp.ones(()), numbers(3, ROWS, 6))


def test_angles_of_any_size() -> None:
    """Large ones don't change what is beside them."""
    inputs = np.linspace(0.1, 3.0, 64)[:, None]
    inputs[::4] *= 1e8

    def log_psi(w: Any, x: Any) -> Any:
        return w * (jnp.sin(x[0]) + jnp.cos(2 * x[0]))

    compare(log_psi, jnp.ones(()), jnp.asarray(inputs), 1e-14)
    program = read(log_psi, jnp.ones(()), inputs[0])
    tables = program.tables(jnp.ones(()))
    together, *alone = (network(rows, program.words, tables, 1) for rows in (inputs, *inputs[:, None]))
    np.testing.assert_array_equal(np.concatenate(alone), together)


@checks(20)
@given(data=st.data())
def test_products_with_parameters(data: st.DataObject) -> None:
    """Of any shapes, with the axes in any order."""
    sizes = {axis: data.draw(st.integers(1, 6), axis) for axis in "abcdefg"}
    subscripts = data.draw(
        st.sampled_from(["ab,bc->ac", "abc,dc->dab", "ab,abc->ca", "abc,dbe->aced", "ab,cd->abcd", "abc,cba->b"])
    )
    (left, right), out = subscripts.split("->")[0].split(","), subscripts.split("->")[1]
    dtypes = data.draw(st.sampled_from([(float, float), (float, complex), (complex, complex), (complex, float)]))
    is_pair = data.draw(st.booleans())
    shapes = [tuple(sizes[axis] for axis in side) for side in (left, right)]
    counts = [int(np.prod(shape)) for shape in shapes]
    weights, scale = numbers(1, *shapes[1], dtype=dtypes[1]), numbers(2, int(np.prod([sizes[axis] for axis in out])))

    def value(flat: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        return (flat if dtype is float else jax.lax.complex(flat, jnp.sin(flat))).reshape(shape)

    def function(variables: Any, x: Any) -> Any:
        weights, scale = variables
        a = value(x[: counts[0]], shapes[0], dtypes[0])
        b = value(x[counts[0] :], shapes[1], dtypes[1]) if is_pair else weights
        return (jnp.einsum(subscripts, a, b).ravel() * scale).sum()

    compare(function, (weights, scale), numbers(3, 7, sum(counts)), 1e-11)


def _of_several_shapes(w: Any, x: Any) -> Any:
    """Results that depend on parameters alone, on the configuration, or on nothing; each place of x twice or never."""
    y = jnp.tanh(x[:12].reshape(3, 4) @ w["real"])
    back = jnp.zeros((5, 2)).at[np.array([0, 3, 3, 3, 7]), np.array([1, 0, 0, 1, 0])].add(x[:5] * w["real"].sum())
    more = (w["real"][:1, 0] * jnp.ones(4)).at[np.array([2, 2, 0])].add(y.sum(axis=1))
    z = y * w["complex"][:2]
    return {"y": y, "back": [back, more], "z": (z, z.sum()), "alone": (w["complex"] ** 2, jnp.arange(3.0)), "x": x[2]}


@pytest.mark.parametrize("dtype", [np.int8, np.float64])
def test_results_of_several_shapes(dtype: Any) -> None:
    variables = {"real": numbers(1, 4, 2), "complex": numbers(2, 3, dtype=complex)}
    x = (3 * numbers(3, ROWS, 16)).astype(dtype)

    def function(variables: Any, x: Any) -> Any:
        return _of_several_shapes(variables, x.astype(float))

    program = read_function(function, variables, x[0], np.float64)
    expected = jax.vmap(function, (None, 0))(variables, x)
    found = jax.jit(program)(variables, x)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
    words, tables = program.program.operands(variables)
    twin = evaluate(words, np.asarray(tables), np.asarray(x, float))
    kernels = network(x.astype(float), words, tables, program.program.results)
    np.testing.assert_allclose(kernels, twin, rtol=1e-13, atol=1e-13)


@checks(20)
@given(data=st.data())
def test_elements_that_are_added_to_others(data: st.DataObject) -> None:
    """The backward pass of a gather, out of bounds as well."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3), "shape"))
    axis = data.draw(st.integers(0, len(shape) - 1), "axis")
    picked = np.array(data.draw(st.lists(st.integers(-6, 6), min_size=1, max_size=7), "places"))
    mode = data.draw(st.sampled_from(["fill", "clip", "wrap"]))
    w = numbers(5, *np.take(np.empty(shape), picked % shape[axis], axis).shape)

    def function(w: Any, x: Any) -> Any:
        def taken(y: Any) -> Any:
            return (jnp.take(y, picked, axis, mode=mode, fill_value=0.0) * w * jnp.cos(x[0])).sum()

        return (jax.grad(taken)(x.reshape(shape)) * jnp.sin(x).reshape(shape)).sum()

    compare(function, w, numbers(6, 7, int(np.prod(shape))), 1e-11)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda w, x: jax.lax.erf(x).sum(), "the kernels have no 'erf'"),
        (lambda w, x: jnp.sort(x)[0], "the kernels have no 'sort'"),
        (lambda w, x: w[x.astype(int)].sum(), "it makes integers of numbers"),
        (lambda w, x: x.astype(np.float32).sum().astype(float), "it has numbers of float32 among those of float64"),
        (lambda w, x: w.sum(), "its value doesn't depend on the configuration"),
        (lambda w, x: ((x > 0).astype(int) & 3).sum() * w[0], "it has 'and' of the bits of integers"),
        (
            lambda w, x: jax.lax.div((x > 0) * 5, jnp.broadcast_to(1 + (x[:1] > 0), x.shape)).sum() * w[0],
            "it has 'div' by integers that aren't known",
        ),
        (lambda w, x: (-(x > 0).astype(np.uint8)).sum() * w[0], "'neg' of integers without a sign"),
        (lambda w, x: (-(x > 0).astype(np.int8)).astype(np.uint8).sum() * w[0], "it makes integers without a sign"),
        (lambda w, x: ((x > 0).astype(np.int8) * np.int8(100) * np.int8(3)).sum() * w[0], "int8 may be too large"),
        (lambda w, x: ((x > 0).astype(np.int32) * 2**30 * (x > 1) + 2**30).sum() * w[0], "int32 may be too large"),
        (lambda w, x: (bits(x) < 0).sum() * w[0], "it has the bits of numbers"),
        (lambda w, x: (bits(x) >> 7).sum() * w[0], "it shifts the bits of numbers"),
        (lambda w, x: jax.lax.reduce_precision(x, 8, 7).sum(), "the kernels have no 'reduce_precision'"),
        (lambda w, x: w[x].sum(), "reading it ends in TypeError: Indexer must have integer or boolean type"),
        (lambda w, x: (x @ w).astype(np.float32), "it has numbers of float32 among those of float64"),
    ],
)
def test_what_cannot_be_read_is_told(function: Any, reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        read(function, numbers(1, 6), jax.ShapeDtypeStruct((6,), float))


def test_the_kernels_have_the_same_instructions() -> None:
    assert set(FUNCTIONS) == set(INSTRUCTIONS)
    for place, name in enumerate(INSTRUCTIONS):
        function = FUNCTIONS[name]
        count = function.nin if isinstance(function, np.ufunc) else function.__code__.co_argcount
        words = [
            count,
            0,
            1,
            count,
            count + 1,
            0,
            1,
            3,
            1,
            count,
            count + 1,
        ]  # inputs, the result, places, tables, operations
        words += [part for arg in range(count) for part in (0, arg)]
        words += [1, place, count, *range(count), *(0,) * (3 - count), 1, count, count]
        inputs = np.array([[0.3, 0.4, -0.5], [-0.7, 0.2, 0.9], [0.0, 1.5, 2.5]])[:, :count]
        inputs = np.abs(inputs) + 0.1 if name in ("sqrt", "rsqrt", "log", "reciprocal") else inputs
        found = network(jnp.asarray(inputs), np.array(words), jnp.zeros(0), 1)
        np.testing.assert_allclose(np.asarray(found)[:, 0], function(*inputs.T).astype(float), atol=1e-14, err_msg=name)


def test_programs_that_are_wrong_are_refused() -> None:
    program = read(lambda w, x: jnp.tanh(x @ w).sum(), numbers(1, 6, 3), jax.ShapeDtypeStruct((6,), float))
    tables, x = program.tables(numbers(1, 6, 3)), numbers(2, 4, 6)
    for words, reason in [
        (program.words[:-1], "it ends too early"),
        (np.append(program.words, 1), "it goes on behind its end"),
        (np.where(program.words == 18, 19, program.words), "numbers"),
        (np.where(np.arange(program.words.size) == 3, 999, program.words), "but names others"),
    ]:
        with pytest.raises(jax.errors.JaxRuntimeError, match=reason):
            network(x, words, tables, 1).block_until_ready()
    with pytest.raises(jax.errors.JaxRuntimeError, match="the program takes 6 numbers, not 5"):
        network(x[:, :5], program.words, tables, 1).block_until_ready()


def test_local_energies_and_chains_take_programs() -> None:
    hilbert = nk.hilbert.Spin(0.5, 16, total_sz=0)
    operator = fk.operator.Heisenberg(hilbert, SQUARE)
    sampler = fk.sampler.MetropolisExchange(hilbert, graph=SQUARE, n_chains=4, dtype=float)
    state = nk.vqs.MCState(sampler, models.ResCNN((4, 4)), n_samples=16, seed=1)
    assert "evaluated in Rust, in lanes" in str(fk.explain(state, operator))
    assert fk.sampler.explain(state).path == "chains in Rust"
    theirs = nk.operator.Heisenberg(hilbert, SQUARE)
    found, expected = (np.asarray(state.local_estimators(one).ravel()) for one in (operator, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_defect_of_the_reader_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA evaluates the network then, but not in silence."""

    def fail(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setitem(RULES, "tanh", fail)
    with pytest.warns(RuntimeWarning, match="a defect that you should report: XLA evaluates it"):
        found = structure(lambda w, x: jnp.tanh(x @ w).sum(axis=-1), numbers(1, 16, 3), X, key=object())
    assert found.rest is None
    assert "reading it ends in AssertionError" in str(found.reason)


def read_on_each_device() -> None:
    """The programs of some networks and of their derivatives, read in a function on each of several devices."""
    assert jax.device_count() == 2

    def programs() -> Iterator[str]:
        for name in ("loops", "convolutions", "ResCNN", "GCNN of translations", "RBMSymm"):
            model = NETWORKS[name]
            shapes = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, 16), np.float64))
            yield str(structure(model.apply, shapes, X, key=model).rest)
            derivatives = in_lanes(structure_of_parameters(model.apply, shapes["params"], {}, X), "real")
            yield derivatives if isinstance(derivatives, str) else str(derivatives.program)

    expected, found = list(programs()), []

    def local(x: jax.Array) -> jax.Array:
        assert jax.sharding.get_abstract_mesh().manual_axes
        found.extend(programs())
        return x

    jax.eval_shape(on_each_device(local, (True,)), jnp.ones((2, 16)))
    assert found == expected
    by_xla = {program for program in found if not program.startswith("in Rust")}
    assert by_xla == {"it convolves parameters, or values with each other"}  # the derivatives of grouped convolutions


def test_on_each_device() -> None:
    # JAX 0.8 warns of complex numbers that are cast to real ones.
    run_on_devices(read_on_each_device, 2, PYTHONWARNINGS="ignore").ok()
