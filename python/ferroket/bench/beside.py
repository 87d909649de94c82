"""Comparisons of our own code with itself on fewer cores or ranks."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from ferroket.bench import jobs
from ferroket.bench.report import Row
from ferroket.bench.timing import on_cores, paired

ONE_CORE, ONE_RANK = "one core", "one rank"


def all_cores(name: str, ours: str, call: Callable[[], Any], *, rounds: int, bar: float | None = None) -> Row:
    """A function on all cores that the process may use, compared with one core."""
    times = paired({ours: call, ONE_CORE: partial(on_cores, call, 1)}, rounds=rounds)
    return Row(name, times, bars={} if bar is None else {ONE_CORE: bar})


def two_ranks(name: str, ours: str, worker: str, *arguments: str, rounds: int, bar: float) -> Row:
    """A worker of :mod:`ferroket.bench.workers` that reports its ``call``: two ranks compared with one on one core."""
    times: dict[str, list[float]] = {ours: [], ONE_RANK: []}

    def measure(contender: str, ranks: int) -> None:
        times[contender].append(jobs.run(worker, ranks, *arguments)["call"])

    for _ in range(min(rounds, 3)):
        measure(ours, 2)
        on_cores(partial(measure, ONE_RANK, 1), 1)
    return Row(name, {contender: median(measured) for contender, measured in times.items()}, bars={ONE_RANK: bar})
