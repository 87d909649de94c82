"""Energies after Lanczos steps, against Krylov spaces of dense matrices."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk


class NotBoth(nk.hilbert.constraint.DiscreteHilbertConstraint):
    """A constraint of a user's own."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return x[..., 0] + x[..., 1] < 2

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NotBoth)


OWN = nk.hilbert.SpinOrbitalFermions(3, n_fermions=1, constraint=NotBoth())


class Phases(nn.Module):
    """A state of equal moduli: all configurations together are its samples."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        angles = nn.Dense(6, param_dtype=float, kernel_init=nn.initializers.normal(0.7))(x.astype(float))
        return 1j * jnp.tanh(angles).sum(axis=-1)


def heisenberg() -> Any:
    hilbert = nk.hilbert.Spin(0.5, 8, total_sz=0)
    return fk.operator.Heisenberg(hilbert, nk.graph.Chain(8), J=0.25)


def hubbard() -> Any:
    hilbert = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(2, 2))
    return fk.operator.FermiHubbard(hilbert, nk.graph.Chain(4), t=1.0, U=4.0)


def ising() -> Any:
    hilbert = nk.hilbert.Spin(0.5, 6)
    return fk.operator.Ising(hilbert, nk.graph.Chain(6), h=0.8)


def t_j() -> Any:
    """Hops lead out of the space, and back in a square that isn't restricted."""
    one = fk.hilbert.SiteOccupations(4, maximum=1)
    hilbert = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(2, 1), constraint=one)
    return fk.operator.TJ(hilbert, nk.graph.Chain(4), t=1.0, J=0.4)


def spins_of_fermions() -> Any:
    """One fermion on each site."""
    one = fk.hilbert.SiteOccupations(6, minimum=1, maximum=1)
    hilbert = nk.hilbert.SpinOrbitalFermions(6, s=1 / 2, n_fermions_per_spin=(3, 3), constraint=one)
    edges = [(i, (i + by) % 6) for by in (1, 2) for i in range(6)]
    return fk.operator.fermion.spin_coupling(hilbert, edges, [1.0] * 6 + [0.5] * 6)


def with_all_configurations(hamiltonian: Any) -> Any:
    hilbert = hamiltonian.hilbert
    sampler = fk.sampler.MetropolisHamiltonian(hilbert, hamiltonian=hamiltonian, n_chains=2)
    state = nk.vqs.MCState(sampler, Phases(), n_samples=hilbert.n_states, seed=1)
    state._samples = jnp.asarray(hilbert.all_states()).reshape(2, -1, hilbert.size)
    return state


def lowest_in_krylov_space(matrix: np.ndarray, psi: np.ndarray, steps: int) -> tuple[float, float]:
    """The lowest energy of 1, H, …, H^steps applied to a state, and its variance."""
    basis, _ = np.linalg.qr(np.stack([np.linalg.matrix_power(matrix, k) @ psi for k in range(steps + 1)], axis=1))
    energies, vectors = np.linalg.eigh(basis.conj().T @ matrix @ basis)
    image = (matrix - energies[0] * np.eye(len(matrix))) @ (basis @ vectors[:, 0])
    return energies[0], np.linalg.norm(image) ** 2


@pytest.mark.quick("heisenberg-1", "hubbard-2", "t_j-1")
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("make", [heisenberg, hubbard, ising, t_j, spins_of_fermions], ids=lambda make: make.__name__)
def test_energies_are_lowest_in_krylov_space(make: Any, steps: int) -> None:
    hamiltonian = make()
    state, matrix = with_all_configurations(hamiltonian), hamiltonian.to_dense()
    psi = np.exp(np.asarray(state.log_value(hamiltonian.hilbert.all_states())))
    expected, variance = lowest_in_krylov_space(matrix, psi / np.linalg.norm(psi), steps)
    step = fk.local_energy.LanczosStep(hamiltonian, steps)
    coefficients = step.coefficients(state)
    for scale in (1, -3.0):
        energy = step.expect(state, scale * coefficients)
        np.testing.assert_allclose(energy.mean, expected, rtol=1e-9)
        np.testing.assert_allclose(energy.variance, variance, rtol=1e-6, atol=1e-9)
    with_one = step.expect(state, [1, *[0] * steps])
    np.testing.assert_allclose(with_one.mean, np.vdot(psi, matrix @ psi).real / len(psi), rtol=1e-12)


