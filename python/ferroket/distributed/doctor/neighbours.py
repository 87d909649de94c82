"""The doctors of one node's ranks, who find each other without MPI, for that may be what is broken.

Each writes files into a folder that is named after the node and the launcher's process on it. Nodes may share /tmp.
"""

import json
import os
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from ferroket.distributed.doctor.facts import launching_ancestors

_POLL = 0.05
# Seconds for the others to leave too; a launcher kills them when this one's exit code isn't 0.
_LEAVING = 1.0


class Neighbours:
    """The doctors on this node, by rank. Leaving the block withdraws what this one has told.

    Where no folder can be made, each doctor is on its own.

    Args:
        rank: this process's rank.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._folder = Path(tempfile.gettempdir()) / f"ferroket-doctor-{os.geteuid()}-{_job()}"
        self._usable = False

    def __enter__(self) -> Self:
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._usable = self._folder.lstat().st_uid == os.geteuid()
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files(f"{self._rank}.*"):
            file.unlink(missing_ok=True)
        wait(self._remove, _LEAVING)

    def tell(self, what: str, content: Any) -> None:
        """Lets the others know; ``content`` is anything that JSON can hold."""
        if self._usable:
            file = self._folder / f"{self._rank}.{what}"
            draft = file.with_suffix(".draft")
            draft.write_text(json.dumps(content))
            draft.replace(file)  # nobody reads half of it

    def ranks(self, what: str) -> set[int]:
        """The ranks that have told something."""
        return {int(file.stem) for file in self._files(f"*.{what}")}

    def received(self, what: str) -> dict[int, Any]:
        """What ranks of this node, this one among them, have told so far."""
        result = {}
        for file in self._files(f"*.{what}"):
            with suppress(FileNotFoundError):  # withdrawn since it was listed
                result[int(file.stem)] = json.loads(file.read_text())
        return dict(sorted(result.items()))

    def _files(self, pattern: str) -> list[Path]:
        return list(self._folder.glob(pattern)) if self._usable else []

    def _remove(self) -> bool:
        """The last one to leave removes the folder. Says whether it is gone."""
        with suppress(OSError):
            if self._usable:
                self._folder.rmdir()
        return not (self._usable and self._folder.exists())


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Waits until the condition holds, but not for ever; says whether it does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def _job() -> str:
    """What all ranks of the node descend from: the nearest launcher, or whoever started them."""
    launchers = launching_ancestors()
    with suppress(psutil.Error):
        parent = launchers[0][0] if launchers else psutil.Process().parent()
        if parent:
            return f"{socket.gethostname()}-{parent.pid}-{parent.create_time():.0f}"
    return f"{socket.gethostname()}-{os.getppid()}"
