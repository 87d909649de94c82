"""Models whose amplitude ratios are known, in Rust, against their definition and NetKet's kernel."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from netket.vqs.mc.kernels import local_value_kernel_jax

import ferroket as fk
from comparing import on_a_gpu
from example_operators import EXAMPLES
from ferroket.local_energy import family

CHAIN = nk.graph.Chain(6)
TRANSLATIONS = CHAIN.translation_group()
SPINS = nk.hilbert.Spin(0.5, 6)
TWO_STATES = [example for example in EXAMPLES if set(example.ours().hilbert.shape) == {2}]
RBM, RBMSymm, RBMModPhase = nk.models.RBM, nk.models.RBMSymm, nk.models.RBMModPhase
MODELS = {
    "RBM": RBM(alpha=1),
    "RBM, α=3": RBM(alpha=3),
    "RBM, no biases": RBM(alpha=2, use_hidden_bias=False, use_visible_bias=False),
    "RBM, complex": RBM(alpha=2, param_dtype=complex),
    "RBM, float32": RBM(alpha=2, param_dtype=np.float32),
    "RBM, complex64": RBM(alpha=2, param_dtype=np.complex64),
    "RBMModPhase": RBMModPhase(alpha=2),
    "RBMModPhase, no bias": RBMModPhase(alpha=1, use_hidden_bias=False),
    "RBMModPhase, float32": RBMModPhase(alpha=1, param_dtype=np.float32),
    "RBMSymm": RBMSymm(symmetries=TRANSLATIONS, alpha=2),
    "RBMSymm, no biases": RBMSymm(symmetries=TRANSLATIONS, alpha=2, use_hidden_bias=False, use_visible_bias=False),
    "RBMSymm, complex": RBMSymm(symmetries=TRANSLATIONS, alpha=2, param_dtype=complex),
    "RBMMultiVal": nk.models.RBMMultiVal(n_classes=2),
    "RBMMultiVal, no biases": nk.models.RBMMultiVal(
        n_classes=3, param_dtype=complex, use_hidden_bias=False, use_visible_bias=False
    ),
    "Jastrow": nk.models.Jastrow(),
    "Jastrow, real": nk.models.Jastrow(param_dtype=float),
    "Jastrow, complex64": nk.models.Jastrow(param_dtype=np.complex64),
}
# One that flips single sites, one that flips pairs and conserves their sum, and one with complex elements and strings.
OPERATORS = {
    "Ising": fk.operator.Ising(SPINS, CHAIN, h=0.7, J=1.3),
    "Heisenberg": fk.operator.Heisenberg(nk.hilbert.Spin(0.5, 6, total_sz=0), CHAIN),
    "Pauli strings": fk.operator.PauliStrings(
        nk.hilbert.Qubit(6),
        ["XXIIII", "YIIZII", "IYXYXI", "ZZIIII", "XXXXXX", "IIIZYX"],
        [0.3, 0.5, -1.2, 0.7, 0.2, 1.1],
    ),
}


def random_like(tree: Any, scale: float) -> Any:
    """Normal numbers of this scale in the place of others."""
    rng = np.random.default_rng(0)

    def random(leaf: Any) -> Any:
        numbers = rng.normal(size=leaf.shape, scale=scale)
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            numbers = numbers + 1j * rng.normal(size=leaf.shape, scale=scale)
        return jnp.asarray(numbers, leaf.dtype)

    return jax.tree.map(random, tree)


def make_state(model: Any, operator: Any, n_samples: int = 70, scale: float = 0.3, dtype: Any = np.int8) -> Any:
    """A state with random parameters, and samples."""
    sampler = nk.sampler.MetropolisLocal(operator.hilbert, n_chains=16, dtype=dtype)
    state = nk.vqs.MCState(sampler, model, n_samples=16, seed=0)
    state.parameters = random_like(state.parameters, scale)
    x = operator.hilbert.random_state(jax.random.key(1), n_samples, dtype=dtype)
    return state, x


def known_values(state: Any, operator: Any, x: Any, **options: Any) -> jax.Array:
    """By the kernel that NetKet's states take, which must be that of a family."""
    kernel = nk.vqs.get_local_kernel(state, operator)
    assert family.find(state, operator)[0] is not None
    values: jax.Array = jax.jit(partial(kernel, state._apply_fun, **options))(state.variables, x, operator)
    return values


