"""Measures by how much the peak of memory grows in updates of VMC_SR.

Arguments: the name of a case of ``ferroket.bench.states``; "ferroket" or "netket"; how many samples; the settings of
VMC_SR, as JSON.
"""

import json
import resource
import sys
from typing import Any

import ferroket as fk
from ferroket.bench.jobs import report

STEPS_DONE = 2
_UNIT = 1 if sys.platform == "darwin" else 1024


def main() -> None:
    """Measures, and reports ``{"bytes": the growth in all updates together}``, with compilation.

    Samples and local energies are ours in both cases, whose memory is that of a few chunks. NetKet's local energies
    would leave a peak so high that its update stays below.
    """
    info = fk.initialize()
    import jax

    from ferroket.bench.states import CASES, STEPS
    from ferroket.bench.updates import Update, driver_of, wrapped

    name, library, n_samples, options = sys.argv[1:]
    if library == "ferroket":
        fk.enable()
    state, operator = (CASES | STEPS)[name].state("ferroket", int(n_samples))
    growth: list[int] = []

    def measured(update: Update) -> Update:
        def call(*arguments: Any, **keywords: Any) -> Any:
            jax.block_until_ready((arguments, keywords))
            before = peak()
            result = jax.block_until_ready(update(*arguments, **keywords))
            growth.append(peak() - before)
            return result

        return call

    with wrapped(measured):
        driver_of(state, operator, json.loads(options)).run(STEPS_DONE, show_progress=False)
    if info.rank == 0:
        report({"bytes": sum(growth)})


def peak() -> int:
    """The most memory that the process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


if __name__ == "__main__":
    main()
