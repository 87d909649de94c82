"""Times a NetKet script from the start of its process to the end of its first step."""

import time

import psutil

import ferroket as fk
from ferroket.bench.jobs import report


def main() -> None:
    """Measures, and reports {"first step": seconds} of rank 0: 20 spins, RBM α=1, 1024 samples of 16 chains."""
    info = fk.initialize()
    import jax
    import netket as nk

    fk.enable()  # as `ferroket run` does it
    hilbert = nk.hilbert.Spin(s=1 / 2, N=20)
    state = nk.vqs.MCState(
        nk.sampler.MetropolisLocal(hilbert, n_chains=16),
        nk.models.RBM(alpha=1, param_dtype=float),
        n_samples=1024,
        seed=1,
        sampler_seed=2,
    )
    driver = nk.driver.VMC_SR(
        nk.operator.IsingJax(hilbert, nk.graph.Chain(20), h=1.0, J=-1.0),
        nk.optimizer.Sgd(0.01),
        variational_state=state,
        diag_shift=1e-3,
    )
    driver.run(1, show_progress=False)
    jax.block_until_ready(state.parameters)
    if info.rank == 0:
        report({"first step": time.time() - psutil.Process().create_time()})


if __name__ == "__main__":
    main()
