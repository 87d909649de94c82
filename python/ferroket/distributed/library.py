"""Where MPI libraries and their launchers are."""

import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ferroket import _lib

# The launchers' names by what their `--version` says. Debian has those of several MPIs in one folder, where the plain
# names are of any. Intel's mpirun is a script that finds its parts on PATH and keeps signals to itself.
_NAMES = {
    "Open MPI": ("mpirun.openmpi", "mpirun", "mpiexec"),
    "Intel(R) MPI": ("mpiexec.hydra", "mpiexec", "mpirun"),
    "HYDRA": ("mpirun.mpich", "mpirun", "mpiexec", "mpiexec.hydra"),
}

_ASKING = 10.0


def search_prefixes() -> list[Path]:
    """The environments in whose ``lib`` an MPI library may be, in the order of mpi4py."""
    user = [Path(site.getuserbase())] if site.ENABLE_USER_SITE else []
    return list(dict.fromkeys([Path(sys.prefix), *user, Path(sys.base_prefix)]))


def find_mpirun(library: _lib.MpiLibrary) -> Path:
    """The launcher of the installation that an MPI library is part of.

    It lies in ``bin`` of a folder above the library, or on PATH. A launcher of another MPI is passed over: its ranks
    would be independent runs.

    Raises:
        FileNotFoundError: there is none.
    """
    mark = _mark(library)
    others = []
    for launcher in _candidates(library.path, _NAMES[mark]):
        if mark in _version(launcher):
            return launcher
        others.append(str(launcher))
    passed = f" ({', '.join(others)} belongs to another MPI)" if others else ""
    raise FileNotFoundError(
        f"no mpirun belongs to {library.version}, {library.path}: there is none in a `bin` beside it, nor on "
        f"PATH{passed}. Install the launcher of this MPI, or name another MPI's library in FERROKET_LIBMPI"
    )


def _mark(library: _lib.MpiLibrary) -> str:
    """What the launcher of a library calls itself."""
    if library.family == "Open MPI":
        return "Open MPI"
    return "Intel(R) MPI" if "Intel" in library.version else "HYDRA"


def _candidates(library: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """Launchers in the order of their distance from the library."""
    for prefix in list(library.parents)[1:-1]:  # not the root, where a /bin is everybody's
        for name in names:
            if (prefix / "bin" / name).is_file():
                yield prefix / "bin" / name
    for name in names:
        found = shutil.which(name)
        if found:
            yield Path(found)


def _version(launcher: Path) -> str:
    """What a launcher says of itself, nothing if it can't be run."""
    try:
        asked = subprocess.run(
            [launcher, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASKING, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.decode(errors="replace")
