"""Frustrated spins on a square, J1-J2 at J2 = J1 / 2, by singlet pairs and a Lanczos step.

    mpirun -n 8 ferroket reproduce j1-j2-square-100

H = J1 Σ S_i·S_j over neighbours + J2 Σ S_i·S_j over diagonals. Each spin is a fermion, one on each site: ψ is a pair
product of singlets f(r), the same at all sites, of the kind of W.-J. Hu et al., arXiv:1304.2630, who take Lanczos steps
from it, too. f starts at a d wave between neighbours, since random starts end in minima.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import jax.numpy as jnp
import netket as nk
import numpy as np
import optax

from ferroket.published.run import Run

run = Run("j1-j2-square-100")
SIDE, STEPS = 10, 60 if run.short else 300

graph = nk.graph.Square(SIDE, max_neighbor_order=2)
sites = graph.n_nodes
one_each = fk.hilbert.SiteOccupations(sites, minimum=1, maximum=1)
hilbert = nk.hilbert.SpinOrbitalFermions(
    sites, s=1 / 2, n_fermions_per_spin=(sites // 2, sites // 2), constraint=one_each
)
couplings = np.where([colour == 0 for *_, colour in graph.edges(return_color=True)], 1.0, 0.5)
hamiltonian = fk.operator.fermion.spin_coupling(hilbert, graph.edges(), couplings)

# f(r) = f(-r) of singlets: one parameter for each pair of distances along the axes, up to the sign.
x, y = np.divmod(np.arange(sites), SIDE)
along, across = (x[:, None] - x) % SIDE, (y[:, None] - y) % SIDE
_, ties = np.unique(np.minimum(along * SIDE + across, -along % SIDE * SIDE + -across % SIDE), return_inverse=True)
model = fk.models.PairProduct(hilbert, translations=fk.models.TiedParameters(ties.reshape(sites, sites)))

pairs = 0.05 * np.random.default_rng(3).standard_normal(ties.max() + 1)
nearest = np.minimum(along, -along % SIDE) + np.minimum(across, -across % SIDE) == 1
pairs[ties.reshape(sites, sites)[nearest]] = np.where(across == 0, 1.0, -1.0)[nearest]

sampler = fk.sampler.MetropolisSiteExchange(hilbert, graph=graph, exchange=1.0, n_chains=256, sweep_size=sites // 2)
state = nk.vqs.MCState(sampler, model, n_samples=1024, n_discard_per_chain=10, seed=1, sampler_seed=2)
state.parameters = {"pairs": jnp.asarray(pairs)}
driver = fk.driver.VMC_SR(
    hamiltonian,
    nk.optimizer.Sgd(optax.warmup_exponential_decay_schedule(0.0, 0.1, 20, 40, 0.2, end_value=0.01)),
    variational_state=state,
    diag_shift=optax.exponential_decay(3e-2, STEPS, 1 / 3),
    momentum=0.8,  # SPRING
    trust_region=2,
    mode="real",
)
driver = run.optimise(driver, STEPS)
run.conclude_energy(driver.state, hamiltonian, n_samples=2**8 if run.short else 2**15, lanczos_steps=1)
