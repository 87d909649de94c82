"""``fk.driver.VMC_SR(machine_pow=…, diag_scale=…)``, against the weighted tensor as a matrix."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ferroket as fk
from ferroket._compat.netket import STEP_METHOD
from ferroket.ansatz.importance import samples_of_power, weighted_statistics
from support.variational_states import CHAIN, SPINS, random_like

ISING = fk.operator.Ising(SPINS, CHAIN, h=0.7)
MODELS = {
    "real": (nk.models.MLP(hidden_dims=(5,), hidden_activations=jnp.tanh, param_dtype=float), "real"),
    "holomorphic": (nk.models.RBM(alpha=1, param_dtype=complex), "complex"),
    "two networks": (nk.models.RBMModPhase(alpha=1), "complex"),
}
SHIFT = 1e-2


def state_of(name: str, n_samples: int = 64, **of_sampler: Any) -> Any:
    """The same one each time, samples included."""
    model, _ = MODELS[name]
    state = nk.vqs.MCState(
        nk.sampler.MetropolisLocal(SPINS, n_chains=16, **of_sampler), model, n_samples=n_samples, seed=1, sampler_seed=2
    )
    state.variables = random_like(state.variables, 0.3)
    return state


def driver_of(state: Any, name: str, **settings: Any) -> Any:
    settings = {"diag_shift": SHIFT, "mode": MODELS[name][1], "use_ntk": False, **settings}
    return fk.driver.VMC_SR(ISING, nk.optimizer.Sgd(0.05), variational_state=state, **settings)


def step(driver: Any) -> Any:
    getattr(driver, STEP_METHOD)()
    return np.asarray(ravel_pytree(nk.jax.tree_to_real(driver._dp)[0])[0])


def rows_of(state: Any, name: str, samples: Any) -> np.ndarray:
    """Log-derivatives by real and imaginary parts of the parameters, ``(Ns, C, Np)``."""
    arguments = state._apply_fun, state.parameters, samples, state.model_state
    jacobian = np.asarray(nk.jax.jacobian(*arguments, mode=MODELS[name][1], dense=True))
    return jacobian.reshape(len(jacobian), -1, jacobian.shape[-1])


def local_energies_of(state: Any, samples: Any) -> np.ndarray:
    connected, elements = ISING.get_conn_padded(np.asarray(samples))
    ratios = np.exp(np.asarray(state.log_value(connected)) - np.asarray(state.log_value(samples))[:, None])
    return (np.asarray(elements) * ratios).sum(axis=1)


def expected(rows: np.ndarray, local: np.ndarray, weights: np.ndarray, scale: float) -> np.ndarray:
    """``(S + λ + ε diag(S))⁻¹ 2 Re⟨(O − ⟨O⟩)* (E_loc − E)⟩``, weighted."""
    rows = rows - np.einsum("s,scp->cp", weights, rows)
    difference = 2 * (local - weights @ local)
    components = np.stack([difference.real, difference.imag][: rows.shape[1]], axis=1)
    tensor = np.einsum("s,scp,scq->pq", weights, rows, rows)
    force = np.einsum("s,scp,sc->p", weights, rows, components)
    return np.linalg.solve(tensor + np.diag(SHIFT + scale * np.diag(tensor)), force)


@pytest.mark.parametrize(("power", "scale"), [(1.5, None), (2.0, 0.1), (1.2, 0.3), (2.5, None)])
@pytest.mark.parametrize("name", MODELS)
def test_updates(name: str, power: float, scale: float | None) -> None:
    driver = driver_of(state_of(name), name, machine_pow=power, diag_scale=scale)
    found = step(driver)

    state = state_of(name, machine_pow=power)  # the same chains, of a sampler of the same distribution
    samples = state.samples.reshape(-1, SPINS.size)
    moduli = np.exp(np.asarray(state.log_value(samples)).real)
    weights = moduli ** (2 - power) / (moduli ** (2 - power)).sum()
    local = local_energies_of(state, samples)
    np.testing.assert_allclose(
        found, expected(rows_of(state, name, samples), local, weights, scale or 0.0), rtol=1e-8, atol=1e-12
    )
    mean, variance = weights @ local, weights @ np.abs(local - weights @ local) ** 2
    np.testing.assert_allclose([driver._loss_stats.mean, driver._loss_stats.variance], [mean, variance], rtol=1e-10)
    assert driver.state.sampler.machine_pow == 2


def test_by_the_power_of_the_sampler() -> None:
    """By default the power is that of the state's sampler; 2 takes samples without weights in spite of it."""
    own, given = state_of("real", machine_pow=1.5), state_of("real")
    np.testing.assert_array_equal(step(driver_of(own, "real")), step(driver_of(given, "real", machine_pow=1.5)))
    assert own.sampler.machine_pow == 1.5
    plain = driver_of(state_of("real"), "real")
    np.testing.assert_allclose(
        step(driver_of(state_of("real", machine_pow=1.5), "real", machine_pow=2)), step(plain), rtol=1e-8
    )


