"""The compiled half of Ferroket: FFI handlers for JAX, and the MPI of this process."""

from pathlib import Path
from types import TracebackType
from typing import Any, final

def ffi_handlers() -> dict[str, Any]:
    """The handlers by name, each a capsule as ``jax.ffi.register_ffi_target`` takes it."""

@final
class Launcher:
    """The launcher that started this process."""

    @property
    def name(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

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

@final
class Deadline:
    """Context manager that ends the process with exit code 1 if its block takes longer than ``seconds``."""

    def __new__(cls, /, seconds: float, message: str) -> Deadline: ...
    def __enter__(self, /) -> None: ...
    def __exit__(
        self,
        /,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...

def detect_launcher() -> Launcher | None:
    """The launcher that started this process, or None."""

def find_mpi(prefixes: list[Path]) -> MpiLibrary:
    """The MPI library that ``attach_mpi`` would use. Opens it, but doesn't start MPI."""

def attach_mpi(prefixes: list[Path]) -> Mpi:
    """Starts MPI, or joins the one that runs. Collective over all ranks of the job."""

def is_trampoline_attached() -> bool:
    """Whether jaxlib's MPItrampoline has this file as its wrapper."""
