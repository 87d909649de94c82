"""Finds the classic deadlock, says where each rank is, and ends the job.

One rank enters a collective that others don't: it waits for ever. Each rank looks at itself a few times a second, and
while it makes no progress leaves a report in the store of JAX's coordinator; a job that moves leaves none. Rank 0, when
it is stuck itself, reads the reports. A rank makes progress if a collective came back, or, outside of collectives, if
it or a process that it started computes, or it reads or writes files: so a long compilation, a long sum or a large file
on one rank is never taken for a deadlock.
"""

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from ferroket import _lib
from ferroket._compat.jax import coordination_client
from ferroket.distributed.failure import abort_job

# Seconds between two looks, until a rank reports that it is stuck, and after which a deadlock that no waiting can mend
# is one.
_PERIOD = 0.25
_REPORT_AFTER = 0.75
_CERTAIN_AFTER = 1.5

# Less work than this in a second is that of threads that only wait: seconds on a core, and bytes.
_IDLE_CPU = 0.05
_IDLE_BYTES = 1 << 14

# To look for children takes longer.
_CHILDREN_PERIOD = 1.0
# Seconds between two looks that something else than this rank explains.
_GAP = 8 * _PERIOD

_FOLDER = "ferroket/watchdog/"


@dataclass(frozen=True)
class Report:
    """A rank that makes no progress.

    Attributes:
        call: the call of MPI it is in, without its number; None if it is in none.
        finished: whether its script has ended.
        stuck: for how long, in seconds.
        stack: its Python stack.
    """

    call: str | None
    finished: bool
    stuck: float
    stack: str

    def goes_on_from(self, before: "Report") -> bool:
        """Whether a rank has said again, later, that it is in the same place."""
        return (self.call, self.finished) == (before.call, before.finished) and self.stuck > before.stuck

    def where(self, *, several: bool = False) -> str:
        """What the rank does, or several ranks do, for the message."""
        if self.call:
            return f"{'wait' if several else 'waits'} in {self.call}"
        if self.finished:
            return "have ended their scripts" if several else "has ended its script"
        return f"{'are' if several else 'is'} in no collective, and idle"


@dataclass(frozen=True)
class _Look:
    """What a rank sees of itself."""

    at: float
    done: int
    inside: tuple[tuple[int, str], ...]
    cpu: float
    bytes: int

    @classmethod
    def now(cls) -> "_Look":
        done, inside = _lib.mpi_calls()
        return cls(time.monotonic(), done, tuple(inside), time.process_time(), _bytes_moved())

    def progressed(self, before: "_Look") -> bool:
        """Whether anything was done since."""
        if (self.done, self.inside) != (before.done, before.inside):
            return True
        if self.inside:
            return False  # who waits in MPI may spin
        seconds = self.at - before.at
        return self.cpu - before.cpu > _IDLE_CPU * seconds or self.bytes - before.bytes > _IDLE_BYTES * seconds


