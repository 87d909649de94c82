"""Trying what a script would do: as one rank of the job that this process belongs to, or as a job of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from types import FrameType
from typing import IO, Any

import psutil

from ferroket import _lib
from ferroket.distributed.affinity import describe
from ferroket.distributed.doctor.facts import Facts
from ferroket.distributed.doctor.neighbours import Neighbours, wait
from ferroket.distributed.doctor.psum import Psum
from ferroket.distributed.doctor.reductions import Computation
from ferroket.distributed.doctor.worker import MARK, Running
from ferroket.distributed.launching import launchers
from ferroket.distributed.launching.launchers import Command
from ferroket.distributed.library import search_prefixes
from ferroket.distributed.scripts import PYTHON

RANKS = 2

_MODULE = ["-m", "ferroket.distributed.doctor.worker"]
_WORKER = [*PYTHON, *_MODULE]
_POLL = 0.05
_OUTPUT_LINES = 30
# Seconds: for a job of its own; for measuring, once MPI and JAX run; for the other ranks of the node to fail too;
# for a launcher to end its ranks.
_OWN_JOB = 60.0
_MEASURING = 60.0
_COMPANY = 2.0
_ENDING = 5.0


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What stopped a rank.

    Attributes:
        rank: which, None if the launcher itself failed.
        hostname: where.
        stage: what it did.
        text: the error's message, or how the process ended.
        output: the last lines that it printed.
        time: when, in seconds since 1970.
        others: more ranks that failed for the same reason.
    """

    rank: int | None
    hostname: str
    stage: str
    text: str
    output: list[str] = field(default_factory=list)
    time: float = field(default_factory=time.time)
    others: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        """In one line."""
        who = "the job" if self.rank is None else f"rank {self.rank} on {self.hostname}"
        too = f" (and {describe(tuple(self.others))})" if self.others else ""
        return f"{who}{too} failed in {self.stage}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a trial.

    Attributes:
        command: that started it; empty for a rank of the job that the doctor itself is part of.
        info: of rank 0, as ``fk.runtime_info()`` gives it, None if it never started.
        ranks: all ranks; empty if they never met.
        psum: measured.
        reductions: XLA's numbers beside NumPy's; empty if they weren't compared.
        failures: what went wrong, the first first.
    """

    command: str = ""
    info: dict[str, Any] | None = None
    ranks: list[Running] = field(default_factory=list)
    psum: list[Psum] = field(default_factory=list)
    reductions: list[Computation] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def as_rank(facts: Facts, neighbours: Neighbours) -> Outcome:
    """Tries it as the rank that this process is, until it is done or there is no hope."""
    failed_since: float | None = None

    def is_hopeless() -> bool:
        """Another rank failed, and this one didn't in the time that it had to: it waits for the other."""
        nonlocal failed_since
        if failed_since is None and any(neighbours.received("failures").values()):
            failed_since = time.monotonic()
        return failed_since is not None and time.monotonic() - failed_since > _COMPANY

    # The worker inherits the launcher's open files, and with them its place in the job.
    process = subprocess.Popen(
        _WORKER, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    outcome = _watch(process, facts, _start_limit(facts) + _MEASURING, is_hopeless, relay=True)
    neighbours.tell("failures", [asdict(failure) for failure in outcome.failures])
    # Those that fail too may not have come as far as to show themselves.
    known = facts.size if outcome.failures else len(neighbours.ranks("facts"))
    wait(lambda: len(neighbours.ranks("failures")) >= known, _COMPANY)
    reported = [Failure(**failure) for failures in neighbours.received("failures").values() for failure in failures]
    return replace(outcome, failures=_merge(reported or outcome.failures))


def own_job(facts: Facts) -> Outcome:
    """Tries it with a job of two ranks, started as ``ferroket launch`` would, or by it where no MPI is wanted."""
    if facts.variables.get("FERROKET_COLLECTIVES") == "gloo":
        launch = [*PYTHON, "-m", "ferroket", "launch", "-n", str(RANKS), "--collectives", "gloo"]
        command = Command([*launch, *_MODULE])
    else:
        command = launchers.mpirun(_lib.find_mpi(search_prefixes()), RANKS, _WORKER)
    try:
        process = subprocess.Popen(
            command.arguments,
            env={**os.environ, **command.variables},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        failure = Failure(rank=None, hostname=facts.hostname, stage="starting mpirun", text=str(error))
        return Outcome(command=str(command), failures=[failure])
    return _watch(process, facts, _OWN_JOB, lambda: False, relay=False, command=str(command))


class _Listener:
    """Reads what a process prints: the messages of workers, and the rest."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.output: deque[str] = deque(maxlen=_OUTPUT_LINES)

    def start(self, stream: IO[bytes], relay: bool) -> threading.Thread:
        thread = threading.Thread(target=self._read, args=(stream, relay), daemon=True)
        thread.start()
        return thread

    def _read(self, stream: IO[bytes], relay: bool) -> None:
        for raw in stream:
            text = raw.decode(errors="replace")
            before, mark, message = text.partition(MARK)
            if mark:
                with suppress(json.JSONDecodeError):  # the end of one who was killed
                    self.messages.append(json.loads(message))
                text = before
            if text.strip():
                self.output.append(text.rstrip())
                if relay:  # a launcher that kills the job at once leaves at least this
                    print(text.rstrip(), file=sys.stderr, flush=True)

    def last(self, name: str, otherwise: Any = None) -> Any:
        return next((message[name] for message in reversed(self.messages) if name in message), otherwise)


def _watch(
    process: "subprocess.Popen[bytes]",
    facts: Facts,
    limit: float,
    is_hopeless: Callable[[], bool],
    *,
    relay: bool,
    command: str = "",
) -> Outcome:
    """Waits for the end of a worker, or of a job of workers, and sums up what they reported."""
    listener = _Listener()
    assert process.stdout
    assert process.stderr
    readers = [listener.start(process.stdout, relay), listener.start(process.stderr, relay)]
    deadline = time.monotonic() + limit
    stopped: str | None = None
    with _termination() as terminated:
        try:
            while process.poll() is None and stopped is None:
                time.sleep(_POLL)
                if terminated.is_set():
                    stopped = "the job was ended from outside (SIGTERM), by the launcher or by a person"
                elif time.monotonic() > deadline:
                    stopped = f"no end after {limit:.0f} s"
                elif is_hopeless():
                    stopped = ""
        finally:
            _end(process, at_once=not command)
    for reader in readers:
        reader.join(_ENDING)
    stage = listener.last("stage", "starting the ranks" if command else "starting Python")
    rank = None if command else facts.rank
    failures = [
        Failure(rank=message["rank"], hostname=facts.hostname, stage=stage, text=message["error"])
        for message in listener.messages
        if "error" in message
    ]
    text = _ending(process.returncode) if stopped is None else stopped
    if text and not failures:
        output = list(listener.output)
        failures = [Failure(rank=rank, hostname=facts.hostname, stage=stage, text=text, output=output)]
    return Outcome(
        command=command,
        info=listener.last("info"),
        ranks=[Running(**{**rank, "facts": Facts(**rank["facts"])}) for rank in listener.last("ranks", [])],
        psum=[Psum(**result) for result in listener.last("psum", [])],
        reductions=[Computation(**result) for result in listener.last("reductions", [])],
        failures=_merge(failures),
    )


def _merge(failures: list[Failure]) -> list[Failure]:
    """One of those that differ in nothing but the rank; the first that failed comes first."""
    alike: dict[str, list[Failure]] = {}
    for failure in sorted(failures, key=lambda failure: failure.time):
        alike.setdefault(re.sub(r"\brank \d+", "rank", failure.text), []).append(failure)
    merged = []
    for group in alike.values():
        first = min(group, key=lambda failure: failure.rank or 0)
        ranks = {rank for failure in group for rank in (failure.rank, *failure.others) if rank is not None}
        merged.append(replace(first, others=sorted(ranks - {first.rank})))
    return merged


def _ending(code: int) -> str:
    """How a process ended, empty if it was well."""
    if code == 0:
        return ""
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"the process was killed by {names.get(-code, f'signal {-code}')}"
    return f"the process ended with exit code {code}"


def _end(process: "subprocess.Popen[bytes]", *, at_once: bool) -> None:
    """Ends what still runs of a process and its descendants; a launcher gets some time to end its ranks."""
    try:
        processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    if process.poll() is None and not at_once:
        process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=0 if at_once else _ENDING)
    for other in alive:
        other.kill()
    process.wait()


@contextmanager
def _termination() -> Iterator[threading.Event]:
    """An event that SIGTERM sets; Open MPI sends it some seconds before it kills."""
    event = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        event.set()

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)


def _start_limit(facts: Facts) -> float:
    """The seconds that ``fk.initialize()`` may wait, and a minute where it may for ever."""
    try:
        return float(facts.variables.get("FERROKET_INIT_TIMEOUT", "60")) or 60.0
    except ValueError:
        return 60.0
