"""Log-derivatives as factors and rows, against JAX's Jacobian."""

import math
from typing import Any

import flax.linen as nn
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from hypothesis import given
from jacobians import compare, names
from jax import lax
from networks import CASES, FLAX, N_SITES, Case, out, some_samples

from support.generated_operators import checks
from support.variational_states import random_like

SAMPLES = some_samples()

thorough = pytest.mark.thorough


def jacobian_of(name: str) -> Any:
    """Of convolutions in groups JAX has none by reverse mode."""
    return jax.jacfwd if "groups" in name else jax.jacrev


# One of each kind of use. What is found in the others, test_structure shows without compiling them.
QUICK = [
    *("two layers", "transposed", "positions", "parts", "bilinear", "used twice", "linear and not", "masked"),
    *(
        "embedding",
        "integers",
        "not used",
        "complex",
        "complex, and conjugate",
        "promoted",
        "real and complex",
        "real bias of a complex kernel",
    ),
    *("complex scan", "layers of sites", "checkpoint in scan", "custom_jvp of a parameter", "convolution"),
]


@pytest.mark.quick(*(f"{name}-complex" for name in QUICK))
@pytest.mark.parametrize("mode", [pytest.param("real", marks=thorough), "complex"])
@pytest.mark.parametrize("name", CASES)
def test_networks(name: str, mode: str) -> None:
    case = CASES[name]
    variables = {"params": case.parameters()}
    is_single = "cast" in name
    found = compare(
        case.log_psi, variables, SAMPLES, mode, rtol=1e-5 if is_single else 1e-10, jacobian=jacobian_of(name)
    )
    assert found.rows | found.biases == {*case.direct, *case.rows}


def test_a_real_bias_of_a_complex_kernel_has_factors_of_its_own() -> None:
    case = Case(lambda p, s: jnp.tanh(s @ p["w"] + p["b"]).sum(), {"w": ((6, 3), complex), "b": (3,)}, ())
    found = compare(case.log_psi, {"params": case.parameters()}, SAMPLES, "complex")
    assert found.factors == {"b", "w"}
    assert not found.biases


@pytest.mark.quick("Dense", "Conv, circular", "Conv, groups", "scan", "attention")
@pytest.mark.parametrize("name", FLAX)
def test_modules(name: str) -> None:
    case = FLAX[name]
    variables = case.variables()
    found = compare(case.log_psi, variables, SAMPLES, "complex", jacobian=jacobian_of(name))
    assert found.rows | found.biases == {name for name in names(variables["params"]) if name.endswith(case.direct)}


@pytest.mark.parametrize("chunk_size", [1, 2, 5, 100])
def test_chunks(chunk_size: int) -> None:
    """Also where they don't divide the number of samples."""
    case = CASES["real and complex"]
    compare(case.log_psi, {"params": case.parameters()}, SAMPLES, "complex", chunk_size)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float32, float])
def test_types_of_samples(dtype: Any) -> None:
    model = nk.models.RBM(alpha=1)
    variables = model.init(jax.random.key(0), SAMPLES)
    found = compare(model.apply, variables, SAMPLES.astype(dtype), "complex")
    assert found.factors == {"Dense/kernel", "visible_bias"}
    assert found.biases == {"Dense/bias"}


