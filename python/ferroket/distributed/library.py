"""Where MPI libraries and their launchers are."""

import shutil
import site
import sys
from pathlib import Path

_NAMES = ("mpirun", "mpiexec")


def search_prefixes() -> list[Path]:
    """The environments in whose ``lib`` an MPI library may be, in the order of mpi4py."""
    user = [Path(site.getuserbase())] if site.ENABLE_USER_SITE else []
    return list(dict.fromkeys([Path(sys.prefix), *user, Path(sys.base_prefix)]))


def find_mpirun(library: Path) -> Path:
    """The ``mpirun`` of the installation that an MPI library is part of.

    Args:
        library: the library's file; its launcher lies in ``bin`` of one of the folders above.

    Raises:
        FileNotFoundError: there is none, and none on PATH.
    """
    for prefix in library.parents[1:4]:
        for name in _NAMES:
            if (prefix / "bin" / name).exists():
                return prefix / "bin" / name
    # A distribution's library lies in /usr/lib/ARCH/..., its launcher on PATH.
    for name in _NAMES:
        found = shutil.which(name)
        if found:
            return Path(found)
    raise FileNotFoundError(
        f"no mpirun belongs to {library}: there is none in the bin of {library.parent.parent}, nor on PATH"
    )
