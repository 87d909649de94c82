"""Benchmarks made of named cases, of which some can be chosen."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ferroket import _lib
from ferroket.bench import progress
from ferroket.bench.report import Row
from ferroket.usage import UsageError

Chosen = str | Sequence[str] | None
"""The name of a case, or a part of the names of some, or several such texts; None for all."""


def run(found: Mapping[str, Callable[[str], Iterable[Row]]], *, cases: Chosen, batch: int | None) -> list[Row]:
    """Runs the cases that have a name, or a part of it.

    Args:
        found: all there are, by name; each is called with its name.
        cases: which; a whole name is that case alone. Upper and lower case are the same.
        batch: the number of samples that the cases are for; None where each has its own.

    Raises:
        UsageError: no case has such a name; the batch has no sample.
    """
    if batch is not None and batch < 1:
        raise UsageError(f"batch is {batch}: a batch has at least 1 sample")
    wanted: set[str] = set()
    for text in [cases or ""] if isinstance(cases, str | None) else cases:
        names = [name for name in found if name.lower() == text.lower()]
        names = names or [name for name in found if text.lower() in name.lower()]
        if not names:
            raise UsageError(f"no case has {text!r} in its name: there are {', '.join(found)}")
        wanted.update(names)
    chosen = {name: case for name, case in found.items() if name in wanted}
    _lib.keep_freed_memory()  # as in a rank of a job; NetKet's kernels profit as well
    rows = []
    for number, (name, case) in enumerate(chosen.items(), 1):
        progress.measuring(f"{name}, case {number} of {len(chosen)}")
        for row in case(name):
            progress.measured(str(row))
            rows.append(row)
    return rows
