"""Times local energies or sampling of determinants beside NetKet's.

Arguments: ``local-energy`` or ``sampler``; the name of a case of ``ferroket.bench.states``; how many samples; how many
rounds.
"""

import sys
from functools import partial

import ferroket as fk
from ferroket.bench.jobs import report


def main() -> None:
    """Measures, and reports {contender: seconds}."""
    fk.initialize()
    from ferroket.bench import local_energy, sampler
    from ferroket.bench.states import DETERMINANTS

    benchmark, name, batch, rounds = sys.argv[1:]
    case, _ = DETERMINANTS[name]
    if benchmark == "sampler":
        report(sampler.times_of(case, int(batch), int(rounds)))
    else:
        # Configurations at random may be such where ψ nearly vanishes: there nobody's local energies are exact.
        times_of = partial(local_energy.times_of, tolerance=1e-6, chunk_sizes=local_energy.DETERMINANT_CHUNK_SIZES)
        theirs = case.netkets and case.netkets()
        report(times_of(case.hamiltonian(), case.model(), int(batch), int(rounds), netkets=theirs))


if __name__ == "__main__":
    main()
