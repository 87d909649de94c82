"""``ferroket bench startup``: how long a rank takes to be ready, beside importing JAX alone."""

import statistics

from ferroket.bench import jobs
from ferroket.bench.report import Report, Row

OURS, JAX = "fk.initialize()", "import jax alone"


def run(*, ranks: int = 8, rounds: int = 5) -> Report:
    """Starts jobs of both kinds in turns.

    Args:
        ranks: the number of processes.
        rounds: jobs of each kind; the medians count.
    """
    times: dict[str, list[float]] = {OURS: [], JAX: []}
    for _ in range(rounds):
        times[OURS].append(jobs.run("startup", ranks, "initialize")["ready"])
        times[JAX].append(jobs.run("startup", ranks, "import")["ready"])
    seconds = {name: statistics.median(values) for name, values in times.items()}
    row = Row(f"{ranks} ranks ready", seconds, limits={"difference (at most 2 s)": seconds[OURS] - seconds[JAX]})
    return Report("start-up under mpirun", OURS, [row], {"ranks": ranks, "rounds": rounds})
