"""Models whose amplitude ratios are known, in Rust, against their definition and NetKet's kernel."""

import itertools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.ansatz import registry
from ferroket.local_energy import known_model
from ferroket.operator.compiled import Terms
from ferroket.operator.compiled.rearrangement import Rearrangement
from support.comparisons import on_a_gpu
from support.example_operators import EXAMPLES
from support.mpi import FULL
from support.variational_states import (
    CHAIN,
    MODELS,
    NO_BIASES,
    OPERATORS,
    RBM,
    SPINS,
    RBMModPhase,
    is_single,
    make_state,
    netkets_values,
    values_by,
)

SOME = ["RBM", "RBM, complex", "RBM, float32", "RBMModPhase", "RBMSymm", "Jastrow"]


def make(
    model: Any, operator: Any, n_samples: int = 70, scale: float = 0.3, dtype: Any = np.int8
) -> tuple[Any, Any, Any]:
    """A state with random parameters, the operator, and samples."""
    x = operator.hilbert.random_state(jax.random.key(1), n_samples, dtype=dtype)
    return make_state(model, operator.hilbert, scale=scale), operator, x


def known_values(state: Any, operator: Any, x: Any) -> jax.Array:
    """By the kernel that NetKet's states take, which must be that of a known model."""
    assert known_model.find(state, operator)[0] is not None
    return values_by(nk.vqs.get_local_kernel(state, operator), state._apply_fun, state.variables, x, operator)


def compare(state: Any, operator: Any, x: Any, *, less_exact: float = 1) -> None:
    found = known_values(state, operator, x)
    expected = netkets_values(state._apply_fun, state.variables, x, operator)
    assert found.dtype == expected.dtype
    tolerance = less_exact * (3e-5 if is_single(state.variables) else 1e-12)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max(initial=0))


# The exchange of pairs is also what large parameters are tested with.
PAIRS = (
    list(itertools.product(MODELS, OPERATORS))
    if FULL
    else [*((name, "Pauli strings") for name in MODELS), *((name, "Ising") for name in SOME)]
)


@pytest.mark.quick("RBM-Pauli strings", "RBM, complex-Pauli strings", "Jastrow-Ising")
@pytest.mark.parametrize(("name", "operator"), PAIRS)
def test_every_model(name: str, operator: str) -> None:
    compare(*make(MODELS[name], OPERATORS[operator]))


def examples(form: type) -> list[Any]:
    """Those that are compiled to this form."""
    return [example for example in EXAMPLES if isinstance(example.ours()._form, form)]


@pytest.mark.parametrize("example", examples(Terms), ids=lambda example: example.title)
@pytest.mark.parametrize("name", ["RBM, complex", "Jastrow"] if FULL else ["RBM, complex"])
def test_every_operator(example: Any, name: str) -> None:
    compare(*make(MODELS[name], example.ours()))


@pytest.mark.parametrize("example", examples(Rearrangement), ids=lambda example: example.title)
def test_operators_that_are_no_terms(example: Any) -> None:
    """Samples that such an operator leaves as they are have their matrix element on the diagonal."""
    operator = example.ours()
    state, x = make_state(RBM(), operator.hilbert), operator.hilbert.all_states()
    found, (reason,) = known_model.find(state, operator)
    assert found is None
    assert set(operator.hilbert.shape) == {2}
    assert "local states" not in reason
    values = values_by(nk.vqs.get_local_kernel(state, operator), state._apply_fun, state.variables, x, operator)
    expected = netkets_values(state._apply_fun, state.variables, x, operator)
    np.testing.assert_allclose(values, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["RBM", "RBM, float32", "RBMMultiVal", "Jastrow, complex64"])
def test_dtypes_of_samples(name: str, dtype: Any) -> None:
    compare(*make(MODELS[name], OPERATORS["Pauli strings"], dtype=dtype))


WHOLE_NUMBERS = {
    "Ising": lambda dtype: fk.operator.Ising(SPINS, CHAIN, h=1, J=2, dtype=dtype),
    "Heisenberg": lambda dtype: fk.operator.Heisenberg(SPINS, CHAIN, dtype=dtype),
    "Pauli strings": lambda dtype: fk.operator.PauliStrings(
        SPINS, ["XX" + 4 * "I", "ZZ" + 4 * "I"], [1, 2], dtype=dtype
    ),
    "sum": lambda dtype: sum(fk.operator.spin.sigmax(SPINS, i, dtype=dtype) for i in range(6)),
}


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [
        *(("Ising", dtype) for dtype in (np.int8, np.int32, np.float16, jnp.bfloat16, np.complex64)),
        ("Heisenberg", int),
        ("Pauli strings", np.int64),
        ("Pauli strings", np.float16),
        ("sum", int),
    ],
)
def test_dtypes_of_operators(operator: str, dtype: Any) -> None:
    """Whole numbers, for which halves are exact."""
    ours = WHOLE_NUMBERS[operator](dtype)
    assert ours.dtype == dtype
    compare(*make(MODELS["RBM"], ours))


