"""What goes wrong easily: singular amplitudes, parameters that a model ignores, numbers that leave their range."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from netket.vqs.mc.kernels import local_value_kernel_jax

import ferroket as fk
from ferroket.ansatz import registry
from ferroket.ansatz.verification import Subject
from ferroket.local_energy import local_values
from ferroket.local_energy.known_model import from_ratios
from ferroket.network.integers import overflow_reason
from ferroket.operator.cache import accelerated

CHAIN = nk.graph.Chain(4)
SPINS = nk.hilbert.Spin(0.5, 4)
ISING = fk.operator.Ising(SPINS, CHAIN, h=0.7)
HEISENBERG = fk.operator.Heisenberg(SPINS, CHAIN)


def make_state(model: Any, hilbert: Any = SPINS, **options: Any) -> Any:
    return nk.vqs.MCState(nk.sampler.MetropolisLocal(hilbert, n_chains=16), model, n_samples=48, seed=1, **options)


def values(state: Any, operator: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Those of the kernel that the state takes, and NetKet's."""
    kernel = nk.vqs.get_local_kernel(state, operator)
    args = (state.variables, jnp.asarray(x), operator)
    found, expected = (jax.jit(k, static_argnums=0)(state._apply_fun, *args) for k in (kernel, local_value_kernel_jax))
    return np.asarray(found), np.asarray(expected)


@pytest.mark.thorough
def test_amplitudes_that_are_singular_off_the_sector() -> None:
    """A determinant of no fermions: what fills up a chunk may not be evaluated there."""
    hilbert = nk.hilbert.SpinOrbitalFermions(6, n_fermions=3)
    theirs = nk.operator.FermionOperator2nd(
        hilbert, [f"{i}^ {j}" for i in range(6) for j in range(6)], np.arange(36) / 9
    ).to_jax_operator()
    ours = fk.accelerate(theirs)
    state = make_state(nk.models.Slater2nd(hilbert), hilbert)
    x = hilbert.all_states()

    def gradient(kernel: Any, operator: Any, **options: Any) -> Any:
        def total(variables: Any) -> jax.Array:
            return jnp.abs(kernel(state._apply_fun, variables, x, operator, **options)).sum()

        return jax.jit(jax.grad(total))(state.variables)

    found, expected = gradient(local_values, ours, chunk_size=16), gradient(local_value_kernel_jax, theirs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), found, expected)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(found)) > 0.1


@pytest.mark.parametrize("inner", [ISING, nk.operator.IsingJax(SPINS, CHAIN, h=0.7)], ids=["ours", "NetKet's"])
def test_networks_that_hold_an_operator(inner: Any) -> None:
    state = nk.vqs.apply_operator(inner, make_state(nk.models.RBM()))
    assert fk.explain(state, HEISENBERG).path == "any network"
    x = SPINS.all_states()
    np.testing.assert_allclose(*values(state, HEISENBERG, x), rtol=1e-10, atol=1e-10)


def test_parameters_that_the_model_ignores() -> None:
    more = jax.tree.map(lambda leaf: leaf + 0.3, make_state(nk.models.RBM()).variables)
    state = make_state(nk.models.RBM(use_hidden_bias=False, use_visible_bias=False), variables=more)
    assert fk.explain(state, ISING).reasons == [
        "the parameters have other names, shapes or dtypes than those that the model initialises"
    ]
    np.testing.assert_allclose(*values(state, ISING, SPINS.all_states()), rtol=1e-12)


@pytest.mark.parametrize(
    "model", [nk.models.Jastrow(param_dtype=float), nk.models.RBMModPhase()], ids=["Jastrow", "RBMModPhase"]
)
def test_parameters_of_another_dtype(model: Any) -> None:
    state = make_state(model)
    state.variables = jax.tree.map(lambda leaf: leaf + 0.2j, state.variables)
    assert fk.explain(state, ISING).path == "any network"
    found, expected = values(state, ISING, SPINS.all_states())
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.quick("Heisenberg-one-nan", "one site-one-inf", "diagonal-all-nan")
@pytest.mark.parametrize(("where", "number"), [("one", np.nan), ("one", np.inf), ("all", np.nan)])
@pytest.mark.parametrize(
    "operator",
    [fk.operator.Ising(SPINS, CHAIN, h=0.0), HEISENBERG, fk.operator.spin.sigmax(SPINS, 1)],
    ids=["diagonal", "Heisenberg", "one site"],
)
@pytest.mark.parametrize(
    "model",
    [nk.models.RBM(), nk.models.Jastrow(), nk.models.MLP(hidden_dims=(3,))],
    ids=["RBM", "Jastrow", "MLP"],
)
def test_parameters_that_are_no_numbers(model: Any, operator: Any, where: str, number: float) -> None:
    state = make_state(model)
    leaves, structure = jax.tree.flatten(state.parameters)
    if where == "one":
        leaves = [leaves[0].at[(0,) * leaves[0].ndim].set(number), *leaves[1:]]
    else:
        leaves = [jnp.full_like(leaf, number) for leaf in leaves]
    state.parameters = structure.unflatten(leaves)
    found, expected = values(state, operator, SPINS.all_states())
    nan = np.isnan(expected)
    assert nan.any()
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_allclose(found[~nan], expected[~nan], rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])
def test_factors_that_leave_the_range_where_the_ratio_does_not(dtype: Any) -> None:
    large = 40.0 if dtype == np.float32 else 400.0
    state = make_state(nk.models.RBM(alpha=25, param_dtype=dtype))
    dense = {"kernel": jnp.full((4, 100), large / 200, dtype), "bias": jnp.full(100, large / 20, dtype)}
    # Hidden units grow by as much as the visible biases take away, but for a little.
    state.parameters = {"Dense": dense, "visible_bias": jnp.full(4, -large / 2 + 0.01, dtype)}
    found, expected = values(state, ISING, SPINS.all_states())
    assert np.isfinite(expected).all()
    assert np.abs(found).max() < 100
    # NetKet's own numbers in single precision differ by 1e-3 with the way in which XLA sums up.
    np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == np.float32 else 1e-10)


