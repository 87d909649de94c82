"""Gradients preconditioned in the space of samples, against NetKet's tensors of as many unknowns as parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ferroket as fk

SPINS = nk.hilbert.Spin(0.5, 4)
SHIFT = 0.02


def lindbladian() -> Any:
    """A chain in a field, with loss at each site."""
    hamiltonian = nk.operator.LocalOperator(SPINS, dtype=complex)
    for i in range(4):
        hamiltonian += 0.6 * nk.operator.spin.sigmax(SPINS, i)
        hamiltonian += 0.5 * nk.operator.spin.sigmaz(SPINS, i) * nk.operator.spin.sigmaz(SPINS, (i + 1) % 4)
    loss = [nk.operator.spin.sigmam(SPINS, i) for i in range(4)]
    return nk.operator.LocalLiouvillian(hamiltonian, loss)


def mixed_state(n_samples: int = 64) -> nk.vqs.MCMixedState:
    model = nk.models.NDM(alpha=2, beta=1)
    sampler = nk.sampler.MetropolisLocal(lindbladian().hilbert, n_chains=16)
    return nk.vqs.MCMixedState(sampler, model, n_samples=n_samples, n_samples_diag=64, seed=1, sampler_seed=2)


def pure_state(dtype: Any, n_samples: int = 24) -> nk.vqs.MCState:
    model = nk.models.RBM(alpha=3, param_dtype=dtype)
    sampler = nk.sampler.MetropolisLocal(SPINS, n_chains=8)
    return nk.vqs.MCState(sampler, model, n_samples=n_samples, seed=1, sampler_seed=2)


def exactly(matrix: Any, right: jax.Array, x0: Any = None) -> tuple[jax.Array, None]:
    return jnp.linalg.solve(matrix.to_dense(), right), None


def close(found: Any, expected: Any, tolerance: float = 1e-8) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    found, expected = (np.asarray(ravel_pytree(tree)[0]) for tree in (found, expected))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


STATES = {
    "real": lambda: pure_state(float),
    "holomorphic": lambda: pure_state(complex),
    "mixed": mixed_state,
}


@pytest.mark.parametrize("name", STATES)
def test_gradients(name: str) -> None:
    """Of any kind: these are no sums over the samples' log-derivatives."""
    state = STATES[name]()
    assert state.n_parameters > state.n_samples / 2
    rng = np.random.default_rng(3)

    def random(leaf: jax.Array) -> jax.Array:
        numbers = rng.normal(size=leaf.shape)
        return jnp.asarray((numbers + 1j * rng.normal(size=leaf.shape)) if jnp.iscomplexobj(leaf) else numbers)

    gradient = jax.tree.map(random, state.parameters)
    tensor = fk.optimizer.qgt.quantum_geometric_tensor(state, diag_shift=SHIFT)
    found, info = tensor.solve(fk.optimizer.solver.ntk, gradient)
    assert info is None
    theirs = nk.optimizer.qgt.QGTJacobianDense(state, diag_shift=SHIFT, holomorphic=name == "holomorphic")
    expected, _ = theirs.solve(exactly, gradient)
    close(found, expected)
    close(tensor @ found, gradient)
    flat, _ = tensor.solve(fk.optimizer.solver.ntk, ravel_pytree(gradient)[0])
    close(flat, ravel_pytree(expected)[0])


def test_steady_states() -> None:
    """NetKet's driver takes the preconditioner, and its steps are those with NetKet's own."""
    found = []
    for preconditioner in (
        fk.optimizer.SR(diag_shift=SHIFT, solver=fk.optimizer.solver.ntk),
        nk.optimizer.SR(nk.optimizer.qgt.QGTJacobianDense(holomorphic=False), diag_shift=SHIFT, solver=exactly),
    ):
        driver = nk.SteadyState(
            lindbladian(), nk.optimizer.Sgd(0.05), variational_state=mixed_state(), preconditioner=preconditioner
        )
        driver.run(3, show_progress=False)
        found.append(driver.state.parameters)
    close(found[0], found[1])


def test_what_it_does_not_solve() -> None:
    state = pure_state(float)
    theirs = nk.optimizer.qgt.QGTJacobianDense(state, diag_shift=SHIFT)
    with pytest.raises(TypeError, match=r"a QGTJacobianDenseT, but ntk .*SR\(solver=fk.optimizer.solver.ntk\)"):
        fk.optimizer.solver.ntk(theirs, state.parameters)
    summed = nk.vqs.FullSumState(SPINS, nk.models.RBM(param_dtype=float), seed=1)
    tensor = fk.optimizer.qgt.quantum_geometric_tensor(summed, diag_shift=SHIFT)
    with pytest.raises(ValueError, match="summed over all states of a FullSumState"):
        fk.optimizer.solver.ntk(tensor, summed.parameters)
