"""Whether this rank makes progress, and whether it could make any.

A rank makes progress if a call of MPI comes back, if its main thread or XLA's threads compute, read or write, or if a
process that it has started computes. Threads of Python that run in the background, as loggers, monitors and progress
bars do, are always busy a little: they count only if they compute most of the time, or move much.
"""

import contextlib
import hashlib
import os
import platform
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil

from ferroket import _lib

# Less work than this in a second is that of threads that only wait: seconds on a core, and bytes.
_IDLE_CPU = 0.05
_IDLE_BYTES = 1 << 14
# Less than this is that of a thread of Python's that is busy in the background.
_BACKGROUND_CPU = 0.5
_BACKGROUND_BYTES = 1 << 20

# Seconds over which the work of single threads is measured, and of processes that this one has started.
_THREADS_PERIOD = 0.5
_CHILDREN_PERIOD = 1.0

_TASKS = Path("/proc/self/task")
# The number of the system call by which a thread waits for another one of its process.
_FUTEX = {"x86_64": "202", "aarch64": "98"}.get(platform.machine())
# Threads of Ferroket's own.
_OWN = "ferroket "


@dataclass(frozen=True)
class Work:
    """What a thread, or the whole process, has done so far: seconds on a core, and bytes read and written."""

    cpu: float
    bytes: int

    def exceeds(self, before: "Work", seconds: float, cpu: float, size: float) -> bool:
        """Whether more was done since than so much in a second."""
        return self.cpu - before.cpu > cpu * seconds or self.bytes - before.bytes > size * seconds


@dataclass(frozen=True)
class Look:
    """A rank that was looked at.

    Attributes:
        stuck: for how long it hasn't made any progress, in seconds.
        calls: the calls of MPI that it is in.
        threads: the system's numbers of the threads that are.
    """

    stuck: float
    calls: tuple[str, ...]
    threads: frozenset[int]


class Progress:
    """The progress of this process.

    Args:
        gap: seconds between two looks that something else explains: the job was suspended, or a call let no other
            thread run.
    """

    def __init__(self, gap: float) -> None:
        self._gap = gap
        self._since = self._at = time.monotonic()
        self._calls: object = None
        self._whole = Work(0.0, 0)
        self._threads: dict[int, Work] = {}
        self._threads_at = 0.0
        self._children_cpu = 0.0
        self._children_at = 0.0

    def look(self, *, finished: bool) -> Look:
        """Looks at this process again.

        Args:
            finished: its script has ended, so that only programs can still run.
        """
        done, inside = _lib.mpi_calls()
        now = time.monotonic()
        calls = (done, [number for number, _, _ in inside])
        waiting = frozenset(thread for _, _, thread in inside)
        moved = (
            calls != self._calls
            or now - self._at > self._gap
            or self._threads_work(now, waiting, finished=finished)
            or self._children_work(now, idle=not inside and not finished)
        )
        if moved:
            self._since = now
        self._calls = calls
        self._whole = _work_of_process()  # what it took to look is none
        self._at = time.monotonic()
        return Look(now - self._since, tuple(call for _, call, _ in inside), waiting)

    def _threads_work(self, now: float, waiting: frozenset[int], *, finished: bool) -> bool:
        """Whether threads have worked since they were looked at before."""
        whole, seconds = _work_of_process(), now - self._at
        if not whole.exceeds(self._whole, seconds, _IDLE_CPU, _IDLE_BYTES):
            return False
        seconds = now - self._threads_at
        if seconds < _THREADS_PERIOD:
            return False
        before, self._threads, self._threads_at = self._threads, _work_of_threads(), now
        if seconds > self._gap:  # they weren't looked at for long, since there was other progress
            return True
        python = {thread.native_id: thread.name.startswith(_OWN) for thread in threading.enumerate()}
        main = threading.main_thread().native_id
        for thread, work in self._threads.items():
            if thread in waiting or python.get(thread):
                continue  # who waits in MPI may spin
            is_background = thread in python and thread != main
            if is_background and finished:
                continue
            if waiting and thread not in python:
                continue  # an MPI library has threads that spin, too
            rate = (_BACKGROUND_CPU, _BACKGROUND_BYTES) if is_background else (_IDLE_CPU, _IDLE_BYTES)
            if work.exceeds(before.get(thread, Work(0.0, 0)), seconds, *rate):
                return True
        return False

    def _children_work(self, now: float, *, idle: bool) -> bool:
        """Whether processes that an idle rank has started have computed since they were looked at before."""
        if not idle or now - self._children_at < _CHILDREN_PERIOD:
            return False
        total = 0.0
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended
                total += sum(child.cpu_times()[:2])
        seconds, self._children_at = now - self._children_at, now
        before, self._children_cpu = self._children_cpu, total
        return total - before > _IDLE_CPU * min(seconds, 2 * _CHILDREN_PERIOD)


