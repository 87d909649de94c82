"""Ground state of the transverse-field Ising chain, on one process or on many.

    python examples/ising_vmc.py
    mpirun -n 4 python examples/ising_vmc.py

The Hamiltonian is H = -h Σ_i σˣ_i + J Σ_i σᶻ_i σᶻ_{i+1} on a ring of L spins. At the critical point, h = |J| = 1, the
energy is known exactly from free fermions: E = -2 / sin(π / 2L).
"""

import ferroket as fk

info = fk.initialize()  # before jax and netket are imported

import netket as nk
import numpy as np

L, STEPS = 20, 300

if info.rank == 0:
    print(info, flush=True)

hilbert = nk.hilbert.Spin(s=1 / 2, N=L)
hamiltonian = fk.operator.Ising(hilbert, nk.graph.Chain(L), h=1.0, J=-1.0)
state = nk.vqs.MCState(
    fk.sampler.MetropolisLocal(hilbert, n_chains=16),
    nk.models.RBM(alpha=1, param_dtype=float),
    n_samples=1024,
    seed=1,
    sampler_seed=2,
)
driver = fk.driver.VMC_SR(hamiltonian, nk.optimizer.Sgd(0.05), variational_state=state, diag_shift=1e-3)
log = nk.logging.RuntimeLog()
driver.run(STEPS, out=log)

# The mean over the last steps, whose statistical error is smaller than that of one.
energy = np.mean(np.real(log.data["Energy"]["Mean"])[-50:])
exact = -2 / np.sin(np.pi / (2 * L))
if info.rank == 0:
    print(f"energy {energy:.6f}, exact {exact:.6f}, relative error {abs(energy / exact - 1):.1e}")
