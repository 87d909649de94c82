"""Benchmarks made of named cases, of which some can be chosen."""

from collections.abc import Callable, Iterable, Mapping

from ferroket import _lib
from ferroket.bench import progress
from ferroket.bench.report import Row
from ferroket.usage import UsageError


def run(found: Mapping[str, Callable[[str], Iterable[Row]]], *, cases: str, batch: int | None) -> list[Row]:
    """Runs the cases whose names contain a text.

    Args:
        found: all there are, by name; each is called with its name.
        cases: the text; upper and lower case are the same.
        batch: the number of samples that the cases are for; None where each has its own.

    Raises:
        UsageError: no case has such a name; the batch has no sample.
    """
    if batch is not None and batch < 1:
        raise UsageError(f"batch is {batch}: a batch has at least 1 sample")
    chosen = {name: case for name, case in found.items() if cases.lower() in name.lower()}
    if not chosen:
        raise UsageError(f"no case has {cases!r} in its name: there are {', '.join(found)}")
    _lib.keep_freed_memory()  # as in a rank of a job; NetKet's kernels profit as well
    rows = []
    for number, (name, case) in enumerate(chosen.items(), 1):
        progress.measuring(f"{name}, case {number} of {len(chosen)}")
        for row in case(name):
            progress.measured(str(row))
            rows.append(row)
    return rows
