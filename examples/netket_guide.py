"""The script of NetKet's guides to parallel computing. It doesn't know of Ferroket, and runs in four ways.

    ferroket launch -n 1 --collectives gloo examples/netket_guide.py   # one process
    ferroket launch -n 4 --collectives gloo examples/netket_guide.py   # JAX's own collectives, without MPI
    mpirun -n 4 ferroket run --no-accelerate examples/netket_guide.py  # over MPI, with NetKet's own kernels
    mpirun -n 4 ferroket run examples/netket_guide.py                  # over MPI, with Ferroket's

Where there are GPUs the first is sharded over all that are visible: `CUDA_VISIBLE_DEVICES=0,2` chooses two of a node's.
"""

import jax

jax.distributed.initialize()

import netket as nk

print(
    f"[{jax.process_index()}/{jax.process_count()}] {jax.device_count()} devices, {jax.local_device_count()} here",
    flush=True,
)

L = 20
graph = nk.graph.Hypercube(length=L, n_dim=1, pbc=True)
hilbert = nk.hilbert.Spin(s=1 / 2, N=graph.n_nodes)
hamiltonian = nk.operator.Ising(hilbert=hilbert, graph=graph, h=1.0)
state = nk.vqs.MCState(
    nk.sampler.MetropolisLocal(hilbert, n_chains=16),
    nk.models.RBM(alpha=1),
    n_samples=1024,
    seed=1,
    sampler_seed=2,
)
driver = nk.driver.VMC(hamiltonian, nk.optimizer.Sgd(learning_rate=0.01), variational_state=state)
log = nk.logging.RuntimeLog()
driver.run(n_iter=100, out=log, show_progress=False)

# A computation of all ranks: outside of the condition.
energy = state.expect(hamiltonian)
if jax.process_index() == 0:
    print(f"energy {energy.mean.real:.10f} ± {energy.error_of_mean:.3f}", flush=True)