def netkets_values(logpsi: Any, variables: Any, x: Any, operator: Any) -> jax.Array:
    """By NetKet's kernel."""
    values: jax.Array = jax.jit(local_value_kernel_jax, static_argnums=0)(logpsi, variables, x, operator)
    return values


def is_single(state: Any) -> bool:
    return any(leaf.dtype in (np.float32, np.complex64) for leaf in jax.tree.leaves(state.parameters))


def compare(state: Any, operator: Any, x: Any) -> None:
    found = known_values(state, operator, x)
    expected = netkets_values(state._apply_fun, state.variables, x, operator)
    assert found.dtype == expected.dtype
    tolerance = 3e-5 if is_single(state) else 1e-12
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max(initial=0))


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_every_model(model: Any, operator: Any) -> None:
    compare(*reordered(model, operator))


def reordered(model: Any, operator: Any, **options: Any) -> tuple[Any, Any, Any]:
    state, x = make_state(model, operator, **options)
    return state, operator, x


@pytest.mark.parametrize("example", TWO_STATES, ids=lambda example: example.title)
@pytest.mark.parametrize("model", [MODELS["RBM, complex"], MODELS["Jastrow"]], ids=["RBM", "Jastrow"])
def test_every_operator(example: Any, model: Any) -> None:
    operator = example.ours()
    state, x = make_state(model, operator)
    if family.find(state, operator)[0] is None:
        assert not isinstance(operator._form, fk.operator.TermSum | family.Terms)
        pytest.skip("the operator isn't of non-branching terms")
    compare(state, operator, x)


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.float64])
@pytest.mark.parametrize("name", ["RBM", "RBM, float32", "RBMMultiVal", "Jastrow, complex64"])
def test_dtypes_of_samples(name: str, dtype: Any) -> None:
    compare(*reordered(MODELS[name], OPERATORS["Pauli strings"], dtype=dtype))


