"""The compiled half of Ferroket: FFI handlers for JAX, and the MPI of this process."""

from pathlib import Path
from types import TracebackType
from typing import Any, final

def ffi_handlers() -> dict[str, Any]:
    """The handlers by name, each a capsule as ``jax.ffi.register_ffi_target`` takes it.

    Raises:
        ValueError: as ``simd_level``.
    """

def fma_rate() -> float:
    """The rate at which this core multiplies and adds float64 numbers in registers, in operations a second."""

def simd_levels() -> list[str]:
    """The levels of vector instructions of this processor, the best first: of "avx512", "avx2", "neon", "scalar"."""

def simd_level() -> str:
    """The level that the kernels run on.

    Raises:
        ValueError: FERROKET_SIMD names none of this processor's.
    """

def profile_network(words: list[int], tables: list[float], inputs: list[float], is_single: bool) -> list[float]:
    """The seconds that each operation of a network's program takes for inputs ``(n, H)``, row by row.

    Raises:
        ValueError: the program is wrong.
    """

def keep_freed_memory() -> None:
    """Lets the process keep what it has freed, for longer than ten seconds 512 MiB at most, with glibc's allocator.

    Variables of the allocator that the user has set have precedence: then nothing happens.

    Raises:
        OSError: no thread can be started.
    """

@final
class Launcher:
    """The launcher that started this process, and what it says of its ranks; the size is None where it says none.

    Its kind is "hydra", "intel", "openmpi", "slurm", "ferroket", "prrte", "pals", "flux" or "mvapich".
    """

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int | None: ...

