"""``ferroket bench collectives``: psum through JAX, over MPI and over gloo."""

import statistics
from typing import Any

from ferroket.bench import jobs
from ferroket.bench.report import Report, Row

SIZES = {"4 B": 4, "4 KiB": 1 << 12, "512 KiB": 1 << 19, "16 MiB": 1 << 24}
# psum has to be this many times faster than over gloo, and may take this many times the time of its parts.
_BARS = {"4 B": 8.0, "4 KiB": 8.0, "16 MiB": 1.4}
_AT_MOST = {"4 B": 1.5, "4 KiB": 2.5, "16 MiB": 1.5}
PARTS = "mpi4py's allreduce + a jitted x+1"


def run(*, ranks: int = 2, rounds: int = 5) -> Report:
    """Runs MPI and gloo in turns, each rank bound to cores of its own.

    Args:
        ranks: the number of processes.
        rounds: jobs of each kind; the median of their medians counts.
    """
    sizes = [str(size) for size in SIZES.values()]
    results: dict[str, list[Any]] = {"mpi": [], "gloo": []}
    for _ in range(rounds):
        for collectives, jobs_done in results.items():
            jobs_done.append(jobs.run("psum", ranks, *sizes, env={"FERROKET_COLLECTIVES": collectives}))

    def median(collectives: str, what: str, size: int) -> float:
        return statistics.median(result[what][str(size)] for result in results[collectives])

    jit = statistics.median(result["jit"] for result in results["mpi"])
    inside = statistics.median(result["overhead"] for result in results["mpi"])
    rows = []
    for name, size in SIZES.items():
        allreduce = median("mpi", "allreduce", size)
        seconds = {"MPI": median("mpi", "psum", size), "gloo": median("gloo", "psum", size), PARTS: allreduce + jit}
        bars = {"gloo": _BARS[name], PARTS: 1 / _AT_MOST[name]} if name in _BARS else {}
        limits = {"mpi4py's allreduce": allreduce, "a jitted x+1": jit, "inside the wrapper": inside}
        rows.append(Row(f"psum of {name}", seconds, limits, bars))
    return Report(f"psum over {ranks} ranks, float32", "MPI", rows, {"ranks": ranks, "rounds": rounds})