# Ratios of e^±100 and more, factors that cancel, and flips of two sites whose effects do.
@pytest.mark.parametrize("scale", [0.01, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("name", ["RBM", "RBM, complex", "RBM, float32", "RBMModPhase", "RBMSymm", "Jastrow"])
def test_large_parameters(name: str, scale: float) -> None:
    operator = OPERATORS["Heisenberg"]
    state, x = make_state(MODELS[name], operator, scale=scale)
    found = np.asarray(known_values(state, operator, x))
    # In double precision in any case: of numbers of e^100, NetKet's float32 knows few digits.
    double = {np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}
    variables = jax.tree.map(lambda leaf: leaf.astype(double.get(leaf.dtype, leaf.dtype)), state.variables)
    expected = np.asarray(netkets_values(state._apply_fun, variables, x, operator))
    finite = np.abs(expected) < (1e37 if is_single(state) else 1e300)
    assert finite.any()
    # The angles of complex amplitudes are as large as their logarithms, and as inexact.
    tolerance = (1e-3 if is_single(state) else 1e-11) * max(scale, 1)
    largest = np.abs(operator.get_conn_padded(x)[1]).max() * np.abs(expected)
    np.testing.assert_array_less(np.abs(found - expected)[finite], tolerance * largest[finite] + 1e-11)


@pytest.mark.parametrize("name", ["RBM, float32", "RBM"])
def test_products_that_overflow(name: str) -> None:
    """Of many hidden units that change much each, the product of factors would leave the numbers' range."""
    hilbert = nk.hilbert.Spin(0.5, 6, total_sz=0)
    operator = fk.operator.Heisenberg(hilbert, CHAIN)
    model = RBM(alpha=100, param_dtype=MODELS[name].param_dtype, use_hidden_bias=False, use_visible_bias=False)
    state, x = make_state(model, operator)
    # Two equal sites: to exchange them changes nothing, though each of them changes much.
    kernel = jnp.full((6, 600), 1.2, model.param_dtype).at[0].set(1.25)
    state.parameters = {"Dense": {"kernel": kernel}}
    compare(state, operator, x)


@pytest.mark.parametrize("sites", [1, 2, 31, 64, 70])
def test_flips_of_many_sites(sites: int) -> None:
    rng = np.random.default_rng(1)
    strings = ["".join(rng.choice(list("IXYZ"), sites)) for _ in range(9)]
    operator = fk.operator.PauliStrings(nk.hilbert.Qubit(sites), strings, rng.normal(size=9))
    for model in (RBM(param_dtype=complex), nk.models.Jastrow()):
        compare(*reordered(model, operator, n_samples=300, scale=0.2 / sites**0.5))


@pytest.mark.parametrize("n_samples", [0, 1, 63, 64, 257])
def test_numbers_of_samples(n_samples: int) -> None:
    compare(*reordered(MODELS["RBM"], OPERATORS["Ising"], n_samples=n_samples))


def test_derivatives() -> None:
    """By the parameters and by the coefficients: those of any network."""
    state, x = make_state(MODELS["RBM, complex"], OPERATORS["Heisenberg"], n_samples=9)
    operator = OPERATORS["Heisenberg"]

    def of(kernel: Any) -> Any:
        def function(parameters: Any, factor: Any) -> jax.Array:
            values = kernel(state._apply_fun, {"params": parameters}, x, factor * operator)
            return (jnp.arange(len(x)) * jnp.abs(values) ** 2).sum()

        return jax.jit(jax.grad(function, argnums=(0, 1)))(state.parameters, 1.3)

    found, expected = of(nk.vqs.get_local_kernel(state, operator)), of(local_value_kernel_jax)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-9), found, expected)
    assert abs(found[1]) > 1


def test_one_program_for_all_parameters_and_coefficients() -> None:
    state, x = make_state(MODELS["RBM"], OPERATORS["Ising"])
    kernel = nk.vqs.get_local_kernel(state, OPERATORS["Ising"])
    traced = []

    @jax.jit
    def evaluate(variables: Any, x: Any, operator: Any) -> jax.Array:
        traced.append(1)
        return kernel(state._apply_fun, variables, x, operator)

    for h in (0.1, 0.2):
        operator = fk.operator.Ising(SPINS, CHAIN, h=h)
        variables = jax.tree.map(lambda leaf, h=h: leaf * h, state.variables)
        expected = netkets_values(state._apply_fun, variables, x, operator)
        np.testing.assert_allclose(evaluate(variables, x, operator), expected, rtol=1e-12)
    assert len(traced) == 1


def test_no_connected_configuration_is_built() -> None:
    """The program has no array that is as large as those would be."""
    operator = fk.operator.Heisenberg(nk.hilbert.Spin(0.5, 64), nk.graph.Chain(64))
    state, x = make_state(RBM(), operator, n_samples=256)
    kernel = nk.vqs.get_local_kernel(state, operator)
    compiled = jax.jit(kernel, static_argnums=0).lower(state._apply_fun, state.variables, x, operator).compile()
    # θ, tanh θ and what is made of them; connected configurations alone would take 1 MiB.
    assert compiled.memory_analysis().temp_size_in_bytes < 8 * 256 * 64 * 6
    assert "ferroket_terms_rbm" in compiled.as_text()


def test_gpus_evaluate_the_network() -> None:
    state, x = make_state(MODELS["RBM"], OPERATORS["Ising"])
    kernel = nk.vqs.get_local_kernel(state, OPERATORS["Ising"])
    expected = netkets_values(state._apply_fun, state.variables, x, OPERATORS["Ising"])

    def function(variables: Any, x: Any, operator: Any) -> jax.Array:
        return kernel(state._apply_fun, variables, x, operator)

    args = (state.variables, x, OPERATORS["Ising"])
    np.testing.assert_allclose(on_a_gpu(function, *args)(*args), expected, rtol=1e-12)


