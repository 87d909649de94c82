"""Ground state of the Bose-Hubbard model on a ring.

    python examples/bose_hubbard.py
    mpirun -n 4 python examples/bose_hubbard.py

H = -J Σ (b†_i b_j + h.c.) + U/2 Σ n_i (n_i - 1) on a ring of 6 sites with 6 bosons. The connected
elements come from Rust, and so do the chains, with the network's layers.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import netket as nk
import numpy as np
from scipy.sparse.linalg import eigsh

STEPS = 150

graph = nk.graph.Chain(6)
hilbert = nk.hilbert.Fock(n_max=6, N=6, n_particles=6)
hamiltonian = fk.operator.BoseHubbard(hilbert, graph, U=2.0, J=1.0)
state = nk.vqs.MCState(
    fk.sampler.MetropolisHamiltonian(hilbert, hamiltonian=hamiltonian, n_chains=16),
    nk.models.MLP(hidden_dims=(32,), param_dtype=float),
    n_samples=1008,
    seed=1,
    sampler_seed=2,
)
driver = fk.driver.VMC_SR(hamiltonian, nk.optimizer.Sgd(0.05), variational_state=state, diag_shift=0.01)
log = nk.logging.RuntimeLog()
driver.run(STEPS, out=log, show_progress=False)

energy = np.mean(np.real(log.data["Energy"]["Mean"])[-20:])
exact = eigsh(hamiltonian.to_sparse(), k=1, which="SA")[0][0]
fk.distributed.print_once(f"energy {energy:.4f}, exact {exact:.4f}, relative error {abs(energy / exact - 1):.1e}")
