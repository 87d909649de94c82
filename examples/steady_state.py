"""The steady state of an open chain of spins, by stochastic reconfiguration in the space of samples.

    python examples/steady_state.py

It is for one process: NetKet's Lindbladians can't be shared by several.

Each spin precesses in a field, is coupled to its neighbours, and decays. The density matrix is a neural network, with
more parameters than there are samples, and the solver `ntk` needs a linear system of as many unknowns as there are
samples. The steady state is known from the Lindbladian as a matrix.
"""

import ferroket as fk

info = fk.initialize()  # before jax and netket are imported

import netket as nk
import numpy as np

L, STEPS = 4, 300
hilbert = nk.hilbert.Spin(0.5, L)
x, z, minus = nk.operator.spin.sigmax, nk.operator.spin.sigmaz, nk.operator.spin.sigmam
hamiltonian = sum(0.5 * x(hilbert, i) + 0.1 * (z(hilbert, i) @ z(hilbert, (i + 1) % L)) for i in range(L))
lindbladian = nk.operator.LocalLiouvillian(hamiltonian, [minus(hilbert, i) for i in range(L)])

state = nk.vqs.MCMixedState(
    nk.sampler.MetropolisLocal(lindbladian.hilbert, n_chains=16),
    nk.models.NDM(alpha=4, beta=4),
    n_samples=256,
    n_samples_diag=2048,
    seed=1,
    sampler_seed=2,
)
preconditioner = fk.optimizer.SR(diag_shift=0.01, solver=fk.optimizer.solver.ntk)
driver = nk.SteadyState(lindbladian, nk.optimizer.Sgd(0.1), variational_state=state, preconditioner=preconditioner)
driver.run(STEPS, show_progress=False)

magnetisation = sum(z(hilbert, i) for i in range(L)) / L
found = float(state.expect(magnetisation).mean.real)
# The vector with L ρ = 0.
density = np.linalg.svd(lindbladian.to_dense())[2][-1].conj().reshape(2**L, 2**L)
exact = (np.trace(density @ magnetisation.to_dense()) / np.trace(density)).real
if info.rank == 0:
    print(f"{state.n_parameters} parameters, {state.n_samples} samples")
    print(f"magnetisation {found:.4f}, exact {exact:.4f}, L†L {driver.ldagl.mean.real:.1e}")