def test_energies_are_those_of_the_state() -> None:
    """Without weights samples of |ψ| have another energy, by far more than the error."""
    state = state_of("real", n_samples=2**15)
    state.parameters = jax.tree.map(lambda leaf: 5 * leaf, state.parameters)
    psi, matrix = state.to_array(), ISING.to_dense()
    exact, local = (psi.conj() @ matrix @ psi).real, matrix @ psi / psi
    biased = (np.abs(psi) @ local.real) / np.abs(psi).sum()
    driver = driver_of(state, "real", machine_pow=1)
    step(driver)
    assert abs(driver._loss_stats.mean.real - exact) < 5 * driver._loss_stats.error_of_mean
    assert abs(biased - exact) > 30 * driver._loss_stats.error_of_mean


def test_errors_are_those_of_many_estimates() -> None:
    """The standard deviation of the weighted mean over independent sets of samples is the error that is told."""
    rng = np.random.default_rng(4)
    values, log_weights = rng.standard_normal((2, 400, 16, 64))
    values = values + log_weights  # so that weights matter
    weights = np.exp(0.5 * log_weights)
    weights /= weights.sum(axis=(1, 2), keepdims=True)
    found = [weighted_statistics(jnp.asarray(v), jnp.asarray(w)) for v, w in zip(values, weights, strict=True)]
    spread = np.std([one.mean for one in found])
    assert np.mean([one.error_of_mean for one in found]) == pytest.approx(spread, rel=0.1)
    uniform = weighted_statistics(jnp.asarray(values[0]), jnp.full(16 * 64, 1 / 1024))
    plain = nk.stats.statistics(jnp.asarray(values[0]))
    for key in ("mean", "error_of_mean", "variance", "R_hat"):
        np.testing.assert_allclose(getattr(uniform, key), getattr(plain, key), rtol=1e-10)


def test_chains_go_on() -> None:
    """The state keeps its chains and its sampler, and has no samples of another distribution left."""
    state = state_of("real")
    before = np.asarray(state.sampler_state.σ)
    with samples_of_power(state, 1.5):
        assert state.sampler.machine_pow == 1.5
        samples = state.samples
    assert state.sampler.machine_pow == 2
    assert state._samples is None
    np.testing.assert_array_equal(np.asarray(state.sampler_state.σ).reshape(16, -1), np.asarray(samples)[:, -1])
    assert (np.asarray(state.sampler_state.σ) != before).any()


def test_checkpoints(tmp_path: Path) -> None:
    """Four steps are two and, from what is written down then, two more."""
    settings = {"machine_pow": 1.5, "diag_scale": lambda step: 0.1 / (1 + step)}
    whole = driver_of(state_of("real"), "real", **settings)
    whole.run(4, show_progress=False)
    first = driver_of(state_of("real"), "real", **settings)
    first.run(2, show_progress=False)
    second = driver_of(state_of("real"), "real", **settings)
    fk.distributed.save(tmp_path / "driver", {"driver": first})
    second = fk.distributed.load(tmp_path / "driver", like={"driver": second})["driver"]
    second.run(2, show_progress=False)
    ours, theirs = (np.asarray(ravel_pytree(driver.state.parameters)[0]) for driver in (second, whole))
    np.testing.assert_array_equal(ours, theirs)


