"""``fk.driver.VMC_SR(trust_region=…)``, against the quantum geometric tensor as a matrix."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ferroket as fk
from ferroket._compat.netket import STEP_METHOD
from support.variational_states import CHAIN, SPINS, make_state, random_like

ISING = nk.operator.IsingJax(SPINS, CHAIN, h=0.7)
MODELS = {
    "real": (nk.models.MLP(hidden_dims=(5,), hidden_activations=jnp.tanh, param_dtype=float), "real"),
    "holomorphic": (nk.models.RBM(alpha=1, param_dtype=complex), "complex"),
    "two networks": (nk.models.RBMModPhase(alpha=1), "complex"),
}


def state_of(name: str, kind: str) -> Any:
    model, _ = MODELS[name]
    if kind == "samples":
        return make_state(model, SPINS, n_samples=24, scale=0.3)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, SPINS.size), np.int8))
    return nk.vqs.FullSumState(SPINS, model, variables=random_like(shapes, 0.3))


def update_of(name: str, kind: str = "samples", **settings: Any) -> Any:
    """The update of one step, and the state before it."""
    state = state_of(name, kind)
    mode = MODELS[name][1]
    driver = fk.driver.VMC_SR(
        ISING, nk.optimizer.Sgd(0.05), variational_state=state, diag_shift=1e-2, mode=mode, **settings
    )
    getattr(driver, STEP_METHOD)()
    return driver._dp, driver


def length_by_matrix(name: str, state: Any, update: Any) -> float:
    """√(δθ† S δθ), for real and imaginary parts of the parameters apart."""
    jacobian = nk.jax.jacobian(
        state._apply_fun,
        state.parameters,
        state.samples.reshape(-1, SPINS.size) if hasattr(state, "samples") else SPINS.all_states(),
        state.model_state,
        mode=MODELS[name][1],
        dense=True,
    )
    rows = np.asarray(jacobian).reshape(len(jacobian), -1, jacobian.shape[-1])
    weights = state.probability_distribution() if hasattr(state, "to_array") and not hasattr(state, "samples") else None
    weights = np.full(len(rows), 1 / len(rows)) if weights is None else np.asarray(weights)
    rows = rows - np.einsum("s,scp->cp", weights, rows)
    vector = np.asarray(ravel_pytree(nk.jax.tree_to_real(update)[0])[0])
    return float(np.sqrt(np.einsum("s,sc->", weights, (rows @ vector) ** 2)))


@pytest.mark.parametrize("kind", ["samples", "full sum"])
@pytest.mark.parametrize("name", MODELS)
def test_updates_are_no_longer(name: str, kind: str) -> None:
    free, driver = update_of(name, kind)
    length = length_by_matrix(name, driver.state, free)
    for share in (0.3, 0.999, 1.001, 50.0):
        bounded, _ = update_of(name, kind, trust_region=share * length)
        for a, b in zip(jax.tree.leaves(bounded), jax.tree.leaves(free), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, min(1, share) * b, rtol=1e-9, atol=1e-14)


def test_schedules() -> None:
    """A radius by the number of the step, which is checked at each."""
    _, driver = update_of("real", trust_region=lambda step: [1e-3, 2e-3, -1.0][step])
    assert length_by_matrix("real", driver.state, driver._dp) == pytest.approx(1e-3, rel=1e-9)
    driver.run(1, show_progress=False)
    getattr(driver, STEP_METHOD)()
    assert length_by_matrix("real", driver.state, driver._dp) == pytest.approx(2e-3, rel=1e-9)
    driver.run(1, show_progress=False)
    with pytest.raises(ValueError, match=r"trust_region=-1\.0 is the greatest length"):
        getattr(driver, STEP_METHOD)()


def test_momentum_is_kept_whole() -> None:
    """SPRING's direction for the next step is the one before it was made shorter."""
    free, driver = update_of("real", use_ntk=True, momentum=0.8)
    bounded, other = update_of("real", use_ntk=True, momentum=0.8, trust_region=1e-3)
    ours, theirs = (ravel_pytree(one._old_updates)[0] for one in (other, driver))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert float(jnp.linalg.norm(ravel_pytree(bounded)[0])) < float(jnp.linalg.norm(ravel_pytree(free)[0]))


@pytest.mark.parametrize("radius", [0, -1.0, float("nan")])
def test_a_radius_that_is_none(radius: float) -> None:
    with pytest.raises(ValueError, match=f"trust_region={radius} is the greatest length of an update and must"):
        update_of("real", trust_region=radius)
