"""The C symbols of the compiled file: what MPItrampoline looks up, no less."""

import ctypes
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from ferroket import _lib
from support.mpi import run_alone, run_ranks

LIST = Path(__file__).parents[2] / "rust" / "mpi-abi" / "mpitrampoline-symbols.txt"
_NAME = re.compile(r"\b(?:MPIX?ABI_\w+|mpi(?:wrapper|abi)_\w+)")


def listed() -> dict[str, str]:
    """Each symbol of the list, with its kind: "data int", "data MPI_Comm", "func"."""
    kinds = {}
    for line in LIST.read_text().splitlines():
        if line.startswith("#"):
            continue
        declared = _NAME.search(line)
        assert declared, line
        kinds[declared[0]] = "func" if line.startswith("func") else line[: declared.start()].strip()
    return kinds


def test_the_list_is_whole() -> None:
    kinds = list(listed().values())
    assert len(kinds) == 641
    assert kinds.count("func") == 375


def test_every_listed_symbol_is_exported() -> None:
    library = ctypes.CDLL(_lib.__file__)
    missing = [name for name in listed() if not hasattr(library, name)]
    assert missing == []


def test_the_installed_jaxlib_asks_for_nothing_else() -> None:
    """jaxlib holds the names that its MPItrampoline looks up as C strings."""
    spec = find_spec("jaxlib")
    assert spec is not None
    assert spec.origin is not None
    asked: set[str] = set()
    for file in Path(spec.origin).parent.rglob("*.so"):
        asked.update(
            name.decode()
            for name in re.findall(rb"\0((?:MPIX?ABI|mpiwrapper|mpiabi)_[A-Za-z0-9_]+)(?=\0)", file.read_bytes())
        )
    # The variables of MPItrampoline that hold what was found have names of the same form.
    asked = {name for name in asked if not name.startswith("mpiabi_loaded_")}
    assert len(asked) > 600
    assert asked - set(listed()) == set()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("mpiabi_version_major", 2),
        ("mpiabi_version_minor", 10),
        ("MPIABI_SUCCESS", 0),
        ("MPIABI_UNDEFINED", -32766),
        ("MPIABI_THREAD_MULTIPLE", 4096),
        ("MPIABI_ANY_SOURCE", -1),
    ],
)
def test_int_constants(name: str, number: int) -> None:
    assert ctypes.c_int.in_dll(ctypes.CDLL(_lib.__file__), name).value == number


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("MPIABI_COMM_WORLD", 0x101),
        ("MPIABI_BYTE", 0x247),
        ("MPIABI_C_DOUBLE_COMPLEX", 0x216),
        ("MPIABI_SUM", 0x21),
        ("MPIABI_IN_PLACE", 1),
        ("MPIABI_STATUS_IGNORE", 0),
    ],
)
def test_pointer_constants(name: str, number: int) -> None:
    """They are the numbers of the MPI-5 standard ABI."""
    assert ctypes.c_size_t.in_dll(ctypes.CDLL(_lib.__file__), name).value == number


def test_importing_jax_with_the_wrapper_opens_no_mpi() -> None:
    script = """
import os
from ferroket import _lib
assert not _lib.is_trampoline_attached()
os.environ["MPITRAMPOLINE_LIB"] = _lib.__file__
import jaxlib, jax
assert _lib.is_trampoline_attached()
assert not [line for line in open("/proc/self/maps") if "libmpi" in line]
assert float(jax.numpy.ones(3).sum()) == 3.0
"""
    run_alone(script).ok()


def test_the_verbose_mode_of_mpitrampoline_works_before_mpi_is_started() -> None:
    script = """
import os
from ferroket import _lib
os.environ["MPITRAMPOLINE_LIB"] = _lib.__file__
os.environ["MPITRAMPOLINE_VERBOSE"] = "1"
import jaxlib, jax
"""
    job = run_alone(script)
    assert job.returncode == 0
    assert "Ferroket's MPI wrapper; the MPI library is opened when MPI is started" in job.stderr
    assert "Initialization complete" in job.stderr


def test_a_function_that_is_not_provided_names_itself_and_ends_the_process() -> None:
    script = "import ctypes; from ferroket import _lib; ctypes.CDLL(_lib.__file__).MPIABI_Alltoallw()"
    job = run_alone(script)
    assert job.returncode == 1
    assert "ferroket: MPI_Alltoallw is not among the MPI functions that this wrapper provides" in job.stderr


@pytest.mark.quick
@pytest.mark.mpi
def test_a_function_that_is_not_provided_ends_the_job() -> None:
    script = """
import ferroket as fk
info = fk.initialize()
import ctypes, time
from ferroket import _lib
if info.rank == 1:
    ctypes.CDLL(_lib.__file__).MPIABI_Bcast(None, 1, 0x247, 0, 0x101)
time.sleep(60)
"""
    job = run_ranks(script, 2, timeout=30)
    assert job.returncode != 0
    assert "ferroket: rank 1: MPI_Bcast is not among" in job.stderr


def test_a_call_before_mpi_is_started_says_so() -> None:
    script = "import ctypes; from ferroket import _lib; ctypes.CDLL(_lib.__file__).MPIABI_Comm_rank(0x101, None)"
    job = run_alone(script)
    assert job.returncode == 1
    assert "MPI_Comm_rank was called before MPI_Init_thread" in job.stderr
