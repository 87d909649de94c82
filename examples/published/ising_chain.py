"""The critical Ising chain of 32 spins, by a restricted Boltzmann machine with translations.

    mpirun -n 8 ferroket reproduce ising-chain-32

H = -Σ_i σˣ_i - Σ_i σᶻ_i σᶻ_{i+1} on a ring. The ground state is positive, invariant under translations and under the
flip of all spins: so are hidden units without visible biases.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import netket as nk
import optax
from jax.nn.initializers import normal, zeros

from ferroket.published.run import Run

run = Run("ising-chain-32")
STEPS = 120 if run.short else 2000

chain = nk.graph.Chain(32)
hilbert = nk.hilbert.Spin(0.5, chain.n_nodes)
hamiltonian = fk.operator.Ising(hilbert, chain, h=1.0, J=-1.0)
model = nk.models.RBMSymm(
    symmetries=chain.translation_group(),
    alpha=8,
    param_dtype=float,
    use_visible_bias=False,
    kernel_init=normal(0.02),
    hidden_bias_init=zeros,
)
state = nk.vqs.MCState(fk.sampler.MetropolisLocal(hilbert, n_chains=256), model, n_samples=4096, seed=1, sampler_seed=2)
driver = fk.driver.VMC_SR(
    hamiltonian,
    nk.optimizer.Sgd(optax.cosine_decay_schedule(0.03, STEPS, alpha=0.02)),
    variational_state=state,
    diag_shift=optax.exponential_decay(1e-3, STEPS, 1e-3),
)
driver = run.optimise(driver, STEPS)
run.conclude_energy(driver.state, hamiltonian, n_samples=2**16 if run.short else 2**21)
