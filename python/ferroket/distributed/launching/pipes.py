"""The way from a rank's output to the ``ferroket launch`` that started it through an MPI's launcher: named pipes."""

import errno
import os
import socket
import sys
from pathlib import Path
from typing import Literal

Stream = Literal["stdout", "stderr"]

DESCRIPTORS: dict[Stream, int] = {"stdout": 1, "stderr": 2}

# The folder of the pipes, in the environment of the ranks.
VARIABLE = "FERROKET_OUTPUT"


def path(folder: Path, rank: int, stream: Stream) -> Path:
    """The pipe for a stream of a rank."""
    return folder / f"{rank}.{stream}"


def redirect(rank: int) -> None:
    """On a rank: writes to its pipes from now on, if there are any.

    Raises:
        SystemExit: there should be, but they aren't here.
    """
    folder = os.environ.pop(VARIABLE, None)  # the rank's own children inherit the pipes, and need no others
    if folder is None:
        return
    for stream, descriptor in DESCRIPTORS.items():
        try:
            # Without waiting for a reader: only a launch that is dead has none.
            pipe = os.open(path(Path(folder), rank, stream), os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            where = "has ended" if error.errno == errno.ENXIO else f"runs on another node than {socket.gethostname()}"
            sys.exit(
                f"ferroket: rank {rank} can't write to the `ferroket launch` that started it, which {where}. --label, "
                "--rank and --log-dir are for ranks on its own node: start a job of several nodes with "
                "`mpirun -n N ferroket run SCRIPT`"
            )
        os.set_blocking(pipe, True)
        os.dup2(pipe, descriptor)
        os.close(pipe)
