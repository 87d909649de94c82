"""Compiled programs are kept in files, and read by the other ranks of a node and by the next job.

JAX has such a cache, too. It keeps what process 0 compiles, by keys that name the process, so that no rank but 0 finds
its programs; and it writes in place, so that others may read halves of files. Here the key of a program is the same on
all ranks. Of those ranks of a node that need a program at once, one compiles it and the others wait.

A program that XLA reads may run independent collectives in another order than the same program compiled. So all ranks
run a program that spans processes as it is read, the one that has compiled it as well.

What else a compiled program depends on is in the name of the folder: the kind of CPU, how many threads XLA has, its
flags, and versions. Whatever goes wrong with files, programs are compiled as if there were no cache.
"""

import contextlib
import errno
import hashlib
import os
import platform
import re
import socket
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ferroket._compat.jax import Compilation, replace_compilation
from ferroket.distributed import affinity

_OFF = "off"
_SUFFIX = ".program"
_LIMIT = 500 << 20  # bytes
_DAY = 86400.0  # seconds
# What tells kinds of CPUs apart: on x86 by the flags, on ARM by the features.
_KIND = re.compile(
    r"^(?:vendor_id|cpu family|model|model name|stepping|flags|Features|CPU \w+)\s*:.*", re.MULTILINE | re.ASCII
)


def start(rank: int) -> None:
    """From now on programs for CPUs are kept in files, if the user hasn't turned that off."""
    root = folder(os.environ)
    if root:
        replace_compilation(CompileCache(root, trims=rank == 0).program)


def problem(environment: Mapping[str, str]) -> str | None:
    """Why the cache's folder must not be used, if so: what is in there is run, so nobody else may write to it."""
    root = folder(environment)
    if root is None:
        return None
    for place in (root, *(entry for entry in _entries(root) if entry.is_dir())):
        try:
            status = place.stat()
        except OSError:
            continue
        if status.st_uid != os.geteuid():
            return f"{place} (FERROKET_CACHE) belongs to another user, whose compiled programs would be run"
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"others may write to {place} (FERROKET_CACHE), whose programs would be run: chmod go-w {place}"
    return None


def _entries(root: Path) -> list[Path]:
    try:
        return list(root.iterdir())
    except OSError:
        return []


def folder(environment: Mapping[str, str]) -> Path | None:
    """The folder of the cache, which may not exist yet; None if there is to be no cache."""
    chosen = environment.get("FERROKET_CACHE")
    if chosen == _OFF:
        return None
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute()  # noqa: PTH111 - Path's own fails without a home
    users = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(users, "ferroket") if Path(users).is_absolute() else None