def _work_of_process() -> Work:
    return Work(time.process_time(), _bytes_moved(Path("/proc/self/io")))


def _work_of_threads() -> dict[int, Work]:
    """The work of each thread so far, where the system tells."""
    works: dict[int, Work] = {}
    with contextlib.suppress(OSError):
        for task in _TASKS.iterdir():
            with contextlib.suppress(OSError):  # it has ended
                works[int(task.name)] = Work(_cpu_time(task), _bytes_moved(task / "io"))
    return works


def _cpu_time(task: Path) -> float:
    """The seconds that a thread has computed so far."""
    try:
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):  # a kernel without it
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _bytes_moved(file: Path) -> int:
    """What was read and written so far; 0 where the system doesn't say."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar:", "wchar:")))


def may_act(waiting: frozenset[int], *, finished: bool) -> bool:
    """Whether another thread of this process than those that wait in MPI may still do something by itself.

    It may, if it sleeps, or waits for a time, for a file or for another process. It may not, if it waits for another
    thread; nor may threads that run no function of the user's, as those of libraries that have nothing to do.

    Args:
        waiting: the system's numbers of threads that wait in MPI.
        finished: whether the script has ended: then the main thread only waits for the other ranks.
    """
    main = threading.main_thread().ident
    native = {thread.ident: thread.native_id for thread in threading.enumerate()}
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if names.get(ident, "").startswith(_OWN) or native.get(ident) in waiting:
            continue
        is_users = not finished if ident == main else _runs_users_code(frame)
        if is_users and not _waits_for_a_thread(native.get(ident), is_main=ident == main):
            return True
    return False


def _runs_users_code(frame: FrameType) -> bool:
    return any(_is_users(outer.f_code.co_filename) for outer, _ in traceback.walk_stack(frame))


_LIBRARIES = tuple({str(Path(os.__file__).parent), str(Path(__file__).parents[1])})


def _is_users(file: str) -> bool:
    """Whether a file of code is the user's, not one of Python or of a package that was installed."""
    return not (file.startswith((*_LIBRARIES, "<frozen")) or "/site-packages/" in file or "/dist-packages/" in file)


def _waits_for_a_thread(native: int | None, *, is_main: bool) -> bool:
    """Whether a thread waits for another one, and not only for some time."""
    try:
        number, _, _, _, timeout, *_ = (_TASKS / str(native) / "syscall").read_text().split()
    except (OSError, ValueError):  # the system doesn't tell: the main thread mostly waits for XLA's
        return is_main
    return number == _FUTEX and int(timeout, 16) == 0


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
        elif not name.startswith(_OWN):
            parts.append(f"  thread {name}:\n{stack}")
    return "\n".join(parts)


def digest(stacks: str) -> str:
    """A short name for stacks: ranks with the same are in the same place."""
    return hashlib.sha256(stacks.encode()).hexdigest()[:12]


_failed_threads: list[str] = []


def note_failed_threads() -> None:
    """From now on exceptions that end threads are kept for messages: others may wait for what those threads do."""
    shown = threading.excepthook

    def note(failure: threading.ExceptHookArgs) -> None:
        name = failure.thread.name if failure.thread else "a thread"
        _failed_threads.append(f"{name} ended by {failure.exc_type.__name__}: {failure.exc_value}"[:200])
        shown(failure)

    threading.excepthook = note


def failed_threads() -> str:
    """Which threads of this process were ended by exceptions, for a message; nothing if none."""
    return "; ".join(_failed_threads[:3])
