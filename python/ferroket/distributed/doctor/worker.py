"""One rank of a trial: it does what a script would do, and tells its doctor line by line how far it came.

It is a process of its own, so that the doctor lives on when MPI, or XLA, ends the process or never returns.
"""

import ctypes
import json
import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

import ferroket as fk
from ferroket import _lib
from ferroket.distributed.doctor import psum, reductions
from ferroket.distributed.doctor.facts import Facts, collect
from ferroket.distributed.library import search_prefixes

# What begins a line for the doctor; anything else on stdout is somebody else's.
MARK = "@ferroket-doctor "

_POOL = "tf_XLAEigen"
_SET_PARENT_DEATH_SIGNAL = 1


@dataclass(frozen=True, kw_only=True)
class Running:
    """A rank after the start of MPI and JAX.

    Attributes:
        facts: what it was before.
        local_rank: its number on its node.
        cores: the logical cores that it is bound to.
        threads: of XLA's pool, None where they can't be told from others.
        memory: bytes that it occupies.
        devices: of JAX.
    """

    facts: Facts
    local_rank: int
    cores: list[int]
    threads: int | None
    memory: int
    devices: list[str]


def main() -> None:
    """Starts MPI and JAX, gathers the ranks' facts, measures psum, compares XLA's numbers with NumPy's."""
    _die_with_parent()
    facts = collect()
    _tell(stage="fk.initialize()")
    try:
        info = fk.initialize()
        _tell(stage="the exchange of facts")
        import jax

        devices = [str(device) for device in jax.local_devices()]
        running = Running(
            facts=facts,
            local_rank=info.local_rank,
            cores=list(info.cores[info.rank]),
            threads=_pool_threads(),
            memory=psutil.Process().memory_info().rss,
            devices=devices,
        )
        gather = _lib.attach_mpi(search_prefixes()).allgather if info.mpi else _gather_over_jax

        def exchange(mine: Any) -> list[Any]:
            """What JSON can hold, of all ranks."""
            return [json.loads(part) for part in gather(json.dumps(mine, default=str).encode())]

        ranks = exchange(asdict(running))
        if info.rank == 0:
            _tell(info=asdict(info), ranks=ranks)
        _tell(stage="psum")
        measured = psum.measure(info.rank, info.size, exchange)
        if info.rank == 0:
            _tell(psum=[asdict(result) for result in measured])
        wrong = [text for result in measured for text in result.wrong]
        if wrong:
            _tell(rank=info.rank, error=f"psum gave a wrong result: {'; '.join(wrong)}")
        _tell(stage="the comparison of XLA's numbers with NumPy's")
        compared = reductions.compare(info.size, exchange)
        if info.rank == 0:
            _tell(reductions=[asdict(computation) for computation in compared])
    except BaseException as error:
        _tell(rank=facts.rank, error=f"{type(error).__name__}: {error}")
        _lib.Beacon.reported()
        os._exit(1)  # the other ranks may wait in a collective, and an orderly end would wait for them
    _tell(stage="the end of MPI and JAX")


def _tell(**message: Any) -> None:
    """One line, in one write, for a launcher mixes what its ranks print."""
    print(f"{MARK}{json.dumps(message, default=str)}\n", end="", flush=True)


def _gather_over_jax(mine: bytes) -> list[bytes]:
    """The bytes of all ranks, where there is no MPI."""
    import numpy as np
    from jax.experimental.multihost_utils import process_allgather

    own = np.frombuffer(mine, np.uint8)
    lengths = process_allgather(np.array([len(own)], np.int32), tiled=True)
    padded = np.zeros((1, max(lengths)), np.uint8)
    padded[0, : len(own)] = own
    rows = process_allgather(padded, tiled=True)
    return [row[:length].tobytes() for row, length in zip(rows, lengths, strict=True)]


def _pool_threads() -> int | None:
    with suppress(OSError):
        names = Counter(Path(task, "comm").read_text().strip() for task in Path("/proc/self/task").iterdir())
        return names[_POOL] or None
    return None


def _die_with_parent() -> None:
    """A doctor that is killed leaves no rank behind (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


if __name__ == "__main__":
    main()