# Ratios of e^±100 and more, factors that cancel, and flips of two sites whose effects do.
@pytest.mark.parametrize("scale", [0.01, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("name", SOME)
def test_large_parameters(name: str, scale: float) -> None:
    operator = OPERATORS["Heisenberg"]
    state, _, x = make(MODELS[name], operator, scale=scale)
    found = np.asarray(known_values(state, operator, x))
    # In double precision in any case: of numbers of e^100, NetKet's float32 knows few digits.
    double = {np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}
    variables = jax.tree.map(lambda leaf: leaf.astype(double.get(leaf.dtype, leaf.dtype)), state.variables)
    expected = np.asarray(netkets_values(state._apply_fun, variables, x, operator))
    finite = np.abs(expected) < (1e37 if is_single(state.variables) else 1e300)
    assert finite.any()
    # The angles of complex amplitudes are as large as their logarithms, and as inexact.
    tolerance = (1e-3 if is_single(state.variables) else 1e-11) * max(scale, 1)
    largest = np.abs(operator.get_conn_padded(x)[1]).max() * np.abs(expected)
    np.testing.assert_array_less(np.abs(found - expected)[finite], tolerance * largest[finite] + 1e-11)


@pytest.mark.parametrize("name", ["RBM, float32", "RBM"])
def test_products_that_overflow(name: str) -> None:
    """Of many hidden units that change much each, the product of factors would leave the numbers' range."""
    hilbert = nk.hilbert.Spin(0.5, 6, total_sz=0)
    operator = fk.operator.Heisenberg(hilbert, CHAIN)
    model = RBM(alpha=100, param_dtype=MODELS[name].param_dtype, **NO_BIASES)
    state, _, x = make(model, operator)
    # Two equal sites: to exchange them changes nothing, though each of them changes much.
    kernel = jnp.full((6, 600), 1.2, model.param_dtype).at[0].set(1.25)
    state.parameters = {"Dense": {"kernel": kernel}}
    # All 600 factors have the same error: a unit in the last place of cosh² 2.4 - sinh² 2.4.
    compare(state, operator, x, less_exact=30)


@pytest.mark.quick("RBM, complex-70", "Jastrow-70")
@pytest.mark.parametrize(("name", "sites"), [*(("RBM, complex", n) for n in (1, 31, 64, 70)), ("Jastrow", 70)])
def test_flips_of_many_sites(name: str, sites: int) -> None:
    rng = np.random.default_rng(1)
    strings = ["".join(rng.choice(list("IXYZ"), sites)) for _ in range(9)]
    operator = fk.operator.PauliStrings(nk.hilbert.Qubit(sites), strings, rng.normal(size=9))
    compare(*make(MODELS[name], operator, n_samples=300, scale=0.2 / sites**0.5))


@pytest.mark.quick("0", "257")
@pytest.mark.parametrize("n_samples", [0, 1, 63, 64, 257])
def test_numbers_of_samples(n_samples: int) -> None:
    compare(*make(MODELS["RBM"], OPERATORS["Ising"], n_samples=n_samples))


def test_derivatives() -> None:
    """By the parameters and by the coefficients: those of any network."""
    state, _, x = make(MODELS["RBM, complex"], OPERATORS["Heisenberg"], n_samples=9)
    operator = OPERATORS["Heisenberg"]

    def of(kernel: Any) -> Any:
        def function(parameters: Any, factor: Any) -> jax.Array:
            values = kernel(state._apply_fun, {"params": parameters}, x, factor * operator)
            return (jnp.arange(len(x)) * jnp.abs(values) ** 2).sum()

        return jax.jit(jax.grad(function, argnums=(0, 1)))(state.parameters, 1.3)

    found, expected = of(nk.vqs.get_local_kernel(state, operator)), of(netkets_values)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-9), found, expected)
    assert abs(found[1]) > 1


def test_one_program_for_all_parameters_and_coefficients() -> None:
    state, _, x = make(MODELS["RBM"], OPERATORS["Ising"])
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
    state, _, x = make(RBM(), operator, n_samples=256)
    kernel = nk.vqs.get_local_kernel(state, operator)
    compiled = jax.jit(kernel, static_argnums=0).lower(state._apply_fun, state.variables, x, operator).compile()
    # θ, tanh θ and what is made of them; connected configurations alone would take 1 MiB.
    assert compiled.memory_analysis().temp_size_in_bytes < 8 * 256 * 64 * 6
    assert "ferroket_terms_rbm" in compiled.as_text()


def test_gpus_evaluate_the_network() -> None:
    state, _, x = make(MODELS["RBM"], OPERATORS["Ising"])
    kernel = nk.vqs.get_local_kernel(state, OPERATORS["Ising"])
    expected = netkets_values(state._apply_fun, state.variables, x, OPERATORS["Ising"])

    def function(variables: Any, x: Any, operator: Any) -> jax.Array:
        return kernel(state._apply_fun, variables, x, operator)

    args = (state.variables, x, OPERATORS["Ising"])
    np.testing.assert_allclose(on_a_gpu(function, *args)(*args), expected, rtol=1e-12)


