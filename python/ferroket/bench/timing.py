"""Timing that a shared machine can't fool: contenders take turns, and medians are compared."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ferroket import _lib
from ferroket.distributed import affinity

T = TypeVar("T")


def paired(
    contenders: Mapping[str, Callable[[], Any]], *, rounds: int = 9, warmup: int = 4, at_least: float = 0.1
) -> dict[str, float]:
    """Times functions in turns.

    A function has its turn in one piece, and each call counts by itself: after the turn of the others its caches are
    cold, and a virtual machine takes long over the first touch of memory that was free for a second. The median leaves
    that out.

    Args:
        contenders: functions by name, that return when their work is done (not when it is queued).
        rounds: how many turns each has.
        warmup: calls of each before anything is counted, for compilation and caches.
        at_least: seconds of one turn; a faster function is called as often as that takes, and three times at least,
            unless one call takes long.

    Returns:
        The median time of a call, in seconds, by name.
    """
    repeats = {}
    for name, call in contenders.items():
        fastest = min(seconds(call) for _ in range(max(warmup, 1)))
        repeats[name] = max(3 if fastest < 1 / 3 else 1, round(at_least / max(fastest, 1e-9)))
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            measured[name].extend(seconds(call) for _ in range(repeats[name]))
    return {name: statistics.median(times) for name, times in measured.items()}


def seconds(call: Callable[[], Any]) -> float:
    """The time of a call, in seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def on_cores(call: Callable[[], T], count: int) -> T:
    """Calls a function while the process, and what it starts, may only use the first of its cores.

    Args:
        call: the function.
        count: so many; all where there are fewer.
    """
    allowed = affinity.allowed()
    affinity.bind(allowed[:count])
    try:
        return call()
    finally:
        affinity.bind(allowed)


def peak_rate(rounds: int) -> float:
    """How many products and sums of 64-bit numbers one core computes in a second: the most that several tries give."""
    return max(on_cores(lambda: [_lib.fma_rate() for _ in range(rounds)], 1))
