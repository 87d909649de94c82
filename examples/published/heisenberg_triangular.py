"""Heisenberg's model on a triangular lattice of 6×6 spins, by a complex convolutional network and all symmetries.

    mpirun -n 8 ferroket reproduce heisenberg-triangular-36

H = Σ S_i·S_j over neighbours. Spins of the three sublattices are 120° apart in the classical ground state: the network
multiplies the phases of that product state. It learns by itself first. Then it is summed over the point group and the
flip of all spins; translations it has already. In the end it takes longer steps, of more samples.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import optax
from jax.nn.initializers import normal
from netket.nn import log_cosh

from ferroket.published.run import Run

run = Run("heisenberg-triangular-36")
FEATURES, BLOCKS = 8, 3
STEPS, SYMMETRIC_STEPS, LONGER_STEPS = (60, 2, 0) if run.short else (400, 160, 120)

graph = nk.graph.Triangular((6, 6))
hilbert = nk.hilbert.Spin(0.5, 36, total_sz=0)
hamiltonian = fk.operator.Heisenberg(hilbert, graph, J=0.25, sign_rule=False)

x, y = graph.basis_coords[:, :2].T.astype(int)
GRID = np.zeros((6, 6), int)
GRID[x, y] = np.arange(36)
ANGLES = 2 * np.pi / 3 * ((x - y) % 3)


class ResidualNetwork(nn.Module):
    """Blocks of two convolutions, in single precision: ln ψ as a sum over sites, beside the phases of spins at 120°."""

    @nn.compact
    def __call__(self, spins):
        def convolution(x):
            return nn.Conv(FEATURES, (3, 3), padding="CIRCULAR", dtype=jnp.float32, param_dtype=jnp.float32)(x)

        def dense(x, size):
            return nn.Dense(FEATURES, dtype=jnp.float32, param_dtype=jnp.float32, kernel_init=normal(size))(x)

        x = convolution(spins[..., GRID][..., None])
        for _ in range(BLOCKS):
            x = x + convolution(jax.nn.gelu(convolution(jax.nn.gelu(x))))
        x = jax.nn.gelu(x)
        modulus = log_cosh(dense(x, 0.05)).sum((-3, -2, -1))
        phase = jnp.tanh(dense(x, 0.01)).sum((-3, -2, -1))
        up = (1 + spins.astype(jnp.float32)) / 2
        return modulus + 1j * (phase + (up * ANGLES.astype(np.float32)).sum(-1))


def driver_of(model, n_samples, steps, learning_rate, diag_shift):
    """A driver of the model."""
    sampler = fk.sampler.MetropolisExchange(hilbert, graph=graph, n_chains=256)
    state = nk.vqs.MCState(sampler, model, n_samples=n_samples, seed=1, sampler_seed=2)
    return fk.driver.VMC_SR(
        hamiltonian,
        nk.optimizer.Sgd(
            optax.warmup_cosine_decay_schedule(0.0, learning_rate, min(20, steps // 2), steps, learning_rate / 20)
        ),
        variational_state=state,
        diag_shift=optax.exponential_decay(diag_shift, steps, 0.1),
        momentum=0.8,  # SPRING
        trust_region=2,
        mode="complex",
    )


network = ResidualNetwork()
driver = run.optimise(driver_of(network, 1024, STEPS, 0.03, 3e-2), STEPS, stage="network")

parameters = driver.state.parameters
symmetric = fk.models.symmetrise(network, hilbert, graph.space_group(), parity=1)
driver = driver_of(symmetric, 512, SYMMETRIC_STEPS, 0.02, 1e-2)
driver.state.parameters = {"module": parameters}
driver = run.optimise(driver, SYMMETRIC_STEPS, stage="symmetric", save_every=10)
if LONGER_STEPS:
    parameters = driver.state.parameters
    driver = driver_of(symmetric, 1024, LONGER_STEPS, 0.05, 5e-3)
    driver.state.parameters = parameters
    driver = run.optimise(driver, LONGER_STEPS, stage="longer", save_every=10)
run.conclude_energy(driver.state, hamiltonian, n_samples=2**9 if run.short else 2**14)
