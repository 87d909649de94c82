"""Finds ranks that wait for each other for ever, says where each rank is, and ends the job.

One rank enters a collective that others don't: it waits for ever. Each rank looks at itself a few times a second, and
while it makes no progress leaves a report in the store of JAX's coordinator; a job that moves leaves none. Rank 0 reads
the reports. A deadlock is a cycle: each rank of it waits in a call for which another one of it won't come. What no
cycle explains, as a rank that sleeps, ends the job only after a long time without any progress.

Reports are short and rare: a rank's stack is sent when rank 0 asks for it, and the more ranks there are, and the longer
they wait, the less often each reports, so that thousands that wait for one rank don't keep it from its work.
"""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ferroket._compat.jax import coordination_client
from ferroket.distributed.failure import abort_job
from ferroket.distributed.places import describe_ranks, group_by
from ferroket.distributed.progress import Progress, digest, failed_threads, may_act, python_stacks

# Seconds between two looks of a rank at itself, until it reports that it is stuck, and after which a cycle is one.
_PERIOD = 0.25
_REPORT_AFTER = 0.75
_CERTAIN_AFTER = 1.5
# Reports a second that all ranks together send, each with a question whether rank 0 asks for the stack, and the longest
# that a rank waits between two.
_RATE = 45.0
_LONGEST = 30.0
# A rank that has been stuck for long may report less often: after so much of that time.
_PATIENCE = 0.1
# Seconds between two looks that something else than this rank explains.
_GAP = 8 * _PERIOD

_FOLDER = "ferroket/watchdog/"
_ASKED = "ferroket/watchdog-asked/"

# Of so many places the stacks are shown.
_SHOWN_PLACES = 8


@dataclass(frozen=True)
class Report:
    """A rank that makes no progress.

    Attributes:
        calls: the calls of MPI that it is in, oldest first.
        finished: whether its script has ended.
        may_act: whether a thread of it may still do something by itself.
        stuck: for how long, in seconds.
        place: a short name for where its Python code is.
        stack: its Python stack, if rank 0 has asked for it.
        failed: threads of it that have ended by exceptions.
    """

    calls: tuple[str, ...]
    finished: bool
    may_act: bool
    stuck: float
    place: str
    stack: str = ""
    failed: str = ""

    def goes_on_from(self, before: "Report") -> bool:
        """Whether a rank says again that it is in the same place, and hasn't left it."""
        return (self.calls, self.finished) == (before.calls, before.finished) and self.stuck >= before.stuck

    def where(self, *, several: bool = False) -> str:
        """What the rank does, or several ranks do, for the message."""
        if self.calls:
            text = f"{'wait' if several else 'waits'} in {', and in '.join(self.calls)}"
        elif self.finished:
            text = "have ended their scripts" if several else "has ended its script"
        else:
            text = f"{'are' if several else 'is'} in no collective, and idle"
        return f"{text} ({self.failed})" if self.failed else text


