"""One rank fails: the whole job ends, with the reason, instead of waiting for it for ever."""

import builtins
import contextlib
import faulthandler
import io
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from ferroket import _lib
from ferroket.distributed.process_group import ProcessGroup
from ferroket.distributed.progress import note_failed_threads
from ferroket.distributed.scripts import PYTHON

# Seconds that a launcher may take to forward the message: at an abort it ends without looking for more.
_FORWARDING = 0.2

# The shell's code for a program that Ctrl-C ended.
_INTERRUPTED = 130


class _Job:
    """The job of this process; a process that it forks is not a rank."""

    def __init__(self, group: ProcessGroup, who: str) -> None:
        self.group = group
        self.who = who
        self.process = os.getpid()


_job: _Job | None = None
_watcher: subprocess.Popen[bytes] | None = None


def end_job_with_this_rank(group: ProcessGroup, who: str) -> None:
    """From now on the end of this rank is the end of all, unless it is that of its script.

    An uncaught exception and ``sys.exit`` with another code than 0 abort the job after a message with the rank; a crash
    is announced with the rank and the Python stack. (``raise SystemExit(1)`` passes by unseen: the watchdog finds it,
    if others wait.)

    Args:
        group: the job's ranks.
        who: this rank, as messages name it.
    """
    global _job  # noqa: PLW0603 - one process has one job
    _job = _Job(group, who)
    sys.excepthook = _Hook(sys.excepthook)
    sys.__class__ = _Sys
    sys.exit = _exit
    for name in ("exit", "quit"):  # what `site` adds, which scripts use too
        if hasattr(builtins, name):
            setattr(builtins, name, _exit)
    # Python's handler has to run first, so it is installed last: it shows the stack, ours ends the process.
    faulthandler.disable()
    _lib.announce_crashes(who)
    faulthandler.enable(2)  # sys.stderr may be something without a file
    note_failed_threads()


@dataclass(frozen=True)
class Meeting:
    """How the watchers of several nodes find each other: at rank 0's, which says what came first.

    Attributes:
        address: where rank 0's watcher listens, host and port.
        password: by which they know each other.
        listener: where it listens, on its own node.
    """

    address: str
    password: str
    listener: socket.socket | None = None


def watch(ranks: list[tuple[str, tuple[int, int]]], meeting: Meeting | None) -> None:
    """Starts a process that says so if a rank of this node is killed, and ends with them and what they have started.

    Where there are no more file descriptors or processes for it, the job goes on without, after a warning.

    Args:
        ranks: the name of each rank of the node, and the address of its beacon.
        meeting: how it finds those of other nodes; None if there are none.
    """
    global _watcher  # noqa: PLW0603 - kept, so that it isn't taken for one that nobody waits for
    if not ranks:
        return
    try:
        _watcher = _start_watcher(ranks, meeting)
    except OSError as error:
        print(
            f"ferroket: {ranks[0][0]} can't start the process that watches the ranks of its node: {error}. The job "
            "goes on without it: nobody says which rank it is if one is killed. Raise `ulimit -n` or `ulimit -u`",
            file=sys.stderr,
            flush=True,
        )


# By this variable the watcher gets the password: a command line is for all users to see.
_PASSWORD = "FERROKET_WATCHERS_PASSWORD"


