"""A quench of the transverse-field Ising chain, by the time-dependent variational principle.

    python examples/dynamics.py
    mpirun -n 4 python examples/dynamics.py

At first the spins point along x: the parameters of the network are small. Under H = -h Σ σˣ_i + J Σ σᶻ_i σᶻ_{i+1} the
magnetisation Σ ⟨σˣ_i⟩ / L falls, and is compared with that of exact evolution.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import netket as nk
import netket.experimental as nkx
import numpy as np
from scipy.sparse.linalg import expm_multiply

L, T = 8, 1.0

hilbert = nk.hilbert.Spin(s=1 / 2, N=L)
hamiltonian = fk.operator.Ising(hilbert, nk.graph.Chain(L), h=0.5, J=-1.0)
magnetisation = sum(fk.operator.spin.sigmax(hilbert, i) for i in range(L)) / L
state = nk.vqs.MCState(
    fk.sampler.MetropolisLocal(hilbert, n_chains=16),
    nk.models.RBM(alpha=2, param_dtype=complex),
    n_samples=2048,
    n_discard_per_chain=8,
    seed=1,
    sampler_seed=2,
)
driver = nkx.driver.TDVP(
    hamiltonian,
    variational_state=state,
    ode_solver=nkx.dynamics.Heun(dt=0.02),
    qgt=fk.optimizer.qgt.quantum_geometric_tensor(holomorphic=True, diag_shift=1e-4),
    linear_solver=fk.optimizer.solver.pinv_smooth,
)
log = nk.logging.RuntimeLog()
times = np.linspace(0, T, 6)
driver.run(T, out=log, obs={"m": magnetisation}, tstops=times, show_progress=False)
found = np.real(log.data["m"]["Mean"])

# Exactly, from all spins along x.
psi = np.full(hilbert.n_states, hilbert.n_states**-0.5, complex)
evolved = expm_multiply(-1j * hamiltonian.to_sparse(), psi, start=0, stop=T, num=len(times))
exact = np.real(np.sum(np.conj(evolved) * (magnetisation.to_sparse() @ evolved.T).T, axis=1))
for time, value, right in zip(times, found, exact, strict=True):
    fk.distributed.print_once(f"t = {time:.1f}: {value:+.3f}, exact {right:+.3f}")
