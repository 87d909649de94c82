"""The ranks of a job before JAX computes: they exchange values over MPI or JAX's coordinator, and wait there."""

from typing import Protocol

from ferroket import _lib
from ferroket._compat.jax import coordination_client

# Milliseconds that nothing in a healthy job takes: the limit of a start is FERROKET_INIT_TIMEOUT, of a run none.
_FOREVER = 10**9


class ProcessGroup(Protocol):
    """All ranks of a job. Every method but ``abort`` is a collective of all of them."""

    rank: int
    size: int

    def allgather(self, own: bytes) -> list[bytes]:
        """The bytes of all ranks, by rank, of any length.

        They may come from a store without a password, so they must not be read as anything but data.
        """

    def broadcast(self, own: bytes) -> bytes:
        """The bytes of rank 0."""

    def wait_for_all(self) -> bool:
        """Returns when all ranks have called it, and leaves the cores to those that still compute.

        False, and at once, if the script has ended what the ranks would meet over.
        """

    def abort(self, code: int) -> None:
        """Ends the whole job with this exit code."""


class MpiProcessGroup:
    """The ranks over MPI."""

    def __init__(self, mpi: _lib.Mpi) -> None:
        self.mpi = mpi
        self.rank = mpi.rank
        self.size = mpi.size

    def allgather(self, own: bytes) -> list[bytes]:  # noqa: D102 - ProcessGroup's
        return self.mpi.allgather(own)

    def broadcast(self, own: bytes) -> bytes:  # noqa: D102
        return self.mpi.allgather(own if self.rank == 0 else b"")[0]

    def wait_for_all(self) -> bool:  # noqa: D102
        return self.mpi.wait_for_all()

    def abort(self, code: int) -> None:  # noqa: D102
        self.mpi.abort(code)


class StoreProcessGroup:
    """The ranks over JAX's coordinator, which keeps a store of keys and values. JAX has to be connected."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._turn = 0

    def allgather(self, own: bytes) -> list[bytes]:  # noqa: D102
        store = coordination_client()
        self._turn += 1
        folder = f"ferroket/allgather/{self._turn}"
        store.key_value_set_bytes(f"{folder}/{self.rank}", own)
        return [store.blocking_key_value_get_bytes(f"{folder}/{rank}", _FOREVER) for rank in range(self.size)]

    def broadcast(self, own: bytes) -> bytes:  # noqa: D102
        store = coordination_client()
        self._turn += 1
        key = f"ferroket/broadcast/{self._turn}"
        if self.rank == 0:
            store.key_value_set_bytes(key, own)
        return bytes(store.blocking_key_value_get_bytes(key, _FOREVER))

    def wait_for_all(self) -> bool:  # noqa: D102
        self._turn += 1
        store = coordination_client()
        if store is not None:
            store.wait_at_barrier(f"ferroket/barrier/{self._turn}", _FOREVER)
        return store is not None

    def abort(self, code: int) -> None:
        """Ends this process; the launcher and the other ranks of its node, which watch it, end the rest."""
        _lib.exit_now(code)
