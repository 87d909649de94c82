"""The Hubbard model on 4×4 sites at U = 8 t with ten electrons, by pairs that are projected onto the space group.

    mpirun -n 8 ferroket reproduce hubbard-square-16

The wave function is mVMC's: a pair product, with Gutzwiller's factor and Jastrow's.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import netket as nk
import optax

from ferroket.published.run import Run

run = Run("hubbard-square-16")
STEPS = 60 if run.short else 600

square = nk.graph.Square(4)
hilbert = nk.hilbert.SpinOrbitalFermions(16, s=1 / 2, n_fermions_per_spin=(5, 5))
hamiltonian = fk.operator.FermiHubbard(hilbert, square, t=1.0, U=8.0)
symmetries, translations = square.space_group().to_array(), square.translation_group().to_array()
model = fk.models.Product(
    (
        fk.models.PairProduct(hilbert, symmetries=symmetries),
        fk.models.DensityJastrow(hilbert, translations=symmetries),
        fk.models.Gutzwiller(hilbert, translations=translations),
    )
)
sampler = fk.sampler.MetropolisFermionHop(hilbert, graph=square, n_chains=64, sweep_size=32)
state = nk.vqs.MCState(sampler, model, n_samples=1024, n_discard_per_chain=16, seed=1, sampler_seed=2)
driver = fk.driver.VMC_SR(
    hamiltonian,
    nk.optimizer.Sgd(optax.cosine_decay_schedule(0.05, STEPS, alpha=0.05)),
    variational_state=state,
    diag_shift=optax.exponential_decay(1e-2, STEPS, 1e-2),
    momentum=0.8,  # SPRING
    mode="real",
)
driver = run.optimise(driver, STEPS)
run.conclude_energy(driver.state, hamiltonian, n_samples=2**12 if run.short else 2**15)
