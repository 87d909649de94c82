"""Times sampling by 16 chains on all ranks together.

Arguments: how many samples; the name of a case of ``ferroket.bench.states``.
"""

import statistics
import sys

import ferroket as fk
from ferroket.bench.jobs import report
from ferroket.bench.timing import seconds

CALLS, WARMUP = 40, 5


def main() -> None:
    """Measures, and reports {"call": seconds}."""
    info = fk.initialize()
    import jax
    import netket as nk

    from ferroket.bench.states import CASES, CHAINS, MORE

    n_samples, name = sys.argv[1:]
    case = (CASES | MORE)[name]
    sampler = case.sampler(fk.sampler, fk.accelerate(case.hamiltonian()), n_chains=CHAINS)
    state = nk.vqs.MCState(sampler, case.model(), n_samples=int(n_samples), seed=1, sampler_seed=2)
    times = [seconds(lambda: jax.block_until_ready(state.sample())) for _ in range(WARMUP + CALLS)]
    if info.rank == 0:
        report({"call": statistics.median(times[WARMUP:])})


if __name__ == "__main__":
    main()