class Watchdog:
    """Watches this rank in a thread of its own, from ``start`` to ``stop``.

    Args:
        rank: this rank.
        hosts: the host of each rank.
        limit: seconds without any progress of the job after which it is ended, at least while some rank waits in a
            collective. Where ranks wait for each other in a cycle, it ends after a few seconds.
    """

    def __init__(self, rank: int, hosts: list[str], limit: float) -> None:
        self._rank = rank
        self._hosts = hosts
        self._limit = limit
        self._finished = False
        self._renewed: dict[int, tuple[str, float]] = {}
        self._suspects: dict[int, Report] = {}
        self._asked: set[int] = set()
        self._asked_at = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ferroket watchdog", daemon=True)

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def script_ended(self) -> None:
        """This rank's script is over; others may still run theirs."""
        self._finished = True

    def stop(self) -> None:
        """Ends watching: all ranks have come to their end."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        # A script that closes the coordinator has ended what is to be watched.
        with contextlib.suppress(RuntimeError, AttributeError):
            self._watch_with(coordination_client())

    def _watch_with(self, store: Any) -> None:
        key = f"{_FOLDER}{self._rank}"
        size = len(self._hosts)
        progress = Progress(_GAP)
        next_report = first_report(self._rank)
        next_reading = reading_period = 2 * interval(size, 0.0)
        clock = 0.0
        while not self._stop.wait(_PERIOD):
            clock += _PERIOD
            look = progress.look(finished=self._finished)
            if look.stuck < _REPORT_AFTER:
                next_report = first_report(self._rank)
            elif look.stuck >= next_report:
                with_stack = next_report > first_report(self._rank) and self._is_asked(store)
                report = self._report(look.stuck, look.calls, look.threads, with_stack=with_stack)
                store.key_value_set(key, json.dumps(asdict(report)), allow_overwrite=True)
                next_report = look.stuck + interval(size, look.stuck)
            if self._rank == 0 and clock >= next_reading:
                next_reading = clock + reading_period
                self._end_if_deadlocked(store, clock)

    def _is_asked(self, store: Any) -> bool:
        """Whether rank 0 wants to see this rank's stack."""
        try:
            store.key_value_try_get(f"{_ASKED}{self._rank}")
        except Exception:  # of a kind of its own in each version, where there is no such key
            return False
        return True

    def _report(self, stuck: float, calls: tuple[str, ...], threads: frozenset[int], *, with_stack: bool) -> Report:
        stack = "" if self._finished and not calls else python_stacks()
        acts = may_act(threads, finished=self._finished)
        shown = stack if with_stack else ""
        return Report(calls, self._finished, acts, stuck, digest(stack), shown, failed_threads())

    def _end_if_deadlocked(self, store: Any, clock: float) -> None:
        reports = self._current_reports(dict(store.key_value_dir_get(_FOLDER)), clock)
        involved = find_deadlock(reports, len(self._hosts), self._limit)
        # A report may be older than its rank's last step: it has to come again, for the same place and a longer time.
        before, self._suspects = self._suspects, {}
        for rank in involved:
            goes_on = rank in before and reports[rank].goes_on_from(before[rank])
            self._suspects[rank] = before[rank] if goes_on else reports[rank]
        if before.keys() != self._suspects.keys():
            self._asked = set()
        if not involved or any(reports[rank].stuck == self._suspects[rank].stuck for rank in involved):
            return
        if not self._asked:
            self._asked = {ranks[0] for _, ranks in _places(reports)[:_SHOWN_PLACES] if _has_stack(reports[ranks[0]])}
            self._asked_at = clock
            for rank in self._asked:
                store.key_value_set(f"{_ASKED}{rank}", "", allow_overwrite=True)
        longest = max(interval(len(self._hosts), report.stuck) for report in reports.values())
        if (
            all(reports[rank].stack for rank in self._asked if rank in reports)
            or clock > self._asked_at + 2 * longest + 1
        ):
            print(describe(reports, self._hosts, involved), file=sys.stderr, flush=True)
            stuck = min(reports[rank].stuck for rank in involved)
            abort_job(1, f"{_who(involved, len(self._hosts))} made no progress for {stuck:.0f} s")

    def _current_reports(self, stored: Mapping[str, str], clock: float) -> dict[int, Report]:
        """The reports of ranks that are still stuck: those that moved on leave theirs, and don't renew it."""
        reports = read_reports(stored)
        for key, text in stored.items():
            rank = _rank_of(key)
            if self._renewed.get(rank, ("", 0.0))[0] != text:
                self._renewed[rank] = (text, clock)
        age = {rank: clock - self._renewed[rank][1] for rank in reports}
        size = len(self._hosts)
        return {rank: each for rank, each in reports.items() if age[rank] <= 2 * interval(size, each.stuck) + 1}


def _who(involved: set[int], size: int) -> str:
    return "the job has" if len(involved) == size else f"{len(involved)} of {size} ranks have"


def first_report(rank: int) -> float:
    """How long a rank is stuck before it reports that for the first time, in seconds: one rank after the other."""
    return _REPORT_AFTER + rank / _RATE


def interval(size: int, stuck: float) -> float:
    """Seconds between two reports of a rank of so many that has been stuck for so long."""
    return max(_PERIOD, size / _RATE, min(_LONGEST, _PATIENCE * stuck))


def read_reports(stored: Mapping[str, str]) -> dict[int, Report]:
    """The reports in the store, by rank."""
    found = {_rank_of(key): json.loads(text) for key, text in stored.items()}
    return {rank: Report(**{**parts, "calls": tuple(parts["calls"])}) for rank, parts in found.items()}


