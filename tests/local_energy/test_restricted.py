"""Local energies in spaces with constraints of a user's own: those of P O P, by dense matrices."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.local_energy import local_values
from support.constrained_spaces import CASES, RYDBERG, Blockade, X
from support.variational_states import MODELS, make_state, values_by

pytestmark = pytest.mark.filterwarnings("ignore:(?s).*Defaulting to a slow:UserWarning")
NETWORK = nk.models.MLP(hidden_dims=(7, 5), hidden_activations=jnp.tanh, param_dtype=complex)
ROWS = jnp.asarray(CASES["Rydberg atoms"].states)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    fk.disable()


@pytest.mark.quick("fermions")
@pytest.mark.parametrize("name", CASES)
def test_a_network(name: str) -> None:
    """And every configuration: also by the chunk, in which there are unused places."""
    case = CASES[name]
    operator, samples = case.make(fk.operator, case.hilbert), jnp.asarray(case.states)
    variables = NETWORK.init(jax.random.key(0), samples[:1])
    psi = np.exp(np.asarray(NETWORK.apply(variables, samples)))
    expected = case.matrix @ psi / psi
    for chunk_size in (None, 5):
        found = jax.jit(lambda v, x, o, size=chunk_size: local_values(NETWORK.apply, v, x, o, chunk_size=size))
        np.testing.assert_allclose(found(variables, samples, operator), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("model", ["RBM", "RBM, complex", "Jastrow"])
def test_models_with_known_ratios(model: str) -> None:
    case = CASES["Rydberg atoms"]
    state, operator = make_state(MODELS[model], RYDBERG), case.make(fk.operator, RYDBERG)
    found = fk.explain(state, operator)
    assert (found.path, found.reasons) == (
        "any network",
        ["the Hilbert space has a constraint of its own, which the kernels don't know"],
    )
    psi = np.asarray(state.to_array())
    kernel = nk.vqs.get_local_kernel(state, operator)
    values = values_by(kernel, state._apply_fun, state.variables, ROWS, operator)
    np.testing.assert_allclose(values, case.matrix @ psi / psi, rtol=1e-10, atol=1e-10)


@pytest.mark.quick("True-Rydberg atoms")
@pytest.mark.parametrize("name", ["Rydberg atoms", "Pauli strings", "matrices"])
@pytest.mark.parametrize("enabled", [False, True])
def test_expectation_values(name: str, enabled: bool) -> None:
    """Energy and forces on the samples, ours and NetKet's operators under fk.enable(), and by full summation."""
    case = CASES[name]
    operator = case.make(nk.operator if enabled else fk.operator, case.hilbert)
    if enabled:
        fk.enable()
    state = make_state(NETWORK, case.hilbert, n_samples=400)
    psi = np.exp(np.asarray(NETWORK.apply(state.variables, case.states)))
    local = case.matrix @ psi / psi
    number = {tuple(row): i for i, row in enumerate(case.states.tolist())}
    chosen = [number[tuple(row)] for row in np.asarray(state.samples).reshape(-1, case.hilbert.size).tolist()]
    np.testing.assert_allclose(state.expect(operator).mean, local[chosen].mean(), rtol=1e-10)
    if not enabled:
        full = nk.vqs.FullSumState(case.hilbert, NETWORK, variables=state.variables)
        expected = psi.conj() @ case.matrix @ psi / (psi.conj() @ psi)
        np.testing.assert_allclose(full.expect(operator).mean, expected, rtol=1e-10)
    if case.make(fk.operator, case.hilbert).is_hermitian:
        # The covariance of the log-derivatives and the local energies.
        rows = jnp.asarray(case.states[chosen], float)
        flat, unravel = jax.flatten_util.ravel_pytree(state.parameters)
        jacobian = jax.jacobian(lambda p: NETWORK.apply({"params": unravel(p)}, rows), holomorphic=True)(flat)
        centred = np.asarray(jacobian) - np.asarray(jacobian).mean(axis=0)
        forces = centred.conj().T @ (local[chosen] - local[chosen].mean()) / len(chosen)
        _, found = state.expect_and_forces(operator)
        np.testing.assert_allclose(jax.flatten_util.ravel_pytree(found)[0], forces, rtol=1e-8, atol=1e-10)
        _, gradient = state.expect_and_grad(operator)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.thorough
def test_amplitudes_that_are_singular_outside() -> None:
    """No configuration outside is evaluated, so that derivatives are finite too."""

    def log_psi(variables: Any, x: jax.Array) -> jax.Array:
        inside = Blockade()(x)
        return jnp.where(inside, variables["params"]["w"] * x[..., 0], jnp.nan)

    operator = CASES["Rydberg atoms"].make(fk.operator, RYDBERG)
    variables = {"params": {"w": jnp.asarray(0.3)}}

    def energy(variables: Any, factor: Any) -> Any:
        return local_values(log_psi, variables, ROWS, factor * operator, chunk_size=5).sum()

    def dense(w: float) -> float:
        psi = np.exp(w * np.asarray(ROWS)[:, 0])
        return float((CASES["Rydberg atoms"].matrix @ psi / psi).sum())

    found, (by_w, by_factor) = jax.value_and_grad(energy, argnums=(0, 1))(variables, 1.0)
    np.testing.assert_allclose(found, dense(0.3), rtol=1e-12)
    np.testing.assert_allclose(by_factor, dense(0.3), rtol=1e-12)
    slope = (dense(0.3 + 1e-5) - dense(0.3 - 1e-5)) / 2e-5
    np.testing.assert_allclose(by_w["params"]["w"], slope, rtol=1e-8)


@pytest.mark.thorough
def test_the_ground_state_of_the_pxp_model() -> None:
    """By NetKet's driver, with chains and local energies that never leave the blockade."""
    operator = fk.operator.LocalOperator(RYDBERG, [-X] * 6, [[i] for i in range(6)])
    exact = np.linalg.eigvalsh(operator.to_sparse().toarray())[0]
    sampler = fk.sampler.MetropolisHamiltonian(RYDBERG, operator, n_chains=64)
    model = nk.models.RBM(alpha=2, param_dtype=float)
    state = nk.vqs.MCState(sampler, model, n_samples=512, seed=1, sampler_seed=2)
    driver = nk.driver.VMC_SR(operator, nk.optimizer.Sgd(0.1), variational_state=state, diag_shift=1e-2)
    driver.run(60, show_progress=False)
    energy = state.expect(operator)
    assert bool(Blockade()(state.samples).all())
    assert abs(energy.mean - exact) < 2e-3 * abs(exact) + 4 * energy.error_of_mean