@final
class MpiLibrary:
    """An MPI library: the file, what it is, how it was found, and all that was tried as (place, outcome)."""

    @property
    def path(self) -> Path: ...
    @property
    def family(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def origin(self) -> str: ...
    @property
    def attempts(self) -> list[tuple[str, str]]: ...
    @property
    def variable(self) -> tuple[str, Path] | None:
        """A variable, and its value, that has to be in the environment before MPI starts, if it isn't set."""

@final
class Mpi:
    """The MPI that runs in this process, from its library's point of view."""

    @property
    def library(self) -> MpiLibrary: ...
    @property
    def thread_level(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def allgather(self, /, own: bytes) -> list[bytes]:
        """Gathers bytes, of any length on each rank, from all ranks, by rank. A collective of all ranks."""
    def overhead(self, /) -> tuple[float, float]:
        """Seconds of a call through the wrapper and of the library's own, on this rank alone."""
    def wait_for_all(self, /) -> bool:
        """Waits, asleep, until all ranks are here; False if MPI is over. A collective of all ranks."""
    def abort(self, /, code: int) -> None:
        """Ends the whole job with an exit code."""
    def finish(self, /) -> None:
        """Finalizes MPI if it was started here; later calls do nothing."""

@final
class Beacon:
    """What this rank says to the others of its node: why it ends, or that it ends as it should."""

    def __new__(cls, /) -> Beacon: ...
    @property
    def address(self) -> tuple[int, int] | None:
        """Process and file descriptor, for ``watch_ranks``; None where the system has no such thing."""
    @staticmethod
    def reported() -> None:
        """This rank has said why it ends."""
    @staticmethod
    def finished() -> None:
        """This rank has done its work, as all have."""

@final
class Deadline:
    """Context manager that ends the process with exit code 1 if its block takes longer than ``seconds``.

    It does so at once if another rank of the node has ended.
    """

    def __new__(cls, /, rank: int, seconds: float, message: str) -> Deadline: ...
    def __enter__(self, /) -> None: ...
    def __exit__(
        self,
        /,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...

def detect_launcher() -> Launcher | None:
    """The launcher that started this process, or None; a process that a rank has started is no rank."""

def unknown_launcher() -> str | None:
    """The variable by which a launcher that isn't known has told this process its number, as ``NAME=value``."""

def is_child_of_rank() -> bool:
    """Whether a rank has started this process, so that what the launcher told that rank is not for this one."""

def mark_of_children() -> tuple[str, str]:
    """A variable, and its value, by which the children of this rank know that they are no ranks."""

def left_over_variables() -> str | None:
    """Why the variables of a launcher can't be those of this process, if so."""

def find_mpi(prefixes: list[Path]) -> MpiLibrary:
    """The MPI library that ``attach_mpi`` would use. Opens it, but doesn't start MPI."""

def attach_mpi(prefixes: list[Path]) -> Mpi:
    """Starts MPI, or joins the one that runs. Collective over all ranks of the job."""

def is_trampoline_attached() -> bool:
    """Whether jaxlib's MPItrampoline has this file as its wrapper."""

def mpi_calls() -> tuple[int, list[tuple[int, str, int]]]:
    """How many calls of MPI have come back, and those that XLA is in: number, description, and the thread."""

def mpi_traffic() -> list[tuple[str, int, int, int]]:
    """What this process has sent over MPI so far.

    Function, number of ranks that take part (0 for all), calls, and the bytes that it put into its messages: its part
    of what is gathered, its values of what is reduced.
    """

def announce_group(color: int, ranks: list[int]) -> None:
    """Announces the group that XLA will ask for next, by its first device's number and its ranks.

    Waits until XLA has asked for what another thread has announced before.
    """

def withdraw_group(color: int, ranks: list[int]) -> None:
    """Takes an announcement back, if XLA hasn't asked."""

def unannounced_groups() -> int:
    """How many groups XLA has asked for without an announcement, so that all ranks had to take part."""

def compare_programs(comparing: bool) -> None:
    """Whether ranks compare which programs they run, from the next call of MPI on: all of them do, or none."""

def program_marker(program: int, ranks: list[int], kind: str) -> list[int]:
    """What the marker of a program on devices of these ranks says: four numbers, of which the first is always the same.

    A program is "spread" if it works on values that are spread over ranks, "whole" if each rank has all of them, "own"
    if it belongs to the runtime itself. The marker of a "place" stands in a branch or a loop, which has the program's
    number.
    """

def name_program(program: int, name: str) -> None:
    """Gives a program its name in messages."""

def compare_at_marker(program: int) -> None:
    """Has ranks compare what they run at the marker of a program, too: some of its collectives come before it."""

def wait_for_difference() -> tuple[str, int]:
    """Waits until this rank finds that others are in another call than it is itself, and says in which it is.

    That call doesn't come back: who waits here has to end the job.
    """

def marker_handler() -> object:
    """The handler that keeps the marker of a program, a capsule for ``jax.ffi.register_ffi_target``."""

def set_yielding(yielding: bool) -> None:
    """Whether ranks that wait in MPI give their core away, since they share it with others, or keep it."""

def announce_crashes(who: str) -> None:
    """From now on a crash of this process is announced on stderr as one of ``who``."""

@final
class Found:
    """Ranks of this node as one of them has found them, in open file descriptors."""

    @property
    def events(self) -> int:
        """What happens to them, in its order."""
    @property
    def ranks(self) -> list[tuple[str, int, int, int]]:
        """The name of each, its process, and the file descriptors of that and of its beacon."""
    @property
    def oom_kills(self) -> int | None:
        """What ``oom_kills`` returned then."""

def find_ranks(ranks: list[tuple[str, tuple[int, int]]]) -> Found:
    """Finds ranks of this node (name, address of the beacon), for ``watch_ranks``; leaves out those that it can't see.

    Raises:
        OSError: no file descriptor is left.
    """

def watch_ranks(
    events: int,
    ranks: list[tuple[str, int, int, int]],
    oom_kills: int | None,
    listener: int | None,
    address: str | None,
    password: str,
) -> None:
    """Watches ranks that were found until all have ended: says so if one is killed. Then ends what they have started.

    Takes the descriptors over, with that of the socket where the watchers of other nodes find rank 0's. Those connect
    to ``address``, with the job's password.
    """

def oom_kills() -> int | None:
    """How many processes of this node the kernel has killed for lack of memory, where it tells."""

def who_killed(before: int | None) -> str:
    """Who killed a process by SIGKILL, as far as can be told, if ``oom_kills()`` was ``before`` some time ago."""

def launcher_console() -> Path | None:
    """The stderr of the mpirun that started this process, if it runs on this node and can be opened."""

def exit_now(code: int) -> None:
    """Ends this process at once, with no exit handlers."""
