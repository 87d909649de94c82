"""A job of ``ferroket launch``: ranks that mpirun starts, or processes of this one; and the end of them all."""

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

import psutil

from ferroket import _lib
from ferroket.distributed.launching import launchers
from ferroket.distributed.launching.launchers import Command
from ferroket.distributed.launching.output import Relay
from ferroket.distributed.scripts import HASH_SEED

# Every process of a job has this variable. Launchers start new process groups and sessions, but pass it on.
_VARIABLE = "FERROKET_JOB"

# Seconds: after a signal until what is left is killed; for what outlives its job, until SIGTERM, and until SIGKILL; for
# killed processes to be gone.
_AFTER_SIGNAL = 3.0
_LAST_WORDS = 0.3
_AFTER_SIGTERM = 1.0
_DYING = 1.0
_POLL = 0.05

_PR_SET_PDEATHSIG = 1

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


class Job(Protocol):
    """Ranks that run."""

    def has_ended(self) -> bool:
        """Whether all ranks have ended, or one has failed."""

    def exit_code(self) -> int:
        """What came of it, as a shell has it; to be asked for when it has ended, and all its output is there."""

    def send(self, signum: int) -> None:
        """Sends a signal to the launcher, which passes it on, or to the ranks."""


class JobProcesses:
    """The processes of one job, whatever group and session they are in."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex

    def environment(self, command: Command) -> dict[str, str]:
        """The environment for a process of the job, which is a rank, even if a rank has started this one."""
        mark, _ = _lib.mark_of_children()
        inherited = {name: value for name, value in os.environ.items() if name != mark}
        return {HASH_SEED: "0", **inherited, **command.variables, _VARIABLE: self._id}

    def end(self) -> None:
        """Ends what is left of a job that has ended or failed: it may do so by itself, is asked to, and killed."""
        for patience, signum in ((_LAST_WORDS, signal.SIGTERM), (_AFTER_SIGTERM, signal.SIGKILL)):
            if self._ends_within(patience):
                return
            self._send(signum)
        self._ends_within(_DYING)

    def kill(self) -> None:
        """Ends what is left at once."""
        self._send(signal.SIGKILL)
        self._ends_within(_DYING)

    def _ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._members():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL)
        return True

    def _members(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):  # it has ended, or is somebody else's
                if process.environ().get(_VARIABLE) == self._id:
                    found.append(process)
        return found

    def _send(self, signum: int) -> None:
        for process in self._members():
            with suppress(psutil.Error):
                process.send_signal(signum)


class MpiJob:
    """Ranks that an MPI's launcher starts."""

    def __init__(self, command: Command, ranks: int, processes: JobProcesses, relay: Relay) -> None:
        self._ranks = ranks
        self._relay = relay
        self._mpirun = _start(command, {**processes.environment(command), **relay.named_pipes()}, relay, None)

    def has_ended(self) -> bool:  # noqa: D102 - Job's
        return self._mpirun.poll() is not None

    def exit_code(self) -> int:  # noqa: D102
        return launchers.exit_code(self._mpirun.wait(), self._relay.launcher_said, self._ranks)

    def send(self, signum: int) -> None:  # noqa: D102
        self._mpirun.send_signal(signum)


class LocalJob:
    """Ranks that are processes of this one."""

    def __init__(self, commands: Sequence[Command], processes: JobProcesses, relay: Relay) -> None:
        self._running = len(commands)
        self._failure = 0
        self._codes: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._ranks = [
            _start(command, processes.environment(command), relay, rank) for rank, command in enumerate(commands)
        ]
        for process in self._ranks:
            # The first that fails is the cause: a thread each sees them in their order.
            threading.Thread(target=lambda own=process: self._codes.put(own.wait()), daemon=True).start()

    def has_ended(self) -> bool:  # noqa: D102
        while not self._failure and not self._codes.empty():
            self._failure = self._codes.get()
            self._running -= 1
        return bool(self._failure) or not self._running

    def exit_code(self) -> int:  # noqa: D102
        return self._failure if self._failure >= 0 else 128 - self._failure

    def send(self, signum: int) -> None:  # noqa: D102
        for process in self._ranks:
            process.send_signal(signum)


def _start(command: Command, environment: dict[str, str], relay: Relay, rank: int | None) -> subprocess.Popen[bytes]:
    """Starts a rank or a launcher, in this process group: the terminal's Ctrl-C and Ctrl-Z are for both."""
    stdout, stderr = relay.pipe(rank, "stdout"), relay.pipe(rank, "stderr")
    try:
        return subprocess.Popen(
            command.arguments,
            env=environment,
            stdin=None if not rank else subprocess.DEVNULL,  # as launchers do, for rank 0
            stdout=stdout,
            stderr=stderr,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - there are no threads yet
        )
    finally:
        os.close(stdout)
        os.close(stderr)


def _end_with_parent() -> None:
    """Has the kernel kill this process when its parent is killed, and so can't do it; launchers take ranks along."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def caught_signals() -> Iterator[list[int]]:
    """The signals that this process gets from now on, instead of their effect; those ignored so far stay so."""
    received: list[int] = []
    before = {
        signum: signal.signal(signum, lambda number, _: received.append(number))
        for signum in (*_ENDING, *_PASSED_ON)
        if signal.getsignal(signum) is not signal.SIG_IGN
    }
    try:
        yield received
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def supervise(job: Job, processes: JobProcesses, relay: Relay, received: list[int]) -> int | None:
    """Waits for a job's end, passes signals on to it, and leaves no process of it behind.

    Args:
        job: what runs.
        processes: its processes.
        relay: its output; if that can't be written any more, the job ends.
        received: grows by each signal that this process gets.

    Returns:
        The signal that ended it, if one did.
    """
    ending: int | None = None
    deadline = float("inf")
    try:
        while not job.has_ended() and time.monotonic() < deadline:
            if relay.error and ending is None:
                ending, deadline = signal.SIGPIPE, time.monotonic() + _AFTER_SIGNAL
                job.send(signal.SIGTERM)
            while received:
                signum = received.pop(0)
                if signum in _ENDING:
                    # One who asks twice doesn't want to wait.
                    deadline = time.monotonic() + (_AFTER_SIGNAL if ending is None else 0)
                    ending = ending or signum
                if not (signum == signal.SIGINT and _has_terminal()):
                    job.send(signum)
            time.sleep(_POLL)
    finally:
        if ending is None:
            processes.end()
        else:
            processes.kill()
    return ending


def _has_terminal() -> bool:
    """Whether a Ctrl-C came from the terminal, which sends it to all processes of the foreground group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
