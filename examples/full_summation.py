"""Ground state of the transverse-field Ising chain, without sampling: sums over all configurations.

python examples/full_summation.py
mpirun -n 4 python examples/full_summation.py
"""

import ferroket as fk

fk.initialize()  # before jax and netket are imported

import netket as nk
import numpy as np

L, STEPS = 12, 200

hilbert = nk.hilbert.Spin(s=1 / 2, N=L)
hamiltonian = fk.operator.Ising(hilbert, nk.graph.Chain(L), h=1.0, J=-1.0)
state = nk.vqs.FullSumState(hilbert, nk.models.RBM(alpha=1, param_dtype=float), seed=1)
driver = nk.driver.VMC(
    hamiltonian,
    nk.optimizer.Sgd(0.05),
    variational_state=state,
    preconditioner=nk.optimizer.SR(diag_shift=1e-3),
)
driver.run(STEPS, out=None, show_progress=False)

# All ranks compute the energy, rank 0 prints it.
expected = state.expect(hamiltonian)
energy, variance = expected.mean.real, expected.variance
exact = -2 / np.sin(np.pi / (2 * L))
fk.distributed.print_once(
    f"energy {energy:.10f}, variance {variance:.4f}, exact {exact:.10f}, relative error {abs(energy / exact - 1):.1e}"
)