def _bytes_moved() -> int:
    """What this process has read and written so far; 0 where the system doesn't say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))


class Watchdog:
    """Watches this rank in a thread of its own, from ``start`` to ``stop``.

    Args:
        rank: this rank.
        hosts: the host of each rank.
        limit: seconds without any progress of the job after which it is ended, at least while some rank waits in a
            collective. Where no rank can make progress any more, it ends after a few seconds.
    """

    def __init__(self, rank: int, hosts: list[str], limit: float) -> None:
        self._rank = rank
        self._hosts = hosts
        self._limit = limit
        self._finished = False
        self._suspects: dict[int, Report] = {}
        self._children_cpu = 0.0
        self._children_at = 0.0
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

    def _children_work(self, look: _Look) -> bool:
        """Whether processes that an idle rank has started have computed since they were last looked at."""
        if look.inside or self._finished or look.at - self._children_at < _CHILDREN_PERIOD:
            return False
        total = 0.0
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended
                total += sum(child.cpu_times()[:2])
        seconds, self._children_at = look.at - self._children_at, look.at
        before, self._children_cpu = self._children_cpu, total
        return total - before > _IDLE_CPU * min(seconds, 2 * _CHILDREN_PERIOD)

    def _watch(self) -> None:
        # A script that closes the coordinator has ended what is to be watched.
        with contextlib.suppress(RuntimeError, AttributeError):
            self._watch_with(coordination_client())

    def _watch_with(self, store: Any) -> None:
        key = f"{_FOLDER}{self._rank}"
        last = _Look.now()
        since = last.at
        reported = False
        while not self._stop.wait(_PERIOD):
            look = _Look.now()
            # A gap is a job that was suspended, or a call that let no other thread run.
            if look.progressed(last) or look.at - last.at > _GAP or self._children_work(look):
                since = look.at
                self._suspects = {}
                if reported:
                    store.key_value_delete(key)
                    reported = False
            elif look.at - since >= _REPORT_AFTER:
                report = self._report(look, look.at - since)
                store.key_value_set(key, json.dumps(asdict(report)), allow_overwrite=True)
                reported = True
                if self._rank == 0:
                    self._end_if_deadlocked(dict(store.key_value_dir_get(_FOLDER)))
            last = _Look.now()  # what it took to look is no progress

    def _report(self, look: _Look, stuck: float) -> Report:
        call = look.inside[0][1] if look.inside else None
        return Report(call, self._finished, stuck, "" if self._finished and not call else python_stacks())

    def _end_if_deadlocked(self, stored: Mapping[str, str]) -> None:
        reports = {int(key.rsplit("/", 1)[1]): Report(**json.loads(text)) for key, text in stored.items()}
        # A report may be older than its rank's last step: it has to come again, for the same place and a longer time.
        before, self._suspects = self._suspects, reports
        if not is_deadlock(reports, len(self._hosts), self._limit):
            self._suspects = {}
        elif all(rank in before and report.goes_on_from(before[rank]) for rank, report in reports.items()):
            print(describe(reports, self._hosts), file=sys.stderr, flush=True)
            abort_job(1, f"the job has made no progress for {min(r.stuck for r in reports.values()):.0f} s")


def python_stacks() -> str:
    """The Python stacks of this process, without those of Ferroket's own threads; that of the main thread first."""
    frames = sys._current_frames()
    main = threading.main_thread().ident
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident in sorted(frames, key=lambda ident: ident != main):
        name = names.get(ident, str(ident))
        stack = "".join(traceback.format_stack(frames[ident])).rstrip()
        if ident == main:
            parts.append(stack)
        elif not name.startswith("ferroket "):
            parts.append(f"  thread {name}:\n{stack}")
    return "\n".join(parts)


def is_deadlock(reports: Mapping[int, Report], size: int, limit: float) -> bool:
    """Whether a job is to be ended.

    Args:
        reports: those of the ranks that make no progress.
        size: the number of ranks.
        limit: the seconds for a job that could still move.
    """
    calls = {report.call for report in reports.values() if report.call}
    if len(reports) < size or not calls:
        return False
    stuck = min(report.stuck for report in reports.values())
    # No rank is idle in a way that it could wake up from, and no collective has all its members: nothing can move.
    awake = any(not report.call and not report.finished for report in reports.values())
    complete = any(_is_complete(call, reports, size) for call in calls)
    return stuck >= (limit if awake or complete else min(limit, _CERTAIN_AFTER))


def _is_complete(call: str, reports: Mapping[int, Report], size: int) -> bool:
    """Whether all members of a call's communicator are in it, or may be, where they aren't known."""
    inside = {rank for rank, report in reports.items() if report.call == call}
    members = members_of(call, size)
    return members is None or members <= inside


def members_of(call: str, size: int) -> set[int] | None:
    """The ranks that a call, as the wrapper describes it, is over; None if that isn't known."""
    over = call.rpartition(" over ")[2]
    if over == "all ranks":
        return set(range(size))
    if over.startswith("ranks "):
        return set(map(int, over.removeprefix("ranks ").split(", ")))
    return None


def describe(reports: Mapping[int, Report], hosts: list[str]) -> str:
    """Where every rank is: those in the same place together."""
    together: dict[Report, list[int]] = {}
    for rank in sorted(reports):
        together.setdefault(replace(reports[rank], stuck=0), []).append(rank)
    lines = ["ferroket: the job hangs: some ranks wait in a collective that others don't enter."]
    for place, ranks in together.items():
        several = len(ranks) > 1
        names = ", ".join(f"{rank} ({hosts[rank]})" for rank in ranks)
        lines += [f"rank{'s' * several} {names} {place.where(several=several)}", place.stack]
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