def test_parameters_that_are_nan() -> None:
    for name in ("RBM", "RBM, complex", "RBMModPhase", "Jastrow"):
        state, x = make_state(MODELS[name], OPERATORS["Ising"])
        state.parameters = jax.tree.map(lambda leaf: leaf * np.nan, state.parameters)
        assert np.isnan(known_values(state, OPERATORS["Ising"], x)).all()


def test_samples_outside_of_the_space() -> None:
    state, x = make_state(MODELS["RBM"], OPERATORS["Ising"])
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"sample 2.*site 1.*3"):
        jax.block_until_ready(known_values(state, OPERATORS["Ising"], x.at[2, 1].set(3)))


class Mine(nk.models.RBM):
    """Another function, with the attributes of an RBM."""

    def __call__(self, x: Any) -> Any:
        return 2 * super().__call__(x)


OTHERS = {
    "a subclass": (Mine(), "Mine is a subclass of RBM"),
    "another activation": (RBM(activation=jnp.tanh), "the activation is tanh"),
    "a lambda": (RBM(activation=lambda x: x), "the activation is <lambda>"),
    "half precision": (RBM(param_dtype=jnp.bfloat16), "parameters of bfloat16"),
    "complex modulus and phase": (RBMModPhase(param_dtype=complex), "its parameters are complex"),
    "another network": (nk.models.MLP(), "MLP is none of the models"),
}


@pytest.mark.parametrize(("model", "reason"), OTHERS.values(), ids=OTHERS)
def test_other_models_are_evaluated_as_any_network(model: Any, reason: str) -> None:
    operator = OPERATORS["Ising"]
    state, x = make_state(model, operator)
    found, reasons = family.find(state, operator)
    assert found is None
    assert any(reason in told for told in reasons), reasons
    values = nk.vqs.get_local_kernel(state, operator)(state._apply_fun, state.variables, x, operator)
    expected = netkets_values(state._apply_fun, state.variables, x, operator)
    np.testing.assert_allclose(values, expected, rtol=2e-2 if "bfloat16" in reason else 1e-12)


def test_another_function_of_the_same_state() -> None:
    """NetKet may ask a kernel for the local values of another function than that of the state."""
    operator = OPERATORS["Ising"]
    state, x = make_state(MODELS["RBM"], operator)

    def twice(variables: Any, x: Any) -> jax.Array:
        return 2 * state._apply_fun(variables, x)

    values = nk.vqs.get_local_kernel(state, operator)(twice, state.variables, x, operator)
    expected = netkets_values(twice, state.variables, x, operator)
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_sites_with_three_states() -> None:
    operator = fk.operator.LocalOperator(nk.hilbert.Spin(1, 3), [np.ones((3, 3))], [[1]])
    state, _ = make_state(RBM(), operator)
    found, reasons = family.find(state, operator)
    assert found is None
    assert reasons == ["the operator acts on sites that have more than two local states"]


class Product(nn.Module):
    """ln ψ = Σ a σ."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return x @ self.param("a", nn.initializers.normal(), x.shape[-1:], float)


class Products(fk.local_energy.Family):
    """A user's own family: a machine without hidden units."""

    name = "product"

    def why_not(self, model: Any) -> str | None:
        return None if type(model) is Product else "it is no Product"

    def local_values(self, model: Any, variables: Any, form: Any, samples: Any) -> jax.Array:
        a = variables["params"]["a"]
        machine = fk.local_energy.Machine(
            theta=jnp.zeros((len(samples), 0)), delta=jnp.zeros((len(a), 0)), bias=a * family.steps(form, a.dtype)
        )
        return fk.local_energy.machine.local_values(form, samples, machine)


def test_a_family_of_a_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = OPERATORS["Pauli strings"]
    state, x = make_state(Product(), operator)
    assert family.find(state, operator)[0] is None
    monkeypatch.setattr(family, "FAMILIES", list(family.FAMILIES))
    fk.local_energy.register(Products())
    compare(state, operator, x)
