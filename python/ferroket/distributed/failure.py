"""One rank fails: the whole job ends, with the reason, instead of waiting for it for ever."""

import sys
from types import TracebackType
from typing import Any


def abort_on_uncaught_exception(world: Any, where: str) -> None:
    """From now on an uncaught exception is printed with its rank, and aborts the job.

    Args:
        world: mpi4py's ``COMM_WORLD``.
        where: this rank, as the message names it.
    """
    show = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        sys.stdout.flush()
        print(f"ferroket: {where}: uncaught {kind.__name__}, so the whole job is aborted", file=sys.stderr)
        show(kind, error, traceback)
        sys.stderr.flush()
        world.Abort(1)

    sys.excepthook = hook
