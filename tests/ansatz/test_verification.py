"""What is found in a network is compared with it by value: what is wrong is not used, and the reason is told."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.ansatz import first_layer
from ferroket.ansatz.first_layer import FirstLayer
from ferroket.ansatz.verification import TRACED, mismatch_reason, perturbed
from ferroket.bench import models
from ferroket.local_energy.any_network import updated_factors
from ferroket.natural_gradient import verification as of_derivatives

SPINS = nk.hilbert.Spin(0.5, 6)
ISING = fk.operator.Ising(SPINS, nk.graph.Chain(6), h=1.0)
WRONG = "what is found of it gives other values than the network itself"


def state_of(model: Any) -> nk.vqs.MCState:
    return nk.vqs.MCState(fk.sampler.MetropolisLocal(SPINS, n_chains=16), model, n_samples=32, seed=1, sampler_seed=2)


class Field(nn.Module):
    """ln ψ = g Σ_i w_i σ_i, with a gate g that is closed at first."""

    number: int = 0
    """Tells networks apart of which the same is known."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return self.param("g", nn.initializers.zeros, (), float) * (
            x @ self.param("w", nn.initializers.ones, (6,), float)
        )


class FieldAnsatz(fk.ansatz.Ansatz):
    """That of a field, if `scale` is 1."""

    name = "field"
    scale = 1.0

    def unsupported_reason(self, model: Any) -> str | None:
        return None if type(model) is Field else "it is no field"

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> fk.ansatz.JastrowAmplitudes:
        params = variables["params"]
        return fk.ansatz.JastrowAmplitudes(self.scale * params["g"] * step * params["w"], jnp.zeros((6, 6)))


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_an_ansatz_of_a_users_own(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fk.ansatz.registry, "REGISTERED", [])
    monkeypatch.setattr(FieldAnsatz, "scale", scale)
    fk.ansatz.register(FieldAnsatz())
    state = state_of(Field(int(scale)))
    is_right = scale == 1
    for explained in (fk.explain(state), fk.explain(state, ISING)):
        assert (explained.ansatz == "field") is is_right
        assert (WRONG in str(explained)) is not is_right


def test_a_first_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    read = first_layer.read

    def wrong(*args: Any) -> FirstLayer | None:
        found = read(*args)
        return found and FirstLayer(found.width, found.sums, lambda *args: found.rest(*args) + 0.1 * args[2][0])

    monkeypatch.setattr(first_layer, "read", wrong)
    state = state_of(models.MLP((4, 3)))
    expected = nk.vqs.MCState(nk.sampler.MetropolisLocal(SPINS), models.MLP((4, 3)), n_samples=32, seed=1)
    expected._samples = state.samples
    for explained in (fk.explain(state), fk.explain(state, ISING)):
        assert explained.first_layer is None
        assert WRONG in str(explained)
    ising = nk.operator.IsingJax(SPINS, nk.graph.Chain(6), h=1.0)
    np.testing.assert_allclose(state.expect(ISING).mean, expected.expect(ising).mean, rtol=1e-12)


def test_log_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    made = of_derivatives.log_derivatives
    monkeypatch.setattr(of_derivatives, "log_derivatives", lambda *args: jax.tree.map(lambda x: 1.01 * x, made(*args)))
    driver = fk.driver.VMC_SR(
        ISING, nk.optimizer.Sgd(0.1), variational_state=state_of(models.MLP((3, 4))), diag_shift=0.01
    )
    explained = fk.natural_gradient.explain(driver)
    assert explained.path == "NetKet"
    assert "other derivatives than JAX does" in str(explained)


