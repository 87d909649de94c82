"""Times steps of VMC_SR and their parts.

Arguments: the name of a case of ``ferroket.bench.states``; "ferroket" or "netket"; how many samples; how many steps;
the settings of VMC_SR, as JSON.
"""

import itertools
import json
import statistics
import sys
import time
from collections import defaultdict
from functools import partial
from typing import Any

import ferroket as fk
from ferroket.bench.jobs import report
from ferroket.bench.timing import repeated

WARMUP = 2
# A measurement ends after so many seconds, but not before so many steps.
LONG, LEAST = 8.0, 2
_UPDATE = "ferroket.bench: update"


def main() -> None:
    """Measures, and reports the seconds of a step, of its parts and of the update alone, each the median of several."""
    info = fk.initialize()
    import jax
    from netket.utils import timing

    from ferroket._compat.netket import STEP_TIMERS
    from ferroket.bench.states import CASES, STEPS
    from ferroket.bench.updates import LastUpdate, Update, calls_within, driver_of, wrapped

    name, library, n_samples, most, options = sys.argv[1:]
    if library == "ferroket":
        fk.enable()
    state, operator = (CASES | STEPS)[name].state("netket", int(n_samples))
    if library == "ferroket" and name in CASES:
        assert fk.sampler.explain(state).path == "chains in Rust"
    driver = driver_of(state, operator, json.loads(options))
    ends: list[dict[str, float]] = []
    last_update = LastUpdate()

    def timed(update: Update) -> Update:
        return timing.timed(last_update.noted(update), name=_UPDATE)

    def callback(*_: object) -> bool:
        jax.block_until_ready(state.parameters)
        ends.append({**totals(timer), "step": time.perf_counter()})
        return True

    # In this scope NetKet waits for the result of each part.
    with timing.timed_scope(force=True) as timer, wrapped(timed):
        driver.run(WARMUP, callback=callback, show_progress=False)
        steps = calls_within(LONG, ends[-1]["step"] - ends[-2]["step"], least=LEAST, most=int(most))
        ends.clear()
        callback()
        driver.run(steps, callback=callback, show_progress=False)

    found: dict[str, list[float]] = {part: [] for part in ("step", "sampling", "local energy", "update", "rest")}
    for before, after in itertools.pairwise(ends):
        step, sampling, local_energy, update = (after[it] - before[it] for it in ("step", *STEP_TIMERS, _UPDATE))
        # Samples are drawn when they are first needed, which is for the local energies.
        parts = (step, sampling, local_energy - sampling, update, step - local_energy - update)
        for part, took in zip(found, parts, strict=True):
            found[part].append(took)
    medians = {part: statistics.median(times) for part, times in found.items()}
    times = partial(calls_within, LONG / 2, least=LEAST, most=int(most))
    medians["update alone"] = repeated(last_update, times)
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
