"""``ferroket bench collectives``: psum through JAX, over MPI, with the comparison of programs and without, and gloo."""

import statistics
from typing import Any

from ferroket.bench import jobs
from ferroket.bench.report import Report, Row, time_text

SIZES = {"4 B": 4, "4 KiB": 1 << 12, "512 KiB": 1 << 19, "16 MiB": 1 << 24}
# psum has to be this many times faster than over gloo, and may take this many times the time of its parts.
_BARS = {"4 B": 8.0, "4 KiB": 8.0, "16 MiB": 1.4}
_AT_MOST = {"4 B": 1.5, "4 KiB": 2.5, "16 MiB": 1.5}
PARTS = "mpi4py's allreduce + a jitted x+1"
UNCHECKED = "FERROKET_CHECK=off"
# Comparing programs may cost this much.
_CHECKED = {"4 B": 1.15}
_MPI, _GLOO = {"FERROKET_COLLECTIVES": "mpi"}, {"FERROKET_COLLECTIVES": "gloo"}
# Gloo's own thread polls. On one core the thread that waits for it gets the core back at the next tick of the kernel's
# clock, often 4 ms later; on all cores a rank takes those of others.
_GLOOS = ("gloo, bound", "gloo, not bound")
_JOBS = {
    "mpi": _MPI,
    **dict(zip(_GLOOS, (_GLOO, _GLOO | {"FERROKET_BIND": "none"}), strict=True)),
    UNCHECKED: _MPI | {"FERROKET_CHECK": "off"},
}


def run(*, ranks: int = 2, rounds: int = 5) -> Report:
    """Runs MPI, gloo, and MPI without the comparison of programs in turns.

    Each rank is bound to cores of its own. Gloo runs without that, too, and for each size the faster of the two counts.

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
        gloos = {which: median(which, "psum", size) for which in _GLOOS}
        seconds = {"MPI": median("mpi", "psum", size), "gloo": min(gloos.values()), PARTS: allreduce + jit}
        seconds[UNCHECKED] = median(UNCHECKED, "psum", size)
        bars = {"gloo": _BARS[name], PARTS: 1 / _AT_MOST[name]} if name in _BARS else {}
        bars |= {UNCHECKED: 1 / _CHECKED[name]} if name in _CHECKED else {}
        limits = {"mpi4py's allreduce": allreduce, "a jitted x+1": jit, "inside the wrapper": inside}
        notes = {which: time_text(time) for which, time in gloos.items()}
        rows.append(Row(f"psum of {name}", seconds, limits, bars, notes))
    return Report(f"psum over {ranks} ranks, float32", "MPI", rows, {"ranks": ranks, "rounds": rounds})
