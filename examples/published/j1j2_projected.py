"""Frustrated spins on a square, J1-J2 at J2 = J1 / 2, by pairs and a restricted Boltzmann machine, projected together.

    mpirun -n 8 ferroket reproduce j1-j2-square-36

H = J1 Σ S_i·S_j over neighbours + J2 Σ S_i·S_j over diagonals. Each spin is a fermion, one on each site. ψ is a pair
product of singlets times a restricted Boltzmann machine, both alike on units of 2×2 sites, summed over the space group,
as in Y. Nomura and M. Imada, arXiv:2005.14142. Pairs come first, alike at all sites, with a d wave between neighbours.
Samples are drawn from |ψ|^1.6 and have weights, since most of the noise comes from where ψ changes its sign.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import jax.numpy as jnp
import netket as nk
import numpy as np
import optax
from jax.nn.initializers import normal

from ferroket.published.run import Run

run = Run("j1-j2-square-36")
SIDE, SITES = 6, 36
PAIR_STEPS, FIRST_STEPS, STEPS, SAMPLES = (40, 4, 2, 2**8) if run.short else (200, 100, 800, 2**13)
# A short run stays close to the pairs; a long one leaves them sooner with a machine that matters from the beginning.
WEIGHTS = 0.01 if run.short else 0.1

graph = nk.graph.Square(SIDE, max_neighbor_order=2)
one_each = fk.hilbert.SiteOccupations(SITES, minimum=1, maximum=1)
hilbert = nk.hilbert.SpinOrbitalFermions(
    SITES, s=1 / 2, n_fermions_per_spin=(SITES // 2, SITES // 2), constraint=one_each
)
couplings = np.where([colour == 0 for *_, colour in graph.edges(return_color=True)], 1.0, 0.5)
hamiltonian = fk.operator.fermion.spin_coupling(hilbert, graph.edges(), couplings)
sampler = fk.sampler.MetropolisSiteExchange(hilbert, graph=graph, exchange=1.0, n_chains=256, sweep_size=SITES // 2)


def symmetric_ties(translations):
    """Which parameter f(i, j) = f(j, i) of singlets has, (36, 36)."""
    pairs = translations[:, :, None] * SITES + translations[:, None, :]
    least = np.minimum(pairs, pairs.swapaxes(1, 2)).min(axis=0)
    return np.unique(least, return_inverse=True)[1].reshape(SITES, SITES)


def driver_of(model, parameters, learning_rate, n_samples=1024, **settings):
    """A driver of the model from these parameters on; others are random."""
    state = nk.vqs.MCState(sampler, model, n_samples=n_samples, n_discard_per_chain=0, seed=1, sampler_seed=2)
    state.parameters = {**state.parameters, **parameters}
    optimizer = nk.optimizer.Sgd(learning_rate)
    return fk.driver.VMC_SR(hamiltonian, optimizer, variational_state=state, mode="real", **settings)


everywhere = fk.models.sublattice_translations(graph, (1, 1))
alike, x_and_y = symmetric_ties(everywhere), np.divmod(np.arange(SITES), SIDE)
along, across = (np.minimum((x[:, None] - x) % SIDE, (x - x[:, None]) % SIDE) for x in x_and_y)
pairs = 0.05 * np.random.default_rng(3).standard_normal(alike.max() + 1)
nearest = along + across == 1
pairs[alike[nearest]] = np.where(along == 1, 1.0, -1.0)[nearest]
model = fk.models.PairProduct(hilbert, translations=fk.models.TiedParameters(alike))
rate = optax.warmup_cosine_decay_schedule(0.0, 0.1, min(20, PAIR_STEPS // 2), PAIR_STEPS, 0.01)
driver = driver_of(model, {"pairs": jnp.asarray(pairs)}, rate, diag_shift=2e-2, momentum=0.8, trust_region=2)
driver = run.optimise(driver, PAIR_STEPS, stage="pairs")

# One element of the space group for each way in which it moves the units of 2×2 sites.
translations = fk.models.sublattice_translations(graph, (2, 2))
unit = everywhere[np.isin(everywhere[:, 0], [0, 1, SIDE, SIDE + 1])]
symmetries = unit[:, graph.point_group().to_array()].reshape(-1, SITES)
# To move fermions, one on each site, is to exchange them, too.
characters = np.round(np.linalg.det(np.eye(SITES)[symmetries]))
ties = symmetric_ties(translations)
pairs = np.zeros(ties.max() + 1)
pairs[ties] = np.asarray(driver.state.parameters["pairs"])[alike]
machine = nk.models.RBMSymm(
    symmetries=nk.utils.HashableArray(np.concatenate([translations, translations + SITES], axis=1)),
    alpha=2,
    use_visible_bias=False,
    use_hidden_bias=False,
    kernel_init=normal(WEIGHTS),
    param_dtype=float,
)
model = fk.models.PairProduct(
    hilbert,
    translations=fk.models.TiedParameters(ties),
    symmetries=symmetries,
    characters=characters,
    correlations=machine,
)
settings = {"diag_shift": 1e-4, "machine_pow": 1.6, "trust_region": 4, "use_ntk": False}
rate = optax.linear_schedule(0.0, 0.025, 15)
driver = driver_of(model, {"pairs": jnp.asarray(pairs)}, rate, diag_scale=0.02, **settings)
driver = run.optimise(driver, FIRST_STEPS, stage="first")

rate = optax.cosine_decay_schedule(0.025, STEPS, 0.2)
driver = driver_of(
    model, driver.state.parameters, rate, n_samples=512 if run.short else 2048, diag_scale=0.01, **settings
)
driver = run.optimise(driver, STEPS, stage="second")
run.conclude_energy(driver.state, hamiltonian, SAMPLES, lanczos_steps=1, machine_pow=1.6)
