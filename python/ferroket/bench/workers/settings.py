"""Times NetKet's update of VMC_SR in each of its settings.

Arguments: the name of a case of ``ferroket.bench.states``; how many samples; how many calls of each.
"""

import sys
from functools import partial

import ferroket as fk
from ferroket.bench.jobs import report

# A measurement ends after so many seconds, but not before so many calls.
LONG, LEAST = 4.0, 1


def main() -> None:
    """Measures, and reports ``[{"options": those of VMC_SR, "seconds": the median of several updates}, …]``."""
    info = fk.initialize()

    from ferroket.bench.costs import repeated
    from ferroket.bench.states import CASES, STEPS
    from ferroket.bench.updates import calls_within, driver_of, last_update, settings_for

    name, n_samples, most = sys.argv[1:]
    # Samples and local energies are ours: it's the update that differs.
    state, operator = (CASES | STEPS)[name].state("ferroket", int(n_samples))
    times = partial(calls_within, LONG, least=LEAST, most=int(most))
    found = [
        {"options": options, "seconds": repeated(last_update(driver_of(state, operator, options)), times).seconds}
        for options in settings_for(state.n_parameters)
    ]
    if info.rank == 0:
        report(found)


if __name__ == "__main__":
    main()
