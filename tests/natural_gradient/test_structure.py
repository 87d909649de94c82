"""Which products of parameters with samples are found in a network, and whether it is holomorphic."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import netket.experimental as nkx
import pytest
from jacobians import names, network_of
from networks import CASES, FLAX, Case, some_samples

from ferroket.natural_gradient.structure import Network

SAMPLES = some_samples()


def parts(network: Network) -> list[tuple[int, int]]:
    """The number of parts and positions of each product."""
    return sorted((product.n_parts, product.n_positions) for product in network.products)


def assert_canonical(network: Network, parameters: Any) -> None:
    """Factors, taps and parameters have the shapes that a product says."""
    taps = [jax.ShapeDtypeStruct((*product.lengths, *product.y.shape), product.y.dtype) for product in network.products]
    leaves = jax.tree.leaves(parameters)
    value, operands = jax.eval_shape(network, taps, leaves, {}, SAMPLES[0])
    assert value == jax.ShapeDtypeStruct((), network.dtype)
    for product, x, tap in zip(network.products, operands, taps, strict=True):
        n_parts, n_in, n_out = product.n_parts, *product.sizes[1:]
        width = x.shape[-1] if product.is_of_pairs else n_in
        assert jax.eval_shape(lambda x, p=product: p.group(x, 0), x).shape == (n_parts, product.n_positions, width)
        assert jax.eval_shape(lambda y, p=product: p.taps_of(y, 0), tap).shape == (n_parts, product.n_positions, n_out)
        assert jax.eval_shape(product.view, leaves[product.leaf]).shape == (n_parts, n_in, n_out)


def without_products(network: Network) -> set[int]:
    """The parameters that aren't in a product: biases are in the rows of their kernels, or have their own."""
    return {*network.direct, *biases(network)}


def biases(network: Network) -> set[int]:
    return {product.bias.leaf for product in network.products if product.bias is not None}


@pytest.mark.parametrize("name", CASES)
def test_products(name: str) -> None:
    case = CASES[name]
    parameters = case.parameters()
    network = network_of(case.log_psi, {"params": parameters}, SAMPLES)
    assert parts(network) == sorted(case.parts)
    assert {names(parameters)[place] for place in without_products(network)} == set(case.direct)
    assert_canonical(network, parameters)


@pytest.mark.parametrize("name", FLAX)
def test_products_of_modules(name: str) -> None:
    case = FLAX[name]
    variables = case.variables()
    network = network_of(case.log_psi, variables, SAMPLES)
    assert parts(network) == sorted(case.parts)
    direct = {names(variables["params"])[place] for place in without_products(network)}
    assert direct == {name for name in names(variables["params"]) if name.endswith(case.direct)}


# Holomorphic functions


def _complex(function: Callable[[Any, jax.Array], jax.Array]) -> Case:
    return Case(function, {"w": ((6, 3), complex), "v": ((3, 2), complex)})


def log_cosh(function: Callable[[Any, jax.Array], jax.Array]) -> Callable[[Any, jax.Array], jax.Array]:
    return lambda p, s: nk.nn.activation.log_cosh(function(p, s)).sum()


HOLOMORPHIC = {
    "two layers": lambda p, s: jnp.tanh(s @ p["w"]) @ p["v"],
    "rows": lambda p, s: jnp.exp(p["w"] * s[:, None]).sum() + p["v"] ** 3,
    "complex numbers beside": lambda p, s: (s @ p["w"]) @ p["v"] * (1 - 2j),
    "of the samples' real functions": lambda p, s: jnp.abs(s[0] - 2) * ((s @ p["w"]) @ p["v"]),
    "scan": lambda p, s: (
        jax.lax.scan(lambda h, x: (jnp.tanh(h @ p["w"][:3] + x), None), jnp.ones(3) + 0j, s)[0] @ p["v"]
    ),
    "logarithm of a sum of exponentials": lambda p, s: jnp.log(jnp.exp(s @ p["w"]).sum()) + p["v"],
    "determinant": lambda p, s: jnp.log(jnp.linalg.det(p["w"][:3] * s[:3] + 2 * jnp.eye(3))) + p["v"],
}
OTHERS = {
    "conjugate": lambda p, s: jnp.tanh(s @ p["w"].conj()) @ p["v"],
    "conjugate amplitude": lambda p, s: jnp.tanh(s @ p["w"]).conj() @ p["v"],
    "absolute": lambda p, s: jnp.abs(s @ p["w"]) @ p["v"],
    "real": lambda p, s: (s @ p["w"]).real @ p["v"],
    "imaginary": lambda p, s: jnp.sin((s @ p["w"]).imag) @ p["v"],
    "angle": lambda p, s: jnp.angle(s @ p["w"]) @ p["v"],
    "real activation": lambda p, s: nk.nn.activation.reim_selu(s @ p["w"]) @ p["v"],
    "real part in a loop": lambda p, s: (
        jax.lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h).real + 0j, s @ p["w"]) @ p["v"]
    ),
    "conjugate in one branch": lambda p, s: jax.lax.cond(s[0] > 0, jnp.conj, lambda y: y, s @ p["w"]) @ p["v"],
    "real amplitude": lambda p, s: jnp.abs((s @ p["w"]) @ p["v"]),
}