def test_an_operator_that_a_program_meets_first() -> None:
    theirs = nk.operator.Ising(SPINS, CHAIN, h=0.7).to_jax_operator()
    state = make_state(nk.models.RBM())
    expected = state.expect(ISING).mean
    fk.enable()
    try:

        @jax.jit
        def closed_over(variables: Any, x: Any) -> jax.Array:
            ours = accelerated(theirs)
            return nk.vqs.get_local_kernel(state, ours)(state._apply_fun, variables, x, ours).mean()

        x = state.samples.reshape(-1, 4)
        np.testing.assert_allclose(closed_over(state.variables, x), expected, rtol=1e-12)
        np.testing.assert_allclose(state.expect(theirs).mean, expected, rtol=1e-12)
    finally:
        fk.disable()


class Uniform(fk.ansatz.Ansatz):
    """ln ψ = field Σ n."""

    name = "uniform"

    def __init__(self, field: float) -> None:
        self.field = field

    def unsupported_reason(self, model: Any) -> str | None:
        return None if type(model) is nk.models.RBM else "it is no RBM"

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> fk.ansatz.JastrowAmplitudes:
        return fk.ansatz.JastrowAmplitudes(jnp.full_like(step, self.field), jnp.zeros((step.size, step.size)))


def test_ansaetze_of_one_class_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTERED", list(registry.REGISTERED))
    monkeypatch.setattr(registry, "_mismatch", lambda *_: None)  # they aren't the model's amplitudes
    state = make_state(nk.models.RBM())
    x = SPINS.all_states()
    for field in (0.5, -0.3):
        fk.ansatz.register(Uniform(field))
        expected = local_value_kernel_jax(lambda field, x: field * (x == -1).sum(axis=-1), field, x, ISING)
        np.testing.assert_allclose(values(state, ISING, x)[0], expected, rtol=1e-12)


@pytest.mark.parametrize("model", [nk.models.RBM(), nk.models.MLP(hidden_dims=(3,))], ids=["RBM", "MLP"])
def test_batches(model: Any) -> None:
    """Of parameters, and samples of more dimensions."""
    state = make_state(model)
    kernel = nk.vqs.get_local_kernel(state, ISING)
    x = SPINS.all_states().reshape(2, 8, 4)
    expected = values(state, ISING, SPINS.all_states())[1].reshape(2, 8)

    def function(variables: Any, x: Any) -> jax.Array:
        return kernel(state._apply_fun, variables, x, ISING)

    np.testing.assert_allclose(jax.jit(function)(state.variables, x), expected, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(jax.vmap(function, (None, 0)))(state.variables, x), expected, rtol=1e-12)
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state.variables)
    found = jax.jit(jax.vmap(function, (0, None)))(two, x[1])
    np.testing.assert_allclose(found, [expected[1]] * 2, rtol=1e-12)


def test_the_derivative_by_coefficients_is_chunked_too() -> None:
    seen = []

    def logpsi(weights: Any, x: Any) -> jax.Array:
        seen.append(len(x))
        return jnp.tanh(x @ weights)

    @jax.jit
    def total(h: Any) -> jax.Array:
        operator = fk.operator.Ising(SPINS, CHAIN, h=h)
        return local_values(logpsi, jnp.ones(4) / 3, jnp.asarray(SPINS.all_states()), operator, chunk_size=3).sum()

    found = jax.jit(jax.grad(total))(0.7)
    np.testing.assert_allclose(found, (total(1.7) - total(0.7)), rtol=1e-10)
    assert max(seen) <= 3


