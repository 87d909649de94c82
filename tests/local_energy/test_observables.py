"""What NetKet's states, observables and drivers make of our operators: the same as of NetKet's own."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from netket.operator import Squared

import ferroket as fk
from support.mpi import FULL
from support.variational_states import CHAIN, MODELS, SPINS, make_state

RAISING = np.array([[0.0, 1.0], [0.0, 0.0]])
ISING = nk.operator.IsingJax(SPINS, CHAIN, h=0.7)
OPERATORS = {
    "Hermitian": (ISING, fk.accelerate(ISING)),
    "Squared": (Squared(ISING), Squared(fk.accelerate(ISING))),
}
_LOWERING = nk.operator.LocalOperatorJax(SPINS, [RAISING, 1j * np.kron(RAISING, RAISING.T)], [[0], [2, 4]], constant=2)
OPERATORS["not Hermitian"] = _LOWERING, fk.accelerate(_LOWERING)
NETWORK = nk.models.MLP(hidden_dims=(5,), hidden_activations=jnp.tanh, param_dtype=complex)


def apply(variables: Any, x: jax.Array, mutable: bool = False) -> jax.Array:
    """ln ψ, as a function of JAX that NetKet takes."""
    assert not mutable
    return jnp.tanh(x @ variables["params"]["w"] + variables["shift"]["b"]).sum(axis=-1)


def function_state(chunk_size: int | None = None) -> Any:
    """A state without a module, and with variables that aren't parameters."""
    rng = np.random.default_rng(0)
    variables = {
        "params": {"w": jnp.asarray(rng.normal(size=(6, 4)) + 1j * rng.normal(size=(6, 4))) / 10},
        "shift": {"b": jnp.arange(4)},
    }
    sampler = nk.sampler.ExactSampler(SPINS)
    return nk.vqs.MCState(
        sampler, apply_fun=apply, variables=variables, n_samples=64, sampler_seed=1, chunk_size=chunk_size
    )


STATES: dict[str, Callable[..., Any]] = {
    "RBM": lambda chunk_size=None: make_state(MODELS["RBM, complex"], SPINS, chunk_size=chunk_size),
    "network": lambda chunk_size=None: make_state(NETWORK, SPINS, chunk_size=chunk_size),
    "function": function_state,
}
CASES = (
    list(itertools.product(STATES, (None, 4), OPERATORS))
    if FULL
    else [
        ("RBM", 4, "Hermitian"),
        ("RBM", None, "not Hermitian"),
        ("network", 4, "Squared"),
        ("network", 4, "not Hermitian"),
        ("function", None, "Hermitian"),
        ("function", 4, "not Hermitian"),
    ]
)


@pytest.fixture(autouse=True)
def experimental() -> Iterator[None]:
    """NetKet computes the gradients of operators that aren't Hermitian only then."""
    nk.config.update("netket_experimental", True)
    yield
    nk.config.update("netket_experimental", False)


def assert_equal(found: Any, expected: Any) -> None:
    """Asserts that trees of numbers are equal but for rounding, and that they aren't all zero."""
    scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
    assert scale > 1e-3
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10 * scale), found, expected)


def numbers(statistics: Any) -> list[Any]:
    return [statistics.mean, statistics.variance]


@pytest.mark.quick("network-4-not Hermitian")
@pytest.mark.filterwarnings(r"ignore:\s*Ignoring chunk_size")
@pytest.mark.parametrize(("name", "chunk_size", "kind"), CASES)
def test_states(name: str, chunk_size: int | None, kind: str) -> None:
    state = STATES[name](chunk_size)
    theirs, ours = OPERATORS[kind]
    assert fk.explain(state, theirs).path == "NetKet"
    assert fk.explain(state, ours).path == ("known ratios" if name == "RBM" else "any network")

    def all_of(operator: Any) -> list[Any]:
        found = [numbers(state.expect(operator)), jnp.asarray(state.local_estimators(operator))]
        # NetKet has no forces of squared operators.
        for function in ("expect_and_grad", "expect_and_forces")[: 1 if kind == "Squared" else 2]:
            statistics, gradient = getattr(state, function)(operator)
            found += [numbers(statistics), gradient]
        return found

    assert state.expect(ours).variance > 0.1
    for found, expected in zip(all_of(ours), all_of(theirs), strict=True):
        assert_equal(found, expected)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["RBM", "network"])
