"""One rank fails: the whole job ends, with the reason, instead of waiting for it for ever."""

import sys
import time
from types import TracebackType
from typing import Any

# Seconds that a launcher may take to forward the message: at an abort it ends without looking for more.
_FORWARDING = 0.2


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
        time.sleep(_FORWARDING)
        world.Abort(1)

    sys.excepthook = hook
