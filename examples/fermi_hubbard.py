"""Ground state of the Fermi-Hubbard model on an open chain.

    python examples/fermi_hubbard.py
    mpirun -n 4 python examples/fermi_hubbard.py

H = -t Σ (c†_is c_js + h.c.) + U Σ n_i↑ n_i↓ with three electrons of each spin on 6 sites. The electrons hop between
neighbours; in the order of the chain no hop changes a sign, and a network with real parameters is enough.
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import netket as nk
import numpy as np
from scipy.sparse.linalg import eigsh

STEPS = 150

graph = nk.graph.Chain(6, pbc=False)
hilbert = nk.hilbert.SpinOrbitalFermions(graph.n_nodes, s=1 / 2, n_fermions_per_spin=(3, 3))
hamiltonian = fk.operator.FermiHubbard(hilbert, graph, t=1.0, U=4.0)
state = nk.vqs.MCState(
    fk.sampler.MetropolisFermionHop(hilbert, graph=graph, n_chains=16, spin_symmetric=True),
    nk.models.RBM(alpha=2, param_dtype=float),
    n_samples=1008,
    seed=1,
    sampler_seed=2,
)
driver = fk.driver.VMC_SR(hamiltonian, nk.optimizer.Sgd(0.05), variational_state=state, diag_shift=0.01, mode="real")
log = nk.logging.RuntimeLog()
driver.run(STEPS, out=log, show_progress=False)

energy = np.mean(np.real(log.data["Energy"]["Mean"])[-20:])
exact = eigsh(hamiltonian.to_sparse(), k=1, which="SA")[0][0]
fk.distributed.print_once(f"energy {energy:.4f}, exact {exact:.4f}, relative error {abs(energy / exact - 1):.1e}")
