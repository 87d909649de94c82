"""What the ranks of ``ferroket launch`` write: whole lines, labelled, chosen, and kept in files.

Launchers have flags for this, each its own, and some merge the ranks' output in the middle of a line. So each rank
writes to pipes of its own instead, and only the process of ``ferroket launch`` to the terminal. What a rank wrote
before it was killed is in its pipe, and comes out.
"""

import os
import selectors
import sys
import tempfile
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from rich.console import Console
from rich.text import Text

from ferroket.distributed.launching import pipes
from ferroket.distributed.launching.pipes import DESCRIPTORS, Stream

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_red")
_CHUNK = 1 << 16
_POLL = 0.05

# How a message begins that says which rank has failed.
_RANK_FAILED = b"ferroket: rank "

# What is kept of the launcher's own words, and of the stderr of each rank that isn't shown: bytes and lines.
_LAUNCHER_KEPT = 1 << 14
_HIDDEN_KEPT = 40


@dataclass
class _Source:
    """One stream of a rank, or of the launcher (None)."""

    rank: int | None
    stream: Stream
    pending: bytes = b""
    last: bytes = b""


class Relay:
    """Shows what the ranks write, in a thread of its own: from ``start`` until the block is left and all is written.

    Args:
        ranks: their number.
        label: whether each line begins with its rank.
        only: the one rank to show; None shows all.
        log_dir: a folder for the files ``rank-R.log``, with all that a rank writes; it is made if need be.

    Attributes:
        error: why there is no more output, if so: nobody reads it, or a disk is full.
        rank_told: whether a message on stderr said which rank has failed.

    Raises:
        OSError: the files can't be written.
    """

    def __init__(self, ranks: int, label: bool, only: int | None, log_dir: Path | None) -> None:
        self.error: OSError | None = None
        self.rank_told = False
        self._ranks = ranks
        self._only = only
        self._labels = {stream: _labels(ranks, stream) for stream in DESCRIPTORS} if label else None
        self._logs: list[IO[bytes]] = []
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)
            self._logs = [(log_dir / f"rank-{rank}.log").open("wb", buffering=0) for rank in range(ranks)]
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, name="ferroket output")
        self._all_written = threading.Event()
        self._launcher_said = b""
        self._hidden: dict[int, deque[bytes]] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def start(self) -> None:
        """Begins to show."""
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._all_written.set()
        if self._thread.ident:
            self._thread.join()
        for log in self._logs:
            log.close()
        if self._folder:
            self._folder.cleanup()

    @property
    def launcher_said(self) -> str:
        """The last that the launcher itself wrote to stdout."""
        return self._launcher_said.decode(errors="replace")

    def pipe(self, rank: int | None, stream: Stream) -> int:
        """A file descriptor for a process of this job to write to; the caller closes its own copy."""
        read, write = os.pipe()
        self._selector.register(read, selectors.EVENT_READ, _Source(rank, stream))
        return write

    def named_pipes(self) -> dict[str, str]:
        """Makes the pipes of the ranks, if those of the launcher won't do. Returns the variables for them."""
        if self._labels is None and self._only is None and not self._logs:
            return {}
        self._folder = tempfile.TemporaryDirectory(prefix="ferroket-")
        for rank in range(self._ranks):
            for stream in DESCRIPTORS:
                path = pipes.path(Path(self._folder.name), rank, stream)
                os.mkfifo(path)
                read = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                self._selector.register(read, selectors.EVENT_READ, _Source(rank, stream))
        return {pipes.VARIABLE: self._folder.name}

    def show_hidden(self) -> None:
        """Shows the last lines that ranks which aren't shown wrote to stderr, for a job that has failed."""
        for rank, lines in sorted(self._hidden.items()) if self.error is None else ():
            self._write("stderr", b"".join(f"[{rank}] ".encode() + line for line in lines))

    def _run(self) -> None:
        try:
            self._relay()
        except OSError as error:
            self.error = error
        for key in self._selector.get_map().values():
            os.close(key.fd)  # who still writes gets a SIGPIPE, and doesn't wait
        self._selector.close()

    def _relay(self) -> None:
        while True:
            ready = self._selector.select(_POLL)
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK)
                self._take(key.data, data)
                if not data:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
            if not ready and self._all_written.is_set():
                break
        for key in self._selector.get_map().values():
            self._take(key.data, b"")

    def _take(self, source: _Source, data: bytes) -> None:
        """Passes on what a source wrote, or with no data the rest of it."""
        rank = source.rank
        if source.stream == "stderr":
            source.last = source.last[-len(_RANK_FAILED) :] + data
            self.rank_told |= _RANK_FAILED in source.last
        if rank is None:
            if source.stream == "stdout":
                self._launcher_said = (self._launcher_said + data)[-_LAUNCHER_KEPT:]
            self._write(source.stream, data)
            return
        alone = self._labels is None and (self._ranks == 1 or self._only == rank)
        if alone:
            self._write(source.stream, data)  # at once, since there are no other lines to be mixed with
        lines = (source.pending + data).splitlines(keepends=True)
        if data:
            # A progress bar ends its pieces with "\r"; at the end of the data that may be the first half of "\r\n".
            source.pending = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        elif lines and not lines[-1].endswith(b"\n"):
            lines[-1] += b"\n"
        if self._logs:
            self._logs[rank].write(b"".join(lines))
        if alone:
            return
        if self._only in (None, rank):
            label = self._labels[source.stream][rank] if self._labels else b""
            self._write(source.stream, b"".join(label + line for line in lines))
        elif source.stream == "stderr" and lines:
            self._hidden.setdefault(rank, deque(maxlen=_HIDDEN_KEPT)).extend(lines)

    def _write(self, stream: Stream, data: bytes) -> None:
        while data:
            data = data[os.write(DESCRIPTORS[stream], data) :]


def _labels(ranks: int, stream: Stream) -> list[bytes]:
    """``[3] `` for each rank, with a colour if it goes to a terminal."""
    console = Console(file=getattr(sys, stream), highlight=False)
    labels = []
    for rank in range(ranks):
        with console.capture() as captured:
            console.print(Text(f"[{rank}]", style=_COLOURS[rank % len(_COLOURS)]), end=" ")
        labels.append(captured.get().encode())
    return labels