def test_parameters_that_are_nan() -> None:
    for name in ("RBM", "RBM, complex", "RBMModPhase", "Jastrow"):
        state, _, x = make(MODELS[name], OPERATORS["Ising"])
        state.parameters = jax.tree.map(lambda leaf: leaf * np.nan, state.parameters)
        assert np.isnan(known_values(state, OPERATORS["Ising"], x)).all()


def test_samples_outside_of_the_space() -> None:
    state, _, x = make(MODELS["RBM"], OPERATORS["Ising"])
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=r"sample 2.*site 1.*3"):
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
    state, _, x = make(model, operator)
    found, reasons = known_model.find(state, operator)
    assert found is None
    assert any(reason in told for told in reasons), reasons
    values = values_by(nk.vqs.get_local_kernel(state, operator), state._apply_fun, state.variables, x, operator)
    expected = netkets_values(state._apply_fun, state.variables, x, operator)
    np.testing.assert_allclose(values, expected, rtol=2e-2 if "bfloat16" in reason else 1e-12)


def test_another_function_of_the_same_state() -> None:
    """NetKet may ask a kernel for the local values of another function than that of the state."""
    operator = OPERATORS["Ising"]
    state, _, x = make(MODELS["RBM"], operator)

    def twice(variables: Any, x: Any) -> jax.Array:
        return 2 * state._apply_fun(variables, x)

    values = values_by(nk.vqs.get_local_kernel(state, operator), twice, state.variables, x, operator)
    expected = netkets_values(twice, state.variables, x, operator)
    np.testing.assert_allclose(values, expected, rtol=1e-12)


RING = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (0, 2)]
"""With an edge that is there twice."""


@pytest.mark.parametrize("n_particles", [None, 2])
def test_bosons_that_exclude_each_other(n_particles: int | None) -> None:
    """On sites for one boson at most the Bose-Hubbard model is a sum of non-branching terms."""
    hilbert = nk.hilbert.Fock(1, 4, n_particles=n_particles)
    coefficients = {"U": 1.5, "V": 0.25, "J": 0.75, "mu": 0.5}
    operator = fk.operator.BoseHubbard(hilbert, RING, **coefficients)
    state, operator, x = make(RBM(alpha=2, param_dtype=complex), operator)
    assert str(fk.explain(state, operator)).startswith("known ratios: amplitude ratios of RBM")
    compare(state, operator, x)
    theirs = nk.operator.BoseHubbardJax(hilbert, nk.graph.Graph(edges=sorted(set(RING))), **coefficients)
    ours = fk.operator.BoseHubbard(hilbert, sorted(set(RING)), **coefficients)
    np.testing.assert_allclose(ours.to_dense(), theirs.to_dense(), rtol=1e-14)
    np.testing.assert_allclose((2 * ours).to_dense(), 2 * theirs.to_dense(), rtol=1e-14)
    np.testing.assert_allclose(operator.to_dense(), operator.to_local_operator().to_dense(), rtol=1e-14)
    by_v = jax.jacobian(lambda v: fk.operator.BoseHubbard(hilbert, RING, U=1.0, V=v).get_conn_padded(x)[1])(0.5)
    n = np.asarray(x, float)
    np.testing.assert_array_equal(by_v[:, 0], sum(n[:, i] * n[:, j] for i, j in RING))


def test_sites_with_three_states() -> None:
    operator = fk.operator.LocalOperator(nk.hilbert.Spin(1, 3), [np.ones((3, 3))], [[1]])
    found, reasons = known_model.find(make_state(RBM(), operator.hilbert), operator)
    assert found is None
    assert reasons == ["the operator acts on sites that have more than two local states"]


class Product(nn.Module):
    """ln ψ = Σ a σ."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return x @ self.param("a", nn.initializers.normal(), x.shape[-1:], float)


class Products(fk.ansatz.Ansatz):
    """A user's own ansatz: an RBM without hidden units."""

    name = "product"

    def unsupported_reason(self, model: Any) -> str | None:
        return None if type(model) is Product else "it is no Product"

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> fk.ansatz.RBMAmplitudes:
        a = variables["params"]["a"]
        return fk.ansatz.RBMAmplitudes(theta=jnp.zeros(0), delta=jnp.zeros((len(a), 0)), bias=a * step)


def test_an_ansatz_of_a_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = OPERATORS["Pauli strings"]
    state, _, x = make(Product(), operator)
    assert known_model.find(state, operator)[0] is None
    monkeypatch.setattr(registry, "REGISTERED", list(registry.REGISTERED))
    fk.ansatz.register(Products())
    compare(state, operator, x)
