"""Local energies where sites have limits, as in t-J models, against the matrix of the operator."""

from typing import Any

import jax.numpy as jnp
import netket as nk
import numpy as np
import optax
import pytest

import ferroket as fk
from support.limited_sites import KONDO, TRIANGLE, random_operator, space

T_J = space(3, maximum=1, n_fermions_per_spin=(1, 1))
KONDO_SPACE = space(4, **KONDO, n_fermions_per_spin=(2, 2))
OPERATORS: dict[str, Any] = {
    "t-J": lambda: fk.operator.TJ(T_J, TRIANGLE, t=[1.0, 0.5, 0.25], J=0.7),
    "t-J, complex": lambda: fk.operator.TJ(T_J, TRIANGLE, t=1.0 + 0.5j, J=0.7),
    "Kondo": lambda: fk.operator.KondoLattice(KONDO_SPACE, [(0, 1)], t=0.8, J=0.6),
    "three bodies": lambda: random_operator(KONDO_SPACE)[0],
}
MODELS: dict[str, Any] = {
    "SlaterJastrow": fk.models.SlaterJastrow,
    "pairs": lambda hilbert: fk.models.Product((fk.models.PairProduct(hilbert), fk.models.DensityJastrow(hilbert))),
    "RBM": lambda _: nk.models.RBM(alpha=2, param_dtype=complex),
    "MLP": lambda _: nk.models.MLP(hidden_dims=(5,), param_dtype=float),
}


@pytest.mark.quick("pairs-t-J", "SlaterJastrow-Kondo", "MLP-t-J, complex")
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("model", MODELS)
def test_local_energies(name: str, model: str) -> None:
    operator = OPERATORS[name]()
    hilbert = operator.hilbert
    clusters = TRIANGLE.edges() if hilbert == T_J else [(0, 1), (0, 2), (1, 3)]
    sampler = fk.sampler.MetropolisSiteExchange(hilbert, clusters=clusters, n_chains=16)
    state = nk.vqs.MCState(sampler, MODELS[model](hilbert), n_samples=64, seed=1, sampler_seed=1)
    assert fk.explain(state, operator).path == ("any network" if model == "MLP" else "known ratios")
    number = {tuple(row): i for i, row in enumerate(np.asarray(hilbert.all_states()).tolist())}
    rows = [number[tuple(row)] for row in np.asarray(state.samples).reshape(-1, hilbert.size).tolist()]
    psi = np.asarray(state.to_array(normalize=False))
    expected = (np.asarray(operator.to_dense()) @ psi)[rows] / psi[rows]
    found = jnp.asarray(state.local_estimators(operator)).ravel()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.thorough
def test_the_ground_state_of_a_small_t_j_cluster() -> None:
    """Two holes on a ring of six sites, against exact diagonalisation. Other seeds may end in excited states."""
    graph = nk.graph.Chain(6)
    hilbert = space(6, maximum=1, n_fermions_per_spin=(2, 2))
    operator = fk.operator.TJ(hilbert, graph, t=1.0, J=0.4)
    sampler = fk.sampler.MetropolisSiteExchange(hilbert, graph=graph, exchange=1.0, n_chains=32)
    model = fk.models.Product((fk.models.PairProduct(hilbert), fk.models.DensityJastrow(hilbert)))
    energy, error = optimised(nk.vqs.MCState(sampler, model, n_samples=1024, seed=3, sampler_seed=1), operator, 300)
    exact = float(np.linalg.eigvalsh(operator.to_dense())[0])
    assert exact - 5 * error < energy < 0.99 * exact


@pytest.mark.thorough
def test_two_holes_on_four_by_four_sites() -> None:
    """The energy of exact diagonalisation is that of the sparse matrix in test_lattice_hamiltonians."""
    graph = nk.graph.Square(4)
    hilbert = space(16, maximum=1, n_fermions_per_spin=(7, 7))
    operator = fk.operator.TJ(hilbert, graph, t=1.0, J=0.4)
    sampler = fk.sampler.MetropolisSiteExchange(hilbert, graph=graph, exchange=1.0, n_chains=32)
    units, group = fk.models.sublattice_translations(graph, (2, 2)), graph.translation_group()
    pairs = fk.models.PairProduct(hilbert, translations=units, symmetries=group)
    model = fk.models.Product((pairs, fk.models.DensityJastrow(hilbert, translations=group)))
    energy, error = optimised(nk.vqs.MCState(sampler, model, n_samples=1024, seed=1, sampler_seed=1), operator, 150)
    exact = -10.683919735
    assert exact - 5 * error < energy < 0.95 * exact


def optimised(state: Any, operator: Any, n_steps: int) -> tuple[float, float]:
    """The energy after steps of stochastic reconfiguration, and its error."""
    driver = fk.driver.VMC_SR(operator, optax.sgd(0.05), variational_state=state, diag_shift=0.01, mode="real")
    driver.run(n_steps, out=None, show_progress=False)
    state.n_samples = 8192
    energy = state.expect(operator)
    return float(energy.mean.real), float(energy.error_of_mean)
