"""Measures what steps of VMC_SR and their parts cost.

Arguments: the name of a case of ``ferroket.bench.states``; "ferroket" or "netket"; how many samples; how many steps;
the settings of VMC_SR, as JSON.
"""

import json
import sys
from dataclasses import asdict

import ferroket as fk
from ferroket.bench.jobs import report

WARMUP = 2
# A measurement ends after so many seconds, but not before so many steps.
LONG, LEAST = 8.0, 2


def main() -> None:
    """Measures, and reports the costs of a step, of its parts and of the update alone, each the median of several.

    That is ``{part: {"seconds": ..., "cpu": ..., ...}}``, the fields of :class:`ferroket.bench.costs.Cost` over all
    ranks, and ``{"memory": bytes}``, the most that a rank has had.
    """
    info = fk.initialize()
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    from ferroket.bench.costs import Cost, Costs, of_steps, over_ranks, repeated
    from ferroket.bench.states import CASES, STEPS
    from ferroket.bench.updates import LastUpdate, calls_within, driver_of, wrapped
    from ferroket.bench.workers.memory import peak

    name, library, n_samples, most, options = sys.argv[1:]
    if library == "ferroket":
        fk.enable()
    state, operator = (CASES | STEPS)[name].state("netket", int(n_samples))
    if library == "ferroket" and name in CASES:
        assert fk.sampler.explain(state).path == "chains in Rust"
    driver = driver_of(state, operator, json.loads(options))
    costs, totals, last_update = Costs(), list[dict[str, Cost]](), LastUpdate()

    def callback(*_: object) -> bool:
        jax.block_until_ready(state.parameters)
        totals.append(costs.totals())
        return True

    with wrapped(last_update.noted), costs.of_parts():
        driver.run(WARMUP, callback=callback, show_progress=False)
        one = totals[-1]["step"].since(totals[-2]["step"]).seconds
        steps = calls_within(LONG, one, least=LEAST, most=int(most))
        totals.clear()
        callback()
        driver.run(steps, callback=callback, show_progress=False)
    found = of_steps(totals)
    found["update alone"] = repeated(last_update, lambda one: calls_within(LONG / 2, one, least=LEAST, most=int(most)))
    # Infinite numbers take another time.
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.parameters)):
        raise FloatingPointError(f"{name}: the parameters have become infinite")
    over_all = {part: asdict(over_ranks(cost)) for part, cost in found.items()}
    memory = int(np.max(multihost_utils.process_allgather(np.array(peak()))))
    if info.rank == 0:
        report({**over_all, "memory": memory})


if __name__ == "__main__":
    main()
