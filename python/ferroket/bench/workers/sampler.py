"""Times sampling by 16 chains on all ranks together, Heisenberg 10×10, RBM of α=1; argument: how many samples."""

import statistics
import sys

import ferroket as fk
from ferroket.bench.jobs import report
from ferroket.bench.timing import seconds

CHAINS = 16
CALLS, WARMUP = 40, 5


def main() -> None:
    """Measures, and reports {"call": seconds}."""
    info = fk.initialize()
    import jax
    import netket as nk

    from ferroket.bench.hamiltonians import SPINS, heisenberg

    hilbert = heisenberg(total_sz=0).hilbert
    sampler = fk.sampler.MetropolisExchange(hilbert, graph=nk.graph.Grid(SPINS, pbc=True), n_chains=CHAINS)
    model = nk.models.RBM(alpha=1, param_dtype=float)
    state = nk.vqs.MCState(sampler, model, n_samples=int(sys.argv[1]), seed=1, sampler_seed=2)
    times = [seconds(lambda: jax.block_until_ready(state.sample())) for _ in range(WARMUP + CALLS)]
    if info.rank == 0:
        report({"call": statistics.median(times[WARMUP:])})


if __name__ == "__main__":
    main()