def test_gradients_that_are_not_those_of_the_covariance(name: str) -> None:
    state = STATES[name]()
    found, expected = (
        state.expect_and_grad(operator, use_covariance=False)[1] for operator in reversed(OPERATORS["Hermitian"])
    )
    assert_equal(found, expected)


NAMESPACE = nk.observable if hasattr(nk, "observable") else nk.experimental.observable
OBSERVABLES: dict[str, Callable[[Any], Any]] = {
    "VarianceObservable": NAMESPACE.VarianceObservable,
    "VScore": lambda operator: NAMESPACE.VScore(operator, trace_diagonal=0.0),
    "ConnectedCorrelator": lambda operator: NAMESPACE.ConnectedCorrelator(operator, operator),
}
# Those that this version of NetKet has.
OBSERVABLES = {name: make for name, make in OBSERVABLES.items() if hasattr(NAMESPACE, name)}


@pytest.mark.thorough
@pytest.mark.parametrize("name", OBSERVABLES if FULL else ["VarianceObservable"])
def test_observables(name: str) -> None:
    state = STATES["RBM"]()
    theirs, ours = map(OBSERVABLES[name], OPERATORS["Hermitian"])
    assert_equal(numbers(state.expect(ours)), numbers(state.expect(theirs)))
    if FULL and name == "VarianceObservable":
        assert_equal(*(state.expect_and_grad(observable)[1] for observable in (ours, theirs)))


@pytest.mark.skipif(not FULL, reason="no kernel of ours takes part, only the operator: FERROKET_TEST_FULL=1")
def test_the_infidelity_to_a_state_that_an_operator_makes() -> None:
    """Against vectors, since NetKet draws the samples of such a state anew each time."""
    _, ours = OPERATORS["Hermitian"]
    state = make_state(MODELS["RBM"], SPINS, n_samples=4096, scale=0.2)
    other = make_state(NETWORK, SPINS, n_samples=4096, scale=0.2)
    psi, phi = state.to_array(), ISING.to_dense() @ other.to_array()
    expected = 1 - abs(np.vdot(phi, psi)) ** 2 / (np.vdot(phi, phi) * np.vdot(psi, psi)).real
    found = state.expect(NAMESPACE.InfidelityOperator(other, operator=ours))
    assert 0.05 < expected < 0.95
    assert abs(found.mean - expected) < 5 * found.error_of_mean
    assert found.error_of_mean < 0.1


DRIVERS: dict[str, Callable[[Any, Any], Any]] = {
    "VMC": lambda operator, state: nk.driver.VMC(operator, nk.optimizer.Sgd(0.01), variational_state=state),
    "VMC, SR": lambda operator, state: nk.driver.VMC(
        operator,
        nk.optimizer.Sgd(0.01),
        variational_state=state,
        preconditioner=nk.optimizer.SR(
            qgt=nk.optimizer.qgt.QGTJacobianDense, solver=nk.optimizer.solver.cholesky, diag_shift=0.1, holomorphic=True
        ),
    ),
    "VMC_SR": lambda operator, state: nk.driver.VMC_SR(
        operator, nk.optimizer.Sgd(0.01), diag_shift=0.1, variational_state=state, mode="complex"
    ),
    "TDVP": lambda operator, state: nk.experimental.TDVP(
        operator,
        state,
        nk.experimental.dynamics.Euler(dt=1e-2),
        qgt=nk.optimizer.qgt.QGTJacobianDense(holomorphic=True, diag_shift=0.1),
        linear_solver=nk.optimizer.solver.cholesky,
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", ["RBM", "network"] if FULL else ["network"])
def test_drivers(name: str, driver: str) -> None:
    moved = []
    for operator in OPERATORS["Hermitian"]:
        state = STATES[name]()
        before = state.parameters
        running = DRIVERS[driver](operator, state)
        running.run(2e-2 if driver == "TDVP" else 2, show_progress=False)
        moved.append(jax.tree.map(lambda after, before: np.asarray(after - before), state.parameters, before))
    theirs, ours = moved
    scale = max(np.abs(leaf).max() for leaf in jax.tree.leaves(theirs))
    assert scale > 1e-4
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8 * scale), ours, theirs)
