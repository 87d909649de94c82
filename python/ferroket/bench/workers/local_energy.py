"""Times local energies on the samples of all ranks, Heisenberg 10×10.

Arguments: how many samples; the model, ``RBM`` of α=4 or one of the networks of ``ferroket.bench.models``.
"""

import statistics
import sys
from functools import partial

import ferroket as fk
from ferroket.bench.jobs import report
from ferroket.bench.timing import seconds

CALLS, WARMUP = 100, 10


def main() -> None:
    """Measures, and reports {"call": seconds}."""
    info = fk.initialize()
    import jax
    import netket as nk

    from ferroket._compat.netket import log_psi_of
    from ferroket.bench.hamiltonians import SPINS, heisenberg
    from ferroket.bench.models import networks

    n_samples, name = sys.argv[1:]
    model = nk.models.RBM(alpha=4) if name == "RBM" else networks(SPINS, 1)[name]
    operator = fk.accelerate(heisenberg(total_sz=0))
    sampler = nk.sampler.MetropolisExchange(operator.hilbert, graph=nk.graph.Square(10), n_chains=16, dtype="int8")
    state = nk.vqs.MCState(sampler, model, n_samples=int(n_samples), seed=1, sampler_seed=2)
    kernel = jax.jit(partial(nk.vqs.get_local_kernel(state, operator), log_psi_of(state)))
    samples = state.samples.reshape(-1, operator.hilbert.size)

    def call() -> None:
        jax.block_until_ready(kernel(state.variables, samples, operator))

    times = [seconds(call) for _ in range(WARMUP + CALLS)]
    if info.rank == 0:
        report({"call": statistics.median(times[WARMUP:])})


if __name__ == "__main__":
    main()
