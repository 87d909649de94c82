"""``ferroket bench oversubscription``: a VMC step of more ranks than cores, by what is set for binding and waiting."""

import statistics

from ferroket.bench import jobs
from ferroket.bench.report import Report, Row

OURS = "ferroket's choice"
# All that a user can set by hand.
SETTINGS: dict[str, dict[str, str]] = {
    OURS: {},
    "bound, spinning": {"FERROKET_YIELD": "never"},
    "bound, yielding": {"FERROKET_YIELD": "always"},
    "not bound, spinning": {"FERROKET_BIND": "none", "FERROKET_YIELD": "never"},
    "not bound, yielding": {"FERROKET_BIND": "none", "FERROKET_YIELD": "always"},
}
_BAR = 1 / 1.5


def run(*, ranks: int = 8, rounds: int = 3) -> Report:
    """Runs all settings in turns.

    Args:
        ranks: the number of processes, more than this machine has cores.
        rounds: jobs of each kind; the median of their medians counts.
    """
    steps: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(rounds):
        for name, variables in SETTINGS.items():
            steps[name].append(jobs.run("vmc", ranks, "ferroket", env=variables)["step"])
    row = Row(
        "VMC_SR step, TFIM 20, RBM, 1024 samples",
        {name: statistics.median(times) for name, times in steps.items()},
        bars=dict.fromkeys([name for name in SETTINGS if name != OURS], _BAR),
    )
    return Report(f"{ranks} ranks that share cores", OURS, [row], {"ranks": ranks, "rounds": rounds})
