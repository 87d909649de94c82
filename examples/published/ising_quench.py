"""A quench of the Ising model on a square, by the time-dependent variational principle, beside exact evolution.

    mpirun -n 8 ferroket reproduce ising-quench-36

All spins point along x, and H = -Σ σᶻ_i σᶻ_j - h Σ σˣ_i over neighbours acts for t = 1, with h = 6.088, twice the field
of the ground state's transition (3.044). The result is the infidelity 1 - |⟨φ|ψ⟩|² / (⟨φ|φ⟩ ⟨ψ|ψ⟩) with the exact φ.

φ is found in the basis of σˣ, where H turns pairs of neighbours round: at this field few spins are turned. Sets of at
most eight are kept, one of each orbit of the lattice's space group. What is left out has about the weight of sets of
eight, which the script prints.
"""

import functools
import itertools

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import netket.experimental as nkx
import numpy as np
from jax.nn.initializers import zeros
from scipy.sparse import coo_array
from scipy.sparse.linalg import expm_multiply

from ferroket.published.run import Run

run = Run("ising-quench-36")
SIDE, SAMPLES, STEPS, MOST = (4, 2**11, 20, 16) if run.short else (6, 2**13, 100, 8)
FIELD, STEP = 2 * 3.044, 0.01

graph = nk.graph.Square(SIDE)
hilbert = nk.hilbert.Spin(s=1 / 2, N=graph.n_nodes)
hamiltonian = fk.operator.Ising(hilbert, graph, h=FIELD, J=-1.0)
symmetries = np.asarray(graph.space_group())


def orbits(sets):
    """The number of the orbit of each set of sites ``(n, k)`` under the space group."""
    images = np.sort(symmetries[:, sets], axis=-1) @ graph.n_nodes ** np.arange(sets.shape[1])
    return np.unique(images.min(axis=0), return_inverse=True)[1]


SITES = np.arange(graph.n_nodes)
PAIRS = np.array(list(itertools.combinations(SITES, 2)))
FOURS = np.array(list(itertools.combinations(SITES, 4)))
PAIR_ORBITS, FOUR_ORBITS = orbits(PAIRS), orbits(FOURS)


class JastrowOfFour(nn.Module):
    """ln ψ as a sum over all sets of two and of four spins: of their products, with one parameter for each orbit."""

    @nn.compact
    def __call__(self, spins):
        pair_parameters = self.param("pairs", zeros, (PAIR_ORBITS.max() + 1,), complex)
        four_parameters = self.param("fours", zeros, (FOUR_ORBITS.max() + 1,), complex)
        spins = spins.astype(float)
        pairs = spins[..., PAIRS[:, 0]] * spins[..., PAIRS[:, 1]]
        result = pairs @ pair_parameters[PAIR_ORBITS]
        for second in SITES[1:-2]:  # of the four, in order: one is before it, and pairs of sites are behind it
            behind = pairs[..., PAIRS[:, 0] > second]
            weights = four_parameters[FOUR_ORBITS[FOURS[:, 1] == second].reshape(second, -1)]
            result += ((behind @ weights.T) * (spins[..., :second] * spins[..., second, None])).sum(-1)
        return result


state = nk.vqs.MCState(
    fk.sampler.MetropolisLocal(hilbert, n_chains=256),
    JastrowOfFour(),
    n_samples=SAMPLES,
    n_discard_per_chain=8,
    seed=1,
    sampler_seed=2,
)


def driver_of(state, made):
    """The driver after some steps."""
    return nkx.driver.TDVP(
        hamiltonian,
        variational_state=state,
        ode_solver=nkx.dynamics.RK4(dt=STEP),
        t0=made * STEP,
        qgt=fk.optimizer.qgt.quantum_geometric_tensor(holomorphic=True, diag_shift=0.0),
        linear_solver=functools.partial(fk.optimizer.solver.pinv_smooth, rtol=1e-7, rtol_smooth=1e-7),
    )


_BITS = 12  # of a set of sites, which are looked up at once


def images(sets):
    """The images of sets of sites, numbers whose bits are sites, under each symmetry."""
    chunks = np.arange(2**_BITS)[:, None] >> np.arange(_BITS) & 1
    for symmetry in symmetries:
        image = np.zeros_like(sets)
        for first in range(0, graph.n_nodes, _BITS):
            weights = 1 << symmetry[first : first + _BITS].astype(np.int64)
            image |= (chunks[:, : len(weights)] @ weights)[sets >> first & 2**_BITS - 1]
        yield image


def exact_evolution(end):
    """Sets of turned spins, the first one of each orbit, and φ's amplitude of all sets of the orbit together."""
    bonds = np.array([(1 << i) | (1 << j) for i, j in graph.edges()])
    known = new = np.zeros(1, np.int64)
    rows, columns = [], []
    while new.size:
        turned = new[:, None] ^ bonds
        is_kept = np.bitwise_count(turned) <= MOST
        first = functools.reduce(np.minimum, images(turned[is_kept]))
        rows.append(np.broadcast_to(new[:, None], turned.shape)[is_kept])
        columns.append(first)
        new = np.setdiff1d(first, known)
        known = np.union1d(known, new)
    rows, columns = (np.searchsorted(known, np.concatenate(sets)) for sets in (rows, columns))
    turns = coo_array((np.full(len(rows), -1.0), (rows, columns)), shape=(len(known),) * 2)
    energies = -FIELD * (graph.n_nodes - 2.0 * np.bitwise_count(known))
    diagonal = coo_array((energies, (np.arange(len(known)),) * 2))
    amplitudes = expm_multiply(-1j * end * (turns + diagonal).tocsr(), (known == 0).astype(complex))
    orbits = len(symmetries) / sum((image == known).astype(int) for image in images(known))
    weight = (orbits * abs(amplitudes) ** 2)[np.bitwise_count(known) == MOST].sum()
    fk.distributed.print_once(f"exact evolution: {len(known)} orbits; sets of {MOST} have the weight {weight:.1e}")
    return known, orbits * amplitudes


def infidelity(state, end):
    """That of the state and of exact evolution, and its error."""
    sets, amplitudes = map(jnp.asarray, exact_evolution(end))

    def exact(samples):
        """φ of one sample ``(1, N)``: each set has the product of its spins, and each orbit the mean of these."""
        down = (samples[0, symmetries] < 0) @ (1 << jnp.arange(graph.n_nodes))
        is_odd = jax.lax.population_count(down[:, None] & sets) & 1
        return jnp.where(is_odd, -amplitudes, amplitudes).sum()[None] / len(symmetries)

    samples = state.samples
    flat = samples.reshape(-1, graph.n_nodes)
    ratios = jax.jit(nk.jax.apply_chunked(exact, in_axes=0, chunk_size=1))(flat) / jnp.exp(state.log_value(flat))
    ratios = fk.distributed.gather(ratios).reshape(samples.shape[:2])
    # Without each of the chains in turn: the jackknife.
    mean, square = ratios.mean(axis=1), (abs(ratios) ** 2).mean(axis=1)
    others = 1 - abs(mean.sum() - mean) ** 2 / ((square.sum() - square) * (len(mean) - 1))
    return 1 - abs(mean.mean()) ** 2 / square.mean(), np.sqrt((len(mean) - 1) * others.var())


state = run.evolve(state, driver_of, STEPS)
state.n_samples = 2**10
value, error = infidelity(state, STEPS * STEP)
run.conclude(float(value), float(error), parameters=2 * state.n_parameters)