class FirstConvolution(nn.Module):
    """Casts samples to complex numbers, gives them another shape, and pads them with each other."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.astype(complex).reshape(*x.shape, 1)
        y = nn.Conv(2, (3,), padding="CIRCULAR", param_dtype=complex)(x)
        return nn.Dense(1, param_dtype=complex)(jnp.tanh(y).reshape(*x.shape[:-2], -1))[..., 0]


@pytest.mark.parametrize(
    ("model", "first"),
    [
        (nk.models.MLP(hidden_dims=(3,), param_dtype=complex), "MLP_0/Dense_0/kernel"),
        (FirstConvolution(), "Conv_0/kernel"),
    ],
)
def test_samples_stay_real(model: Any, first: str) -> None:
    """In the factors of a complex first layer, whose products are half as many then; what follows is complex."""
    variables = random_like(jax.eval_shape(model.init, jax.random.key(0), SAMPLES), 0.3)
    found = compare(model.apply, variables, SAMPLES, "complex")
    types = {found.names[leaf]: factors.x.dtype for leaf, factors in found.made.factors.items()}
    assert first in found.with_rows or types.pop(first) == np.dtype(float)
    assert set(types.values()) == {np.dtype(complex)}


@pytest.mark.quick("complex-complex64")
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("mode", ["real", "complex"])
def test_single_precision(mode: str, dtype: Any) -> None:
    model = nk.models.MLP(hidden_dims=(4, 3), param_dtype=dtype, hidden_activations=jnp.tanh)
    variables = model.init(jax.random.key(0), SAMPLES)
    found = compare(model.apply, variables, SAMPLES.astype(np.float32), mode, rtol=1e-4)
    assert len(found.factors) == 3


# Random networks


def shuffled(draw: Any, items: range) -> list[int]:
    order: list[int] = draw(st.permutations(items))
    return order


@st.composite
def dots(draw: Any) -> Case:
    """A product of a kernel with what a sample makes of a constant array, its axes in any order."""
    kinds = {kind: draw(st.lists(st.integers(1, 3), max_size=2)) for kind in ("part", "x", "w")}
    kinds["inner"] = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    axes = [(kind, i) for kind in kinds for i in range(len(kinds[kind]))]
    of_w = draw(st.permutations([axis for axis in axes if axis[0] != "x"]))
    of_x = draw(st.permutations([axis for axis in axes if axis[0] != "w"]))
    pairs = {kind: draw(st.permutations([axis for axis in axes if axis[0] == kind])) for kind in ("inner", "part")}
    first = draw(st.booleans())
    dtype = draw(st.sampled_from([float, complex]))
    x_dtype = draw(st.sampled_from([dtype, complex]))

    def sizes(axes: Any) -> tuple[int, ...]:
        return tuple(kinds[kind][i] for kind, i in axes)

    sides = (of_w, of_x) if first else (of_x, of_w)
    numbers = tuple(
        tuple(tuple(side.index(axis) for axis in pairs[kind]) for side in sides) for kind in ("inner", "part")
    )
    x_shape = sizes(of_x)
    rng = np.random.default_rng(1)
    mix = rng.normal(size=(math.prod(x_shape), N_SITES)) + (1j if x_dtype is complex else 0)

    def function(p: Any, s: jax.Array) -> jax.Array:
        x = (mix @ s).reshape(x_shape)
        w = p["w"].astype(x.dtype)
        return out(lax.dot_general(*((w, x) if first else (x, w)), numbers))

    part, positions = math.prod(kinds["part"]), math.prod(kinds["x"])
    return Case(function, {"w": (sizes(of_w), dtype)}, ((part, positions),))


@checks(6)
@given(case=dots(), mode=st.sampled_from(["real", "complex"]))
def test_products_in_any_layout(case: Case, mode: str) -> None:
    found = compare(case.log_psi, {"params": case.parameters()}, SAMPLES, mode)
    assert found.factors == {"w"}
    (product,) = found.made.network.products
    assert ((product.n_parts, product.n_positions),) == case.parts


LAYOUTS = {
    1: [("NHC", "HIO", "NHC"), ("NCH", "OIH", "NCH"), ("HNC", "IHO", "CHN")],
    2: [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("WNCH", "OHIW", "CWNH")],
}


@st.composite
def convolutions(draw: Any) -> Case:
    """Of what a sample makes of a constant array."""
    n_dims = draw(st.integers(1, 2))
    a_few, one_or_two = st.integers(1, 3), st.integers(1, 2)
    lhs, rhs, result = draw(st.sampled_from(LAYOUTS[n_dims]))
    window = draw(st.lists(a_few, min_size=n_dims, max_size=n_dims))
    space = draw(st.lists(st.integers(2, 4), min_size=n_dims, max_size=n_dims))
    n_in, n_out, batch = draw(a_few), draw(one_or_two), draw(one_or_two)
    strides, base_dilation, window_dilation = (
        draw(st.lists(one_or_two, min_size=n_dims, max_size=n_dims)) for _ in range(3)
    )
    low = [(w - 1) * d for w, d in zip(window, window_dilation, strict=True)]  # so that the window fits in
    padding = [(some, draw(st.integers(-1, 2))) for some in low]
    dtype = draw(st.sampled_from([float, complex]))
    at = dict(zip("HW", range(n_dims), strict=False))
    x_shape = tuple({"N": batch, "C": n_in}.get(c) or space[at[c]] for c in lhs)
    w_shape = tuple({"I": n_in, "O": n_out}.get(c) or window[at[c]] for c in rhs)
    mix = np.random.default_rng(1).normal(size=(math.prod(x_shape), N_SITES))

    def function(p: Any, s: jax.Array) -> jax.Array:
        return out(
            lax.conv_general_dilated(
                (mix @ s).reshape(x_shape).astype(dtype),
                p["w"],
                strides,
                padding,
                lhs_dilation=base_dilation,
                rhs_dilation=window_dilation,
                dimension_numbers=(lhs, rhs, result),
            )
        )

    return Case(function, {"w": (w_shape, dtype)})


@checks(5)
@given(case=convolutions(), mode=st.sampled_from(["real", "complex"]))
def test_any_convolution(case: Case, mode: str) -> None:
    found = compare(case.log_psi, {"params": case.parameters()}, SAMPLES, mode)
    assert found.factors == {"w"}
