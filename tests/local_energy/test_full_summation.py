"""Local values of all configurations of small systems, against dense matrices."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.local_energy import local_values
from support.variational_states import MODELS, OPERATORS, make_state, values_by

NETWORK = nk.models.MLP(hidden_dims=(7, 5), hidden_activations=jnp.tanh, param_dtype=complex)
# NetKet's own, which take no part in the local values.
HAMILTONIANS = {
    "Heisenberg": nk.operator.Heisenberg(
        OPERATORS["Heisenberg"].hilbert, nk.graph.Chain(6), cls=nk.operator.LocalOperatorJax
    ),
    "Pauli strings": nk.operator.PauliStringsJax(
        nk.hilbert.Qubit(6), ["XXIIII", "IYXYXI", "ZZIIII", "XYXXXX", "IIIZYX"], [0.3, -1.2, 0.7, 0.2, 1.1]
    ),
    "spin 1": nk.operator.LocalOperatorJax(
        nk.hilbert.Spin(1, 3), [np.arange(9).reshape(3, 3) * 1j**k for k in range(3)], [[0], [1], [2]]
    ),
}
FAMILIES = [
    ("RBM", "Heisenberg"),
    ("RBM, complex", "Pauli strings"),
    ("RBMModPhase", "Pauli strings"),
    ("RBMSymm", "Pauli strings"),
    ("RBMMultiVal", "Pauli strings"),
    ("Jastrow", "Pauli strings"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("model", "hamiltonian"), FAMILIES)
def test_known_models(model: str, hamiltonian: str) -> None:
    state, operator = state_and_operator(MODELS[model], hamiltonian)
    assert fk.explain(state, operator).path == "known ratios"
    compare(state, operator, nk.vqs.get_local_kernel(state, operator), hamiltonian)


@pytest.mark.thorough
@pytest.mark.parametrize("hamiltonian", HAMILTONIANS)
def test_a_network(hamiltonian: str) -> None:
    state, operator = state_and_operator(NETWORK, hamiltonian)
    assert fk.explain(state, operator).path == "any network"
    compare(state, operator, local_values, hamiltonian)


def state_and_operator(model: Any, hamiltonian: str) -> tuple[Any, Any]:
    operator = fk.accelerate(HAMILTONIANS[hamiltonian])
    return make_state(model, operator.hilbert), operator


def compare(state: Any, operator: Any, kernel: Any, hamiltonian: str) -> None:
    samples = jnp.asarray(state.hilbert.all_states())
    found = np.asarray(values_by(kernel, state._apply_fun, state.variables, samples, operator))
    matrix = HAMILTONIANS[hamiltonian].to_dense()
    psi = np.exp(np.asarray(jax.jit(state._apply_fun)(state.variables, samples)))
    np.testing.assert_allclose(found, matrix @ psi / psi, rtol=1e-11, atol=1e-11)
    weights = np.abs(psi) ** 2 / (np.abs(psi) ** 2).sum()
    rayleigh = psi.conj() @ matrix @ psi / (psi.conj() @ psi)
    np.testing.assert_allclose((weights * found).sum(), rayleigh, rtol=1e-12)
    assert abs(rayleigh) > 0.1
