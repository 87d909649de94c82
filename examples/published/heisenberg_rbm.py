"""Heisenberg's model on a chain of 40 and a square of 10×10 spins, by restricted Boltzmann machines with translations.

    mpirun -n 8 ferroket reproduce heisenberg-chain-40-rbm-2
    mpirun -n 8 ferroket reproduce heisenberg-square-100-rbm-2

H = Σ S_i·S_j over neighbours. With the spins of one sublattice rotated about z the ground state is positive (Marshall's
rule). Weights are complex, as those of Carleo and Troyer: on the square real ones end far above.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import netket as nk
import optax
from jax.nn.initializers import normal, zeros

from ferroket.published.run import Run

ALPHAS = {"chain-40": (1, 2, 4), "square-100": (1, 2, 4)}
run = Run(*(f"heisenberg-{lattice}-rbm-{alpha}" for lattice, alphas in ALPHAS.items() for alpha in alphas))
lattice, alpha = run.name.removeprefix("heisenberg-").split("-rbm-")
STEPS = 60 if run.short else 600

graph = nk.graph.Chain(40) if lattice == "chain-40" else nk.graph.Square(10)
hilbert = nk.hilbert.Spin(0.5, graph.n_nodes, total_sz=0)
hamiltonian = fk.operator.Heisenberg(hilbert, graph, J=0.25, sign_rule=True)
model = nk.models.RBMSymm(
    symmetries=graph.translation_group(),
    alpha=int(alpha),
    param_dtype=complex,
    use_visible_bias=False,
    kernel_init=normal(0.02),
    hidden_bias_init=zeros,
)
state = nk.vqs.MCState(
    fk.sampler.MetropolisExchange(hilbert, graph=graph, n_chains=256), model, n_samples=2048, seed=1, sampler_seed=2
)
driver = fk.driver.VMC_SR(
    hamiltonian,
    nk.optimizer.Sgd(optax.cosine_decay_schedule(0.05, STEPS, alpha=0.05)),
    variational_state=state,
    diag_shift=optax.exponential_decay(1e-2, STEPS, 1e-2),
    trust_region=2,  # the first steps are long
)
driver = run.optimise(driver, STEPS)
run.conclude_energy(driver.state, hamiltonian, n_samples=2**14 if run.short else 2**18)
