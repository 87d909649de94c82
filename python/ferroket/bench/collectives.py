"""``ferroket bench collectives``: psum through JAX, over MPI, with the comparison of programs and without, and gloo."""

import statistics
from typing import Any

from ferroket.bench import jobs
from ferroket.bench.report import Report, Row

SIZES = {"4 B": 4, "4 KiB": 1 << 12, "512 KiB": 1 << 19, "16 MiB": 1 << 24}
# psum has to be this many times faster than over gloo, and may take this many times the time of its parts.
_BARS = {"4 B": 8.0, "4 KiB": 8.0, "16 MiB": 1.4}
_AT_MOST = {"4 B": 1.5, "4 KiB": 2.5, "16 MiB": 1.5}
PARTS = "mpi4py's allreduce + a jitted x+1"
UNCHECKED = "FERROKET_CHECK=off"
# Comparing programs may cost this much.
_CHECKED = {"4 B": 1.15}
_JOBS = {
    "mpi": {"FERROKET_COLLECTIVES": "mpi"},
    "gloo": {"FERROKET_COLLECTIVES": "gloo"},
    UNCHECKED: {"FERROKET_COLLECTIVES": "mpi", "FERROKET_CHECK": "off"},
}


def run(*, ranks: int = 2, rounds: int = 5) -> Report:
    """Runs MPI, gloo, and MPI without the comparison of programs in turns, each rank bound to cores of its own.

    Args:
        ranks: the number of processes.
        rounds: jobs of each kind; the median of their medians counts.
    """
    sizes = [str(size) for size in SIZES.values()]
    results: dict[str, list[Any]] = {name: [] for name in _JOBS}
    for _ in range(rounds):
        for name, env in _JOBS.items():
            results[name].append(jobs.run("psum", ranks, *sizes, env=env))

    def median(job: str, what: str, size: int) -> float:
        return statistics.median(result[what][str(size)] for result in results[job])

    jit = statistics.median(result["jit"] for result in results["mpi"])
    inside = statistics.median(result["overhead"] for result in results["mpi"])
    rows = []
    for name, size in SIZES.items():
        allreduce = median("mpi", "allreduce", size)
        seconds = {"MPI": median("mpi", "psum", size), "gloo": median("gloo", "psum", size), PARTS: allreduce + jit}
        seconds[UNCHECKED] = median(UNCHECKED, "psum", size)
        bars = {"gloo": _BARS[name], PARTS: 1 / _AT_MOST[name]} if name in _BARS else {}
        bars |= {UNCHECKED: 1 / _CHECKED[name]} if name in _CHECKED else {}
        limits = {"mpi4py's allreduce": allreduce, "a jitted x+1": jit, "inside the wrapper": inside}
        rows.append(Row(f"psum of {name}", seconds, limits, bars))
    return Report(f"psum over {ranks} ranks, float32", "MPI", rows, {"ranks": ranks, "rounds": rounds})