def test_errors_are_those_of_samples() -> None:
    """Of many estimates from a few samples each, coefficients being fixed."""
    hamiltonian = heisenberg()
    exact = with_all_configurations(hamiltonian)
    step = fk.local_energy.LanczosStep(hamiltonian)
    coefficients = step.coefficients(exact)
    configurations, rng = np.asarray(exact.samples).reshape(-1, 8), np.random.default_rng(2)
    found = []
    for _ in range(100):
        exact._samples = jnp.asarray(configurations[rng.integers(len(configurations), size=(16, 64))])
        found.append(step.expect(exact, coefficients))
    means, errors = (np.array([getattr(one, name) for one in found]) for name in ("mean", "error_of_mean"))
    assert 0.8 < means.std() / np.sqrt(np.mean(errors**2)) < 1.25


def test_samples_of_another_power() -> None:
    """They have weights, whether the state's sampler draws them or only these estimates do."""
    hamiltonian = heisenberg()
    sampler = fk.sampler.MetropolisHamiltonian(hamiltonian.hilbert, hamiltonian=hamiltonian, n_chains=64)
    model = nk.models.RBM(param_dtype=float, kernel_init=nn.initializers.normal(0.4))
    state = nk.vqs.MCState(sampler, model, n_samples=2**16, seed=1, sampler_seed=2)
    psi, matrix = state.to_array(), hamiltonian.to_dense()
    step = fk.local_energy.LanczosStep(hamiltonian)
    expected, _ = lowest_in_krylov_space(matrix, psi, 1)
    found = step.coefficients(state, machine_pow=1)
    after = found[0] * psi + found[1] * (matrix @ psi)
    exact = (after @ matrix @ after) / (after @ after)
    assert expected <= exact < expected + 0.01 * (psi @ matrix @ psi - expected)
    energy = step.expect(state, found, machine_pow=1)
    assert abs(energy.mean - exact) < 4 * energy.error_of_mean
    state.sampler = sampler.replace(machine_pow=1)
    of_state = step.expect(state, found)
    assert abs(of_state.mean - exact) < 4 * of_state.error_of_mean
    weight = 1 + found[1] / found[0] * (matrix @ psi) / psi
    biased = np.abs(psi) @ (weight * (matrix @ after) / (psi * found[0])) / (np.abs(psi) @ weight**2)
    assert abs(biased - exact) > 6 * of_state.error_of_mean


def test_an_eigenstate_stays_what_it_is() -> None:
    hilbert = nk.hilbert.Spin(0.5, 2)
    hamiltonian = fk.operator.Ising(hilbert, nk.graph.Chain(2, pbc=False), h=1.0, J=0.0)
    sampler = fk.sampler.MetropolisLocal(hilbert, n_chains=2)
    state = nk.vqs.MCState(sampler, nk.models.Jastrow(kernel_init=nn.initializers.zeros), n_samples=8, seed=1)
    step = fk.local_energy.LanczosStep(hamiltonian, 2)
    energy = step.expect(state, step.coefficients(state))
    np.testing.assert_allclose([energy.mean, energy.variance], [-2, 0], atol=1e-12)


@pytest.mark.parametrize("coupling", [np.pi / 7, -np.pi / 7, 1 / 3, -1 / 3])
@pytest.mark.parametrize("steps", [1, 2])
def test_an_eigenstate_up_to_rounding(coupling: float, steps: int) -> None:
    """All amplitudes are equal: the most aligned state of the sector."""
    hilbert, graph = nk.hilbert.Spin(0.5, 8, total_sz=0), nk.graph.Chain(8)
    hamiltonian = fk.operator.Heisenberg(hilbert, graph, J=coupling, sign_rule=False)
    sampler = fk.sampler.MetropolisExchange(hilbert, graph=graph, n_chains=16)
    state = nk.vqs.MCState(sampler, nk.models.Jastrow(kernel_init=nn.initializers.zeros), n_samples=256, seed=1)
    step = fk.local_energy.LanczosStep(hamiltonian, steps)
    energy = step.expect(state, step.coefficients(state))
    np.testing.assert_allclose([energy.mean, energy.error_of_mean], [8 * coupling, 0], atol=1e-12)


def test_what_is_wrong_is_told() -> None:
    hamiltonian = heisenberg()
    with pytest.raises(ValueError, match="steps=0 must be at least 1"):
        fk.local_energy.LanczosStep(hamiltonian, 0)
    with pytest.raises(TypeError, match="powers of FermionOperator2nd aren't single operators on"):
        fk.local_energy.LanczosStep(fk.operator.FermionOperator2nd(OWN, ["0^ 1"], [1.0]))
    full = nk.vqs.FullSumState(hamiltonian.hilbert, Phases())
    with pytest.raises(TypeError, match="give an MCState, and no FullSumState"):
        fk.local_energy.LanczosStep(hamiltonian).coefficients(full)
    with pytest.raises(ValueError, match=r"1 steps have 2 coefficients, but their shape is \(3,\)"):
        fk.local_energy.LanczosStep(hamiltonian).expect(with_all_configurations(hamiltonian), [1, 2, 3])