def test_an_rbm_without_hidden_units() -> None:
    """ln ψ = Σ a σ, as the documents have it: no hidden units at all."""
    a = jnp.asarray([0.1, -0.2, 0.3, 0.4])
    form: Any = ISING._form
    amplitudes = fk.ansatz.RBMAmplitudes(jnp.zeros(0), jnp.zeros((4, 0)), -2 * a)
    found = from_ratios(amplitudes, form, jnp.asarray(SPINS.all_states()))
    expected = local_value_kernel_jax(lambda a, x: x @ a, a, jnp.asarray(SPINS.all_states()), ISING)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


class Bonds(nn.Module):
    """Sums of products of neighbours, in the integers that the samples are of."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        weight = self.param("weight", nn.initializers.constant(0.02), (), float)
        return weight * jnp.einsum("...i,...i->...", x, jnp.roll(x, 1, axis=-1)).astype(float)


@pytest.mark.parametrize(("n_sites", "wraps"), [(100, False), (200, True)])
def test_integers_that_may_wrap_around(n_sites: int, wraps: bool) -> None:
    """Integers of int8 end at 127: JAX's wrap around, and those of the kernels, which have real numbers, don't."""
    hilbert = nk.hilbert.Spin(0.5, n_sites)
    hamiltonian = fk.operator.Ising(hilbert, nk.graph.Chain(n_sites), h=1.0)
    sampler = fk.sampler.MetropolisLocal(hilbert, n_chains=4, dtype=np.int8)
    state = nk.vqs.MCState(sampler, Bonds(), n_samples=8, seed=1)
    ordered = jnp.ones((2, n_sites), np.int8).at[1, ::3].set(-1)
    assert float(state.log_value(ordered)[0]) == pytest.approx(0.02 * (n_sites - 256 * wraps))
    np.testing.assert_allclose(*values(state, hamiltonian, ordered), rtol=1e-12)
    for plan in (fk.explain(state), fk.explain(state, hamiltonian)):
        assert any("int8 may be too large ('dot_general')" in reason for reason in plan.reasons) == wraps, plan
        assert ("in lanes" in str(plan)) == (not wraps)


@pytest.mark.parametrize(
    ("function", "states", "name"),
    [
        (lambda x: x * jnp.roll(x, 1), (1.0, -1.0), None),
        (lambda x: x * jnp.roll(x, 1), (0.0, 12.0), "mul"),
        (lambda x: x**2 + jnp.int8(7), (0.0, 10.0), None),
        (lambda x: x**3, (0.0, 10.0), "integer_pow"),
        (lambda x: x**999, (0.0, 10.0), "integer_pow"),
        (lambda x: x**999, (0.0, 1.0), None),
        (lambda x: x[np.arange(300) % 8].astype(np.int32) * 1000, (0.0, 10.0), None),
        (lambda x: jnp.where(x > 0, x, jnp.int8(-100)) + x, (0.0, 28.0), "add"),
        (lambda x: (x > 0).astype(np.int8) * np.int8(100), (0.0, 100.0), None),
        (lambda x: x.sum() * x.prod(), (-1.0, 1.0), None),
    ],
)
def test_what_integers_become(function: Any, states: tuple[float, float], name: str | None) -> None:
    subject = Subject(
        "bonds", lambda w, x: w * jax.vmap(function)(x).sum(-1), nk.hilbert.Spin(0.5, 8), np.dtype(np.int8)
    )
    found = overflow_reason(subject, 1.0, states)
    assert found is None if name is None else f"('{name}')" in str(found)


def test_a_factor_twice() -> None:
    """Flax has one set of parameters for it."""
    factor = nk.models.RBM()
    state = make_state(fk.models.Product((factor, nk.models.Jastrow(), factor)))
    assert "amplitude ratios of Product" in str(fk.explain(state, HEISENBERG))
    np.testing.assert_allclose(*values(state, HEISENBERG, SPINS.all_states()), rtol=1e-10)


def test_no_samples() -> None:
    hilbert = nk.hilbert.SpinOrbitalFermions(3, s=0.5, n_fermions_per_spin=(1, 2))
    ring = np.array([[1, 2], [2, 0], [0, 1]])
    factors = (
        fk.models.Gutzwiller(hilbert),
        fk.models.DensityJastrow(hilbert),
        fk.models.DoublonHolon(hilbert, [ring]),
    )
    for dtype in (np.int8, float):
        x = jnp.asarray(hilbert.all_states(), dtype)
        for model in (*factors, fk.models.Product(factors)):
            assert model.apply(model.init(jax.random.key(0), x), x[:0]).shape == (0,)
    assert fk.hilbert.SiteOccupations(3, maximum=1)(np.zeros((0, 6), np.int8)).shape == (0,)
