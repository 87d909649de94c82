"""``ferroket bench binding``: a VMC step, with the ranks bound by us, by the launcher, and by nobody."""

import statistics

from ferroket.bench import jobs
from ferroket.bench.report import Report, Row

OURS, LAUNCHER, NOBODY = "ferroket binds", "launcher binds", "nobody binds"


def run(*, ranks: int = 2, rounds: int = 3) -> Report:
    """Runs the three ways of binding in turns.

    "nobody binds" is what a NetKet user has today: MPI collectives, ranks on all cores, NetKet's own operator.

    Args:
        ranks: the number of processes.
        rounds: jobs of each kind; the median of their medians counts.
    """
    steps: dict[str, list[float]] = {OURS: [], LAUNCHER: [], NOBODY: []}
    for _ in range(rounds):
        steps[OURS].append(jobs.run("vmc", ranks, "ferroket")["step"])
        steps[LAUNCHER].append(jobs.run("vmc", ranks, "ferroket", binding="core")["step"])
        steps[NOBODY].append(jobs.run("vmc", ranks, "netket", binding="none", env={"FERROKET_BIND": "none"})["step"])
    row = Row(
        "VMC_SR step, TFIM 20, RBM, 1024 samples",
        {name: statistics.median(times) for name, times in steps.items()},
        bars={LAUNCHER: 1 / 1.1, NOBODY: 4.0},
    )
    return Report(f"binding to cores, {ranks} ranks", OURS, [row], {"ranks": ranks, "rounds": rounds})