def _start_watcher(ranks: list[tuple[str, tuple[int, int]]], meeting: Meeting | None) -> subprocess.Popen[bytes]:
    found = _lib.find_ranks(ranks)
    descriptors = [found.events, *(descriptor for _, _, *both in found.ranks for descriptor in both)]
    listener = meeting.listener.fileno() if meeting and meeting.listener else None
    address = meeting.address if meeting and not meeting.listener else None
    program = (
        "import os; from ferroket import _lib; _lib.watch_ranks("
        f"{found.events}, {found.ranks!r}, {found.oom_kills}, {listener}, {address!r}, os.environ[{_PASSWORD!r}])"
    )
    with contextlib.ExitStack() as stack:
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        # A launcher that cleans up forwards no more, so the message goes past it, where that is possible.
        stderr = None
        if console := _lib.launcher_console():
            with contextlib.suppress(OSError):
                stderr = stack.enter_context(console.open("ab", buffering=0))
        return subprocess.Popen(
            [*PYTHON, "-c", program],
            env={**os.environ, _PASSWORD: meeting.password if meeting else ""},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=[*descriptors, *([listener] if listener is not None else [])],
            start_new_session=True,  # a launcher ends the process groups that it knows
        )


def abort_job(code: int, cause: str) -> NoReturn:
    """Ends the whole job after one message, or this process where there is no job.

    Args:
        code: the exit code, not 0.
        cause: what happened, as a message says it after the rank's name.
    """
    with contextlib.suppress(Exception):  # the script may have closed them
        sys.stdout.flush()
    if _job is not None and _job.process == os.getpid():
        with contextlib.suppress(Exception):
            print(f"ferroket: {_job.who}: {cause}, so the whole job is aborted", file=sys.stderr, flush=True)
        _lib.Beacon.reported()
        time.sleep(_FORWARDING)
        _job.group.abort(code)
    os._exit(code)


class _Sys(ModuleType):
    """The module ``sys``, where a script may still set an exception hook: ours calls that one to show the exception."""

    @property
    def excepthook(self) -> Any:
        hook = vars(self)["excepthook"]
        return hook.show if isinstance(hook, _Hook) else hook

    @excepthook.setter
    def excepthook(self, show: Any) -> None:
        vars(self)["excepthook"] = show if isinstance(show, _Hook) else _Hook(show)


class _Hook:
    """``sys.excepthook``: shows the exception as before, and aborts the job."""

    def __init__(self, show: Any) -> None:
        self.show = show

    def __call__(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        # In one piece, or the launcher mixes the lines of the ranks.
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            try:
                self.show(kind, error, traceback)
            except BaseException as another:  # of a hook of the user's: as Python does, both are shown
                print("Error in sys.excepthook:", file=sys.stderr)
                sys.__excepthook__(type(another), another, another.__traceback__)
                print("\nOriginal exception was:", file=sys.stderr)
                sys.__excepthook__(kind, error, traceback)
        with contextlib.suppress(Exception):  # the script may have closed it
            print(shown.getvalue(), end="", file=sys.stderr, flush=True)
        if _job is None or _job.process != os.getpid():
            return
        if issubclass(kind, KeyboardInterrupt):
            abort_job(_INTERRUPTED, "interrupted")
        abort_job(1, f"uncaught {kind.__name__}")


_CODE: Any = SystemExit.code  # the slot that the interpreter reads


class _Exit(SystemExit):
    """What ``sys.exit`` raises. The interpreter asks for its code when nobody caught it: then no Python code runs."""

    @property
    def code(self) -> Any:
        code = _CODE.__get__(self)
        if code not in (None, 0) and _is_outermost():
            is_number = isinstance(code, int)
            if not is_number:
                print(code, file=sys.stderr)  # as the interpreter would
            abort_job((code & 0xFF or 1) if is_number else 1, f"sys.exit({code!r})")
        return code

    @code.setter
    def code(self, value: Any) -> None:
        _CODE.__set__(self, value)


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"


def _exit(status: Any = None, /) -> NoReturn:
    """As ``sys.exit``."""
    # In another thread it ends that thread, and Python says nothing of a plain SystemExit alone.
    kind = _Exit if threading.current_thread() is threading.main_thread() else SystemExit
    raise kind(*([] if status is None else status if isinstance(status, tuple) else [status]))


def _is_outermost() -> bool:
    """Whether the caller's caller is the interpreter itself."""
    try:
        sys._getframe(2)
    except ValueError:
        return True
    return False
