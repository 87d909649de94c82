"""Heisenberg's model on a square of 10×10 spins, by a residual convolutional network.

    mpirun -n 8 ferroket reproduce heisenberg-square-100-deep

H = Σ S_i·S_j over neighbours. With the spins of one sublattice rotated about z the ground state is positive (Marshall's
rule). A network of 3×3 convolutions has the same parameters on every square: it learns on 6×6 first, where a step costs
a fifth. Translations it has by itself; in the end the rotations and reflections are summed over.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import optax
from jax.nn.initializers import normal
from netket.nn import log_cosh

from ferroket.published.run import Run

run = Run("heisenberg-square-100-deep")
FEATURES, BLOCKS = 8, 3
if run.short:
    SMALL_STEPS, STEPS, SYMMETRIC_STEPS, SAMPLES = 20, 2, 1, 256
else:
    SMALL_STEPS, STEPS, SYMMETRIC_STEPS, SAMPLES = 300, 400, 40, 1024


class ResidualNetwork(nn.Module):
    """Blocks of two convolutions each, in single precision: ln Ψ as a sum over sites and features."""

    @nn.compact
    def __call__(self, x):
        def convolution(x):
            return nn.Conv(FEATURES, (3, 3), padding="CIRCULAR", dtype=jnp.float32, param_dtype=jnp.float32)(x)

        side = round(x.shape[-1] ** 0.5)
        x = convolution(x.reshape(*x.shape[:-1], side, side, 1))
        for _ in range(BLOCKS):
            x = x + convolution(jax.nn.gelu(convolution(jax.nn.gelu(x))))
        # The first amplitudes are nearly equal.
        dense = nn.Dense(FEATURES, dtype=jnp.float32, param_dtype=jnp.float32, kernel_init=normal(0.05))
        return log_cosh(dense(jax.nn.gelu(x))).sum((-3, -2, -1))


def driver_on(side, model, parameters, steps, learning_rate, diag_shift):
    """A driver for `side` × `side` spins that starts at the parameters, and its operator."""
    graph = nk.graph.Square(side)
    hilbert = nk.hilbert.Spin(0.5, graph.n_nodes, total_sz=0)
    hamiltonian = fk.operator.Heisenberg(hilbert, graph, J=0.25, sign_rule=True)
    sampler = fk.sampler.MetropolisExchange(hilbert, graph=graph, n_chains=256)
    state = nk.vqs.MCState(sampler, model, n_samples=SAMPLES, seed=1, sampler_seed=2)
    if parameters is not None:
        state.parameters = parameters
    driver = fk.driver.VMC_SR(
        hamiltonian,
        nk.optimizer.Sgd(optax.warmup_cosine_decay_schedule(0.0, learning_rate, min(20, steps // 4), steps)),
        variational_state=state,
        diag_shift=optax.exponential_decay(diag_shift, steps, 1 / 30),
        momentum=0.8,  # SPRING
        trust_region=2,
    )
    return driver, hamiltonian


network = ResidualNetwork()
driver, _ = driver_on(6, network, None, SMALL_STEPS, 0.03, 3e-2)
driver = run.optimise(driver, SMALL_STEPS, stage="small", recorded=False)

driver, _ = driver_on(10, network, driver.state.parameters, STEPS, 0.02, 1e-2)
driver = run.optimise(driver, STEPS, stage="large")

graph, hilbert = nk.graph.Square(10), driver.state.hilbert
symmetric = fk.models.symmetrise(network, hilbert, graph.point_group(), invariant_under=graph.translation_group())
driver, hamiltonian = driver_on(10, symmetric, {"module": driver.state.parameters}, SYMMETRIC_STEPS, 5e-3, 1e-3)
driver = run.optimise(driver, SYMMETRIC_STEPS, stage="symmetric", save_every=5)
run.conclude_energy(driver.state, hamiltonian, n_samples=2**9 if run.short else 2**14)