def test_diag_scale_of_a_full_sum() -> None:
    name = "real"
    state = nk.vqs.FullSumState(SPINS, MODELS[name][0], variables=state_of(name).variables)
    found = step(driver_of(state, name, diag_scale=0.2))
    samples = SPINS.all_states()
    weights = np.asarray(state.probability_distribution())
    local = local_energies_of(state, samples)
    np.testing.assert_allclose(found, expected(rows_of(state, name, samples), local, weights, 0.2), rtol=1e-8)


def test_momentum_is_held_by_the_same_shifts() -> None:
    """SPRING: the last update enters with λ + ε diag(S), the matrix that holds the next one to it."""
    name, momentum, scale = "real", 0.8, 0.3
    driver = driver_of(state_of(name), name, diag_scale=scale, momentum=momentum)
    expected_update = 0.0
    for _ in range(2):
        found = step(driver)
        state = driver.state  # its parameters stay the same, and it has the samples of the step
        samples = state.samples.reshape(-1, SPINS.size)
        weights = np.full(len(samples), 1 / len(samples))
        rows = rows_of(state, name, samples)
        centred = rows[:, 0] - rows[:, 0].mean(axis=0)
        tensor = centred.T @ centred / len(rows)
        shifts = np.diag(SHIFT + scale * np.diag(tensor))
        held = momentum * np.linalg.solve(tensor + shifts, shifts @ np.broadcast_to(expected_update, len(tensor)))
        expected_update = expected(rows, local_energies_of(state, samples), weights, scale) + held
        np.testing.assert_allclose(found, expected_update, rtol=1e-8, atol=1e-12)


def test_a_trust_region_of_weighted_samples() -> None:
    name = "real"
    free = step(driver_of(state_of(name), name, machine_pow=1.5))
    state = state_of(name, machine_pow=1.5)
    samples = state.samples.reshape(-1, SPINS.size)
    weights = np.sqrt(np.exp(np.asarray(state.log_value(samples)).real))
    weights /= weights.sum()
    rows = rows_of(state, name, samples)[:, 0]
    length = np.sqrt(weights @ ((rows - weights @ rows) @ free) ** 2)
    bounded = step(driver_of(state_of(name), name, machine_pow=1.5, trust_region=0.3 * length))
    np.testing.assert_allclose(bounded, 0.3 * free, rtol=1e-9)


@pytest.mark.parametrize("power", [0, -1.0, float("nan")])
def test_a_power_that_is_none(power: float) -> None:
    with pytest.raises(ValueError, match=f"machine_pow={power} must be positive"):
        driver_of(state_of("real"), "real", machine_pow=power)


def test_a_scale_that_is_none() -> None:
    with pytest.raises(ValueError, match=r"diag_scale=-0\.1 is a share of the diagonal and must not be negative"):
        driver_of(state_of("real"), "real", diag_scale=-0.1)
    driver = driver_of(state_of("real"), "real", diag_scale=lambda step: -1.0)
    with pytest.raises(ValueError, match=r"diag_scale=-1\.0"):
        step(driver)


def test_what_does_not_go_together() -> None:
    with pytest.raises(ValueError, match=r"samples of another power of \|ψ\| than 2 and use_ntk=True"):
        driver_of(state_of("real", machine_pow=1.5), "real", use_ntk=True)
    with pytest.raises(ValueError, match=r"diag_scale=0\.1 and use_ntk=True don't go together"):
        driver_of(state_of("real"), "real", use_ntk=True, diag_scale=0.1)


def test_no_power_of_a_full_sum() -> None:
    state = nk.vqs.FullSumState(SPINS, MODELS["real"][0])
    with pytest.raises(ValueError, match=r"machine_pow=1\.5 is for samples, but FullSumState has none"):
        driver_of(state, "real", machine_pow=1.5)


def test_a_network_whose_log_derivatives_are_netkets() -> None:
    class MixesSamples(nk.models.RBM):  # type: ignore[misc]
        def __call__(self, x: Any) -> Any:
            values = super().__call__(x)
            return values - 0.1 * values.mean()

    sampler = nk.sampler.MetropolisLocal(SPINS, n_chains=16)
    state = nk.vqs.MCState(sampler, MixesSamples(param_dtype=float), n_samples=64, seed=1)
    with pytest.raises(NotImplementedError, match="leave machine_pow and diag_scale out"):
        step(driver_of(state, "real", diag_scale=0.1))