@pytest.mark.parametrize("name", [*HOLOMORPHIC, *OTHERS])
def test_holomorphic_functions(name: str) -> None:
    case = _complex(log_cosh({**HOLOMORPHIC, **OTHERS}[name]))
    if name == "real amplitude":
        case = _complex(lambda p, s: OTHERS[name](p, s).sum())
    network = network_of(case.log_psi, {"params": case.parameters()}, SAMPLES)
    assert network.is_holomorphic == (name in HOLOMORPHIC)


SPINS, CHAIN = nk.hilbert.Spin(0.5, 6), nk.graph.Chain(6)
KERNELS: dict[str, tuple[Any, set[str], bool]] = {
    "RBM": (nk.models.RBM(alpha=1), {"Dense/kernel", "visible_bias"}, False),
    "RBM, complex": (nk.models.RBM(alpha=1, param_dtype=complex), {"Dense/kernel", "visible_bias"}, True),
    "MLP": (
        nk.models.MLP(hidden_dims=(4,), hidden_activations=nk.nn.activation.log_cosh, param_dtype=complex),
        {"MLP_0/Dense_0/kernel", "MLP_0/Dense_1/kernel"},
        True,
    ),
    "RBMModPhase": (nk.models.RBMModPhase(alpha=1), {"Dense_0/kernel", "Dense_1/kernel"}, False),
    "RBMSymm": (nk.models.RBMSymm(symmetries=CHAIN.translation_group(), alpha=1, param_dtype=complex), set(), True),
    "LogStateVector": (nk.models.LogStateVector(SPINS), set(), True),
    "Jastrow, real": (nk.models.Jastrow(param_dtype=float), {"kernel"}, False),
    "GCNN, irreps": (
        nk.models.GCNN(symmetries=CHAIN, layers=2, features=2, mode="irreps"),
        {"equivariant_layers_0/kernel"},
        False,
    ),
    "ARNNConv1D": (
        nk.models.ARNNConv1D(hilbert=SPINS, layers=2, features=3, kernel_size=2),
        {"_layers_0/kernel", "_layers_1/kernel"},
        False,
    ),
    "GRUNet1D": (
        nkx.models.GRUNet1D(hilbert=SPINS, layers=1, features=3),
        {"_layers_0/cell/n_kernel", "_layers_0/cell/rz_kernel"},
        False,
    ),
}
"""Of NetKet's models: those of their parameters that are found in products, and whether they are holomorphic."""


@pytest.mark.parametrize("name", KERNELS)
def test_netkets_models(name: str) -> None:
    model, kernels, is_holomorphic = KERNELS[name]
    variables = jax.eval_shape(model.init, jax.random.key(0), SAMPLES)
    network = network_of(model.apply, variables, SAMPLES)
    of = names(variables["params"])
    assert {of[product.leaf] for product in network.products} == kernels
    assert {of[place] for place in without_products(network)} == set(of) - kernels
    assert network.is_holomorphic == is_holomorphic


def test_real_parameters_are_not_holomorphic() -> None:
    case = Case(lambda p, s: ((s @ p["w"]) @ p["v"]).sum(), {"w": ((6, 3), complex), "v": (3, 2)})
    assert not network_of(case.log_psi, {"params": case.parameters()}, SAMPLES).is_holomorphic


@pytest.mark.parametrize(("name", "expected"), [("RBM", {"Dense/bias"}), ("MLP", {"MLP_0/Dense_0/bias"})])
def test_biases_are_rows_of_their_kernels(name: str, expected: set[str]) -> None:
    model = KERNELS[name][0]
    variables = jax.eval_shape(model.init, jax.random.key(0), SAMPLES)
    of = names(variables["params"])
    network = network_of(model.apply, variables, SAMPLES)
    assert {of[place] for place in biases(network)} >= expected
    assert not biases(network) & set(network.direct)


def test_a_bias_of_what_is_used_twice_has_rows_of_its_own() -> None:
    def log_psi(variables: Any, s: jax.Array) -> jax.Array:
        y = s @ variables["params"]["w"]
        return (jnp.tanh(y + variables["params"]["b"]) + y).sum(axis=-1)

    parameters = {"b": jnp.zeros(3), "w": jnp.zeros((6, 3))}
    network = network_of(log_psi, {"params": parameters}, SAMPLES)
    assert biases(network) == set()
    assert set(network.direct) == {0}