def test_a_network_whose_numbers_are_never_finite() -> None:
    """Nothing can be compared, and so nothing is used."""

    class Never(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return nn.Dense(3, param_dtype=float)(x.astype(float)).sum(axis=-1) * np.nan

    explained = fk.explain(state_of(Never()), ISING)
    assert explained.first_layer is None
    assert "nothing can be compared" in str(explained)


def test_a_network_that_is_traced_first() -> None:
    """Nothing is kept of that: with values it is compared, and updated."""
    model = models.MLP((5, 3))
    state = state_of(model)
    x = state.samples.reshape(-1, 6)

    def reason(variables: Any) -> str | None:
        return updated_factors(state._apply_fun, variables, ISING, x.dtype).reason

    reasons: list[str | None] = []
    jax.make_jaxpr(lambda variables: reasons.append(reason(variables)))(state.variables)
    assert reasons == [TRACED]
    assert reason(state.variables) is None


def test_large_logarithms_in_single_precision() -> None:
    """What is wrong is seen, however large the numbers are, and phases count up to whole turns."""
    x = jnp.asarray(SPINS.all_states(), np.float32)
    variables = {"params": {"w": jnp.full(6, 50.0, np.float32)}}

    def log_psi(variables: Any, x: jax.Array) -> jax.Array:
        return x @ variables["params"]["w"] - 1000.0

    assert mismatch_reason(lambda v, x: 2 * log_psi(v, x), log_psi, variables, x) == WRONG
    assert (
        mismatch_reason(lambda v, x: 1j * (log_psi(v, x) + 2 * np.pi), lambda v, x: 1j * log_psi(v, x), variables, x)
        is None
    )


def test_random_variables() -> None:
    """All floats are moved, each by numbers of its own, and nothing else is."""
    arrays = {
        "a": jnp.ones((40, 50)),
        "b": jnp.ones((40, 50), jnp.float32),
        "c": jnp.ones((40, 50), complex),
        "n": jnp.arange(3),
        "none": jnp.zeros(0),
    }
    variables = {"params": arrays, "state": {"a": jnp.ones(3)}}
    found = perturbed(variables, 1.0, 0)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), found) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), variables
    )
    np.testing.assert_array_equal(found["state"]["a"], 1)
    np.testing.assert_array_equal(found["params"]["n"], arrays["n"])
    a, b, c = (np.asarray(found["params"][name]) - 1 for name in "abc")
    # A leaf 1 moves by its own size and by 0.3 + 1, both times a normal number.
    for moved in (a, b, c.real, c.imag):
        assert moved.std() == pytest.approx(np.sqrt(1 + 1.3**2), rel=0.1)
    independent = np.corrcoef([a.ravel(), b.ravel(), c.real.ravel(), c.imag.ravel()])
    np.testing.assert_allclose(independent, np.eye(4), atol=0.1)
    same = perturbed(variables, 0.0, 1)
    jax.tree.map(np.testing.assert_array_equal, same, variables)
    assert perturbed({"params": {}}, 1.0, 0) == {"params": {}}


def test_amplitudes_that_cancel_are_not_compared():
    """A sum that vanishes by symmetry is rounding in one order of its terms, and other rounding in another."""
    x, logs = jnp.zeros((4, 1)), np.array([-35.0, 1.0, 2.0, -40.0])

    def function(change):
        return lambda variables, x: jnp.asarray(logs + np.array(change), jnp.float64) * 1

    own = function([0, 0, 0, 0])
    for change, settings, is_same in (
        ([3, 0, 0, -np.inf], {"up_to_factor": True, "may_cancel": True}, True),
        ([3, 0, 0, 0], {"up_to_factor": True}, False),
        ([3, 0, 0, 0], {}, False),
        ([5, 5, 5, 5], {"up_to_factor": True}, True),
        ([5, 5, 5, 5], {}, False),
        ([0, 1e-3, 0, 0], {"up_to_factor": True, "may_cancel": True}, False),
        ([20, 0, 0, 0], {"up_to_factor": True, "may_cancel": True}, False),
    ):
        found = mismatch_reason(function(change), own, {}, x, **settings)
        assert found == (None if is_same else WRONG)


def test_one_amplitude_alone_is_nothing_to_compare():
    """The largest one is equal to itself, and all others may be rounding."""
    x = jnp.zeros((3, 1))
    own, found = (lambda variables, x, logs=logs: jnp.array(logs) * 1 for logs in ([0.0, -40, -50], [0.0, -41, -60]))
    reason = mismatch_reason(found, own, {}, x, up_to_factor=True, may_cancel=True)
    assert "nothing can be compared" in reason
