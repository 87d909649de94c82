"""Times steps of VMC_SR and their parts.

Arguments: the name of a case of ``ferroket.bench.states``; "ferroket" or "netket"; how many samples; how many steps.
"""

import itertools
import statistics
import sys
import time
from collections import defaultdict
from typing import Any

import ferroket as fk
from ferroket.bench.jobs import report
from ferroket.bench.timing import seconds

WARMUP = 2
# A measurement ends after so many seconds, but not before so many steps.
LONG, LEAST = 8.0, 2


def main() -> None:
    """Measures, and reports the seconds of a step and of its parts, by name, each the median of several."""
    info = fk.initialize()
    import jax
    import netket as nk
    from netket.utils import timing

    from ferroket._compat.netket import STEP_TIMERS, log_psi_of
    from ferroket.bench.states import CASES, Library

    name, library, n_samples, steps = sys.argv[1:]
    which: Library = "ferroket" if library == "ferroket" else "netket"
    state, operator = CASES[name].state(which, int(n_samples))
    # With the Jacobian as a matrix, which is faster where memory has room for it.
    driver = nk.driver.VMC_SR(
        operator, nk.optimizer.Sgd(1e-4), variational_state=state, diag_shift=1e-2, on_the_fly=False
    )
    ends: list[dict[str, float]] = []

    def callback(*_: object) -> bool:
        jax.block_until_ready(state.parameters)
        ends.append({**totals(timer), "step": time.perf_counter()})
        return len(ends) <= WARMUP + LEAST or ends[-1]["step"] - ends[WARMUP]["step"] < LONG

    # In this scope NetKet waits for the result of each part.
    with timing.timed_scope(force=True) as timer:
        driver.run(WARMUP + int(steps) + 1, callback=callback, show_progress=False)

    found: dict[str, list[float]] = {part: [] for part in ("step", "sampling", "local energy", "update", "rest")}
    for before, after in itertools.pairwise(ends[WARMUP:]):
        step, sampling, local_energy, update = (after[timed] - before[timed] for timed in ("step", *STEP_TIMERS))
        # Samples are drawn when they are first needed, which is for the local energies.
        parts = (step, sampling, local_energy - sampling, update, step - local_energy - update)
        for part, took in zip(found, parts, strict=True):
            found[part].append(took)
    medians = {part: statistics.median(times) for part, times in found.items()}

    @jax.jit
    def jacobian(parameters: Any, samples: Any) -> Any:
        samples = samples.reshape(-1, samples.shape[-1])
        options = {"mode": driver.mode, "dense": True, "center": True}
        return nk.jax.jacobian(log_psi_of(state), parameters, samples, state.model_state, **options)

    call = lambda: jax.block_until_ready(jacobian(state.parameters, state.samples))  # noqa: E731
    of_jacobian = statistics.median([seconds(call) for _ in range(WARMUP + len(ends))][WARMUP:])
    medians |= {"Jacobian": of_jacobian, "solve": medians.pop("update") - of_jacobian}
    if info.rank == 0:
        report(medians)


def totals(timer: Any) -> dict[str, float]:
    """The seconds of all timers within a timer of NetKet's, by name."""
    found: dict[str, float] = defaultdict(float)
    for name, inner in timer.sub_timers.items():
        found[name] += inner.total
        for inner_name, total in totals(inner).items():
            found[inner_name] += total
    return found


if __name__ == "__main__":
    main()
