"""Ground state of the J1-J2 Heisenberg model on the square lattice, a frustrated magnet.

    python examples/heisenberg_j1j2.py
    mpirun -n 4 python examples/heisenberg_j1j2.py

H = J1 Σ σ_i·σ_j over neighbours + J2 Σ σ_i·σ_j over next neighbours, with J2 = J1 / 5, on 4 × 4 sites with total Sᶻ 0.
Exchanges of spins keep the magnetisation. Real parameters are enough as long as Marshall's sign rule nearly holds:
towards J2 = J1 / 2 it fails.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import netket as nk
import numpy as np
from scipy.sparse.linalg import eigsh

STEPS = 150

graph = nk.graph.Square(4, max_neighbor_order=2)
hilbert = nk.hilbert.Spin(s=1 / 2, N=graph.n_nodes, total_sz=0)
# Marshall's sign rule: with one sublattice rotated, the wave function is nearly positive.
hamiltonian = fk.operator.Heisenberg(hilbert, graph, J=[1.0, 0.2], sign_rule=[True, False])
state = nk.vqs.MCState(
    fk.sampler.MetropolisExchange(hilbert, graph=graph, d_max=2, n_chains=16),
    nk.models.RBM(alpha=1, param_dtype=float),
    n_samples=1008,
    seed=1,
    sampler_seed=2,
)
driver = fk.driver.VMC_SR(hamiltonian, nk.optimizer.Sgd(0.015), variational_state=state, diag_shift=0.01)
log = nk.logging.RuntimeLog()
driver.run(STEPS, out=log, show_progress=False)

energy = np.mean(np.real(log.data["Energy"]["Mean"])[-20:])
exact = eigsh(hamiltonian.to_sparse(), k=1, which="SA")[0][0]
fk.distributed.print_once(f"energy {energy:.4f}, exact {exact:.4f}, relative error {abs(energy / exact - 1):.1e}")
