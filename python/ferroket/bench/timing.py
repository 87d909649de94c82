"""Timing that a shared machine can't fool: contenders take turns, and medians are compared."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def paired(
    contenders: Mapping[str, Callable[[], Any]], *, rounds: int = 9, warmup: int = 2, at_least: float = 0.02
) -> dict[str, float]:
    """Times functions in turns.

    Args:
        contenders: functions by name, that return when their work is done (not when it is queued).
        rounds: how many times each is measured.
        warmup: calls of each before anything is counted, for compilation and caches.
        at_least: seconds of one measurement; a faster function is called as often as that takes.

    Returns:
        The median time of a call, in seconds, by name.
    """
    repeats = {}
    for name, call in contenders.items():
        for _ in range(warmup):
            call()
        repeats[name] = max(1, round(at_least / max(seconds(call), 1e-9)))
    measured: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            measured[name].append(seconds(call, repeats[name]))
    return {name: statistics.median(times) for name, times in measured.items()}


def seconds(call: Callable[[], Any], repeats: int = 1) -> float:
    """The mean time of a call over `repeats` of them, in seconds."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