def _rank_of(key: str) -> int:
    return int(key.rsplit("/", 1)[1])


def _has_stack(report: Report) -> bool:
    return bool(report.calls) or not report.finished


def find_deadlock(reports: Mapping[int, Report], size: int, limit: float) -> set[int]:
    """The ranks because of which a job is to be ended; none if it isn't.

    Args:
        reports: those of the ranks that make no progress.
        size: the number of ranks.
        limit: the seconds for a job that could still move.
    """
    cycle = find_cycle(reports, size)
    if cycle and min(reports[rank].stuck for rank in cycle) >= min(limit, _CERTAIN_AFTER):
        return cycle
    all_wait = len(reports) == size and any(report.calls for report in reports.values())
    if all_wait and min(report.stuck for report in reports.values()) >= limit:
        return set(reports)
    return set()


def find_cycle(reports: Mapping[int, Report], size: int) -> set[int]:
    """The ranks that wait in calls for which others of them, or ranks whose scripts have ended, will never come."""
    inside: dict[str, set[int]] = {}
    for rank, report in reports.items():
        for call in report.calls:
            inside.setdefault(call, set()).add(rank)
    missing: dict[str, set[int] | None] = {}
    for call, ranks in inside.items():
        members = members_of(call, size)
        missing[call] = None if members is None else members - ranks
    # From all that could be blocked, those are taken out, step by step, one of whose calls may still come about.
    blocked = {rank for rank, each in reports.items() if (each.calls or each.finished) and not each.may_act}
    while True:
        hopeless = {call for call, absent in missing.items() if absent is not None and absent & blocked}
        freed = {rank for rank in blocked if not hopeless.issuperset(reports[rank].calls)}
        if not freed:
            return blocked if any(reports[rank].calls for rank in blocked) else set()
        blocked -= freed


def members_of(call: str, size: int) -> set[int] | None:
    """The ranks that a call, as the wrapper describes it, is over; None if that isn't known."""
    over = call.rpartition(" over ")[2]
    if over == "all ranks":
        return set(range(size))
    if over.startswith("ranks "):
        return {rank for part in over.removeprefix("ranks ").split(", ") for rank in _run(part)}
    return None


def _run(part: str) -> range:
    """``4-7``: 4 to 7."""
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def _places(reports: Mapping[int, Report]) -> list[tuple[Any, list[int]]]:
    """The places where ranks are, each with its ranks."""
    return group_by(sorted(reports), lambda rank: (reports[rank].where(several=True), reports[rank].place))


def describe(reports: Mapping[int, Report], hosts: list[str], involved: set[int]) -> str:
    """Where every rank is that makes no progress: those in the same place together.

    Args:
        reports: of these ranks.
        hosts: the host of each rank.
        involved: the ranks that wait for each other.
    """
    lines = ["ferroket: the job hangs: some ranks wait in a collective that others don't enter."]
    places = _places({rank: report for rank, report in reports.items() if rank in involved})
    places += _places({rank: report for rank, report in reports.items() if rank not in involved})
    for _, ranks in places[:_SHOWN_PLACES]:
        place = next((reports[rank] for rank in ranks if reports[rank].stack), reports[ranks[0]])
        lines += [f"{describe_ranks(ranks, hosts)} {place.where(several=len(ranks) > 1)}", place.stack]
    if len(places) > _SHOWN_PLACES:
        lines.append(f"(and {len(places) - _SHOWN_PLACES} more places)")
    if others := sorted(set(range(len(hosts))) - set(reports)):
        lines.append(f"{describe_ranks(others, hosts)} {'go' if len(others) > 1 else 'goes'} on")
    lines.append(
        "Every rank has to run the same JAX programs in the same order: look for a computation under "
        "`if jax.process_index() == 0:`, or in a loop whose length differs. FERROKET_WATCHDOG=0 waits for ever."
    )
    return "\n".join(line for line in lines if line)


def limit_from_environment() -> float:
    """FERROKET_WATCHDOG in seconds; 0 for no watchdog.

    Raises:
        ValueError: it isn't a number of seconds.
    """
    text = os.environ.get("FERROKET_WATCHDOG", "600")
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not limit >= 0:
        raise ValueError(f"FERROKET_WATCHDOG is {text!r}, but has to be a number of seconds (0 is off)")
    return limit