class CompileCache:
    """The compiled programs of this process, and of others that share the folder."""

    def __init__(self, root: Path, *, trims: bool) -> None:
        """A cache that need not exist.

        Args:
            root: its folder.
            trims: whether this process removes the oldest files where there are too many.
        """
        self._root = root
        self._folder = root / kind_of_programs()
        self._trims = trims
        self._writes = self._makes_folders()
        # Seconds that may be lost by waiting for programs that then aren't in the cache, because it can't be written,
        # or because the process that has the turn has been stopped.
        self._patience = 30.0

    def program(self, compilation: Compilation) -> Any:
        """A program, read if it is there, else compiled."""
        key = compilation.key() if compilation.can_be_kept else None
        if key is None:
            return compilation.compile()
        file = self._folder / f"{key}{_SUFFIX}"
        program = _read(file, compilation)
        if program is None:
            with self._turn(file):
                program = _read(file, compilation)
                if program is None:
                    _count("misses")
                    return self._compiled(file, compilation)
        _count("hits")
        return program

    def _compiled(self, file: Path, compilation: Compilation) -> Any:
        """The program, compiled and written to its file, and read back where it spans processes."""
        program = compilation.compile()
        stored = compilation.dump(program)
        if stored is None:
            return program
        self._write(file, stored)
        return (compilation.load(stored) if compilation.spans_processes else None) or program

    @contextlib.contextmanager
    def _turn(self, file: Path) -> Iterator[None]:
        """Waits while another process of this node compiles the same program, until its file is there.

        A turn is a name in the kernel, which frees it when the process ends in whatever way. Only compiling happens
        during a turn, which waits for nothing, so no two processes wait for each other.
        """
        if not self._writes:
            yield
            return
        begin = time.monotonic()
        # The name is asked for often, and the file system, which others share, ever less often.
        next_look, pause = begin, 0.01
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as turn:
            is_there = False
            while _is_taken(turn, file):
                now = time.monotonic()
                if now >= next_look:
                    is_there = file.exists()
                    next_look, pause = now + pause, min(2 * pause, 1.0)
                if is_there or now - begin > self._patience:
                    break
                time.sleep(0.01)
            if not is_there and not file.exists():
                self._patience -= time.monotonic() - begin
            yield

    def _makes_folders(self) -> bool:
        """Makes the folders of the cache. Returns whether files can be written there: else nobody waits for them."""
        try:
            # Each with its own rights, which those that are made as parents don't get: ranks run what is in there.
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return False
        return os.access(self._folder, os.W_OK)

    def _write(self, file: Path, stored: bytes) -> None:
        """Writes a program's file, whole or not at all. If that fails, as on a full disk, it isn't tried again."""
        if not self._writes:
            return
        try:
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=_SUFFIX, delete=False) as half:
                try:
                    half.write(zlib.compress(stored, 1))
                    half.close()
                    Path(half.name).replace(file)
                except BaseException:
                    Path(half.name).unlink(missing_ok=True)
                    raise
        except OSError:
            self._writes = False
        if self._trims:
            self._trims = False
            with contextlib.suppress(OSError):  # another job removes files, too
                _trim(self._root)


def _read(file: Path, compilation: Compilation) -> Any:
    """The program in a file; None if there is none."""
    try:
        with file.open("rb") as opened:
            age = time.time() - os.fstat(opened.fileno()).st_mtime
            compressed = opened.read()
    except OSError:
        return None
    try:
        program = compilation.load(zlib.decompress(compressed))
    except zlib.error:
        program = None
    with contextlib.suppress(OSError):
        if program is None:  # it is broken, and the next one to be written has to take its place
            file.unlink()
        elif age > _DAY:
            os.utime(file)
    return program


def _is_taken(turn: socket.socket, file: Path) -> bool:
    """Whether another process has the turn for a file; if not, this one has it now."""
    if platform.system() != "Linux":  # no names without files
        return False
    try:
        turn.bind(b"\0ferroket " + hashlib.sha256(os.fsencode(file)).hexdigest().encode())
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _count(outcome: str) -> None:
    """Tells JAX's listeners, as its own cache does."""
    from jax import monitoring

    monitoring.record_event(f"/jax/compilation_cache/cache_{outcome}")


def _trim(root: Path) -> None:
    """Removes the files that haven't been used for longest, where there are too many."""
    found = [(file.stat(), file) for file in root.glob(f"*/*{_SUFFIX}")]
    total = sum(status.st_size for status, _ in found)
    for status, file in sorted(found, key=lambda pair: pair[0].st_mtime):
        if total <= _LIMIT:
            break
        file.unlink(missing_ok=True)
        total -= status.st_size


def kind_of_programs() -> str:
    """A name for what programs depend on: the kind of CPU, the number of XLA's threads, its flags, and versions."""
    try:
        first, _, _ = Path("/proc/cpuinfo").read_text().partition("\n\n")
    except OSError:
        first = ""
    parts = [
        platform.machine(),
        *_KIND.findall(first),
        str(len(affinity.allowed())),
        *(os.environ.get(name, "") for name in ("NPROC", "PJRT_NPROC", "XLA_FLAGS")),
        *(version(name) for name in ("jaxlib", "ferroket")),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
