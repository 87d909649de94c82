"""``ferroket bench startup``: how long a rank takes to be ready, and a NetKet script to do its first step.

The first is compared with importing JAX alone, the second with the same script without the cache of compiled programs.
"""

import statistics
import tempfile

from ferroket.bench import jobs
from ferroket.bench.report import Report, Row

OURS, JAX = "ferroket", "import jax alone"
NO_CACHE = "FERROKET_CACHE=off"


def run(*, ranks: int = 8, rounds: int = 5) -> Report:
    """Starts jobs of all kinds in turns.

    Args:
        ranks: the number of processes.
        rounds: jobs of each kind; the medians count.
    """
    rows = [_ready(ranks, rounds), _first_step(ranks, rounds)]
    return Report("start-up under mpirun", OURS, rows, {"ranks": ranks, "rounds": rounds})


def _ready(ranks: int, rounds: int) -> Row:
    times: dict[str, list[float]] = {OURS: [], JAX: []}
    for _ in range(rounds):
        times[OURS].append(jobs.run("startup", ranks, "initialize")["ready"])
        times[JAX].append(jobs.run("startup", ranks, "import")["ready"])
    seconds = {name: statistics.median(values) for name, values in times.items()}
    return Row(f"{ranks} ranks ready", seconds, limits={"difference (at most 2 s)": seconds[OURS] - seconds[JAX]})


def _first_step(ranks: int, rounds: int) -> Row:
    times: dict[str, list[float]] = {OURS: [], NO_CACHE: []}
    cold: list[float] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(_time(ranks, cache))
            times[OURS].append(_time(ranks, cache))
        times[NO_CACHE].append(_time(ranks, "off"))
    return Row(
        f"{ranks} ranks, first step of the second run",
        {name: statistics.median(values) for name, values in times.items()},
        limits={"first run": statistics.median(cold)},
        bars={NO_CACHE: 2.0},
    )


def _time(ranks: int, cache: str) -> float:
    return float(jobs.run("first_step", ranks, env={"FERROKET_CACHE": cache})["first step"])
