"""The Hubbard model on a cylinder of 4×16 sites at U = 8 t with an eighth of holes, by neural backflow.

    mpirun -n 8 ferroket reproduce hubbard-cylinder-64

A determinant with Jastrow's and Gutzwiller's factors comes first. It starts at Hartree-Fock orbitals with stripes of
eight sites, for an interaction of U = 4 t, as correlations screen it. The backflow starts where it ends.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import jax.numpy as jnp
import netket as nk
import numpy as np
import optax
from jax.nn.initializers import normal

from ferroket.published.run import Run

run = Run("hubbard-cylinder-64")
DETERMINANT_STEPS, STEPS = (60, 4) if run.short else (400, 500)

graph = nk.graph.Grid([16, 4], pbc=[False, True])
hilbert = nk.hilbert.SpinOrbitalFermions(64, s=1 / 2, n_fermions_per_spin=(28, 28))
hamiltonian = fk.operator.FermiHubbard(hilbert, graph, t=1.0, U=8.0)
sampler = fk.sampler.MetropolisFermionHop(hilbert, graph=graph, n_chains=128, sweep_size=64)
factors = (fk.models.DensityJastrow(hilbert), fk.models.Gutzwiller(hilbert))


def hartree_fock(interaction, steps=400, mixing=0.3):
    """Orbitals of spin up and down, (64, 28) each, of fermions in each other's mean field.

    The field starts at an antiferromagnet that changes its sign on every eighth site along the cylinder.
    """
    hopping = np.zeros((64, 64))
    for i, j in graph.edges():
        hopping[i, j] = hopping[j, i] = -1.0
    x, y = graph.basis_coords[:, :2].T
    moment = 0.4 * (-1.0) ** (x + y) * np.cos(np.pi * (x - 7.5) / 8)
    densities = 28 / 64 + np.stack([moment, -moment])
    for _ in range(steps):
        fields = hopping + interaction * np.stack([np.diag(density) for density in densities[::-1]])
        orbitals = np.linalg.eigh(fields)[1][:, :, :28]
        densities += mixing * ((orbitals**2).sum(axis=-1) - densities)
    return [jnp.asarray(of_spin) for of_spin in orbitals]


def driver_of(orbitals, steps, learning_rate):
    """A driver for orbitals with factors."""
    state = nk.vqs.MCState(
        sampler, fk.models.Product((orbitals, *factors)), n_samples=1024, n_discard_per_chain=4, seed=1, sampler_seed=2
    )
    return fk.driver.VMC_SR(
        hamiltonian,
        nk.optimizer.Sgd(
            optax.warmup_cosine_decay_schedule(0.0, learning_rate, steps // 10, steps, learning_rate / 20)
        ),
        variational_state=state,
        diag_shift=optax.exponential_decay(1e-2, steps, 0.1),
        momentum=0.8,  # SPRING
        trust_region=2,
        mode="real",
    )


driver = driver_of(nk.models.Slater2nd(hilbert, restricted=False), DETERMINANT_STEPS, 0.05)
up, down = hartree_fock(interaction=4.0)
driver.state.parameters = {**driver.state.parameters, "models_0": {"M_0": up, "M_1": down}}
driver = run.optimise(driver, DETERMINANT_STEPS, stage="determinant")

parameters = driver.state.parameters
driver = driver_of(fk.models.Backflow(hilbert, features=(32,), backflow_init=normal(1e-3)), STEPS, 0.02)
backflow = {**driver.state.parameters["models_0"], **parameters["models_0"]}
driver.state.parameters = {**parameters, "models_0": backflow}
driver = run.optimise(driver, STEPS, stage="backflow")
run.conclude_energy(driver.state, hamiltonian, n_samples=2**11 if run.short else 2**14)
