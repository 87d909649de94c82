"""Times a step of VMC_SR for the transverse-field Ising chain; argument: "ferroket" or "netket", the operator."""

import itertools
import statistics
import sys
import time

import ferroket as fk
from ferroket.bench.jobs import report

STEPS, WARMUP = 25, 5


def main() -> None:
    """Measures, and reports {"step": seconds}: 20 sites, RBM α=1, 1024 samples of 16 chains."""
    info = fk.initialize()
    import jax
    import netket as nk

    hilbert = nk.hilbert.Spin(s=1 / 2, N=20)
    ising = {"ferroket": fk.operator.Ising, "netket": nk.operator.IsingJax}[sys.argv[1]]
    state = nk.vqs.MCState(
        nk.sampler.MetropolisLocal(hilbert, n_chains=16),
        nk.models.RBM(alpha=1, param_dtype=float),
        n_samples=1024,
        seed=1,
        sampler_seed=2,
    )
    driver = nk.driver.VMC_SR(
        ising(hilbert, nk.graph.Chain(20), h=1.0, J=-1.0),
        nk.optimizer.Sgd(0.01),
        variational_state=state,
        diag_shift=1e-3,
    )
    ends = []

    def callback(*_: object) -> bool:
        jax.block_until_ready(state.parameters)
        ends.append(time.perf_counter())
        return True

    driver.run(WARMUP + STEPS, callback=callback, show_progress=False)
    steps = [end - start for start, end in itertools.pairwise(ends)]
    if info.rank == 0:
        report({"step": statistics.median(steps[WARMUP:])})


if __name__ == "__main__":
    main()
