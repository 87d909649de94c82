"""The wrapper's functions, called as XLA calls them, on two ranks, against every MPI.

XLA alone doesn't reach everything: statuses, MPI_IN_PLACE and the special ranks are part of the ABI too.
"""

import pytest

from support.mpi import PREFIXES, mpirun, run_ranks

pytestmark = pytest.mark.mpi

# Defines the library under test as `lib`, with our own numbers; MPI is started by the wrapper itself.
PRELUDE = """
import ctypes, os
import numpy as np
from ferroket import _lib
lib = ctypes.CDLL(_lib.__file__)
SUM, INT32, DOUBLE, BYTE, WORLD, REQUEST_NULL = 0x21, 0x250, 0x214, 0x247, 0x101, 0x180
size_t = ctypes.c_size_t

class Status(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_uint64 * 3)] + [(n, ctypes.c_int) for n in ("source", "tag", "error")]

def call(name, *arguments):
    arguments = [size_t(a) if isinstance(a, int) and a >= 0x20 else a for a in arguments]
    assert getattr(lib, f"MPIABI_{name}")(*arguments) == 0, name

def ptr(array):
    return ctypes.c_void_p(array.ctypes.data)

provided, rank, size, flag = (ctypes.c_int() for _ in range(4))
call("Init_thread", None, None, 1024, ctypes.byref(provided))
assert provided.value == 4096
call("Comm_rank", WORLD, ctypes.byref(rank))
call("Comm_size", WORLD, ctypes.byref(size))
assert size.value == 2
"""

END = """
call("Finalize")
call("Finalized", ctypes.byref(flag))
assert flag.value == 1
call("Finalize")
"""

PROGRAMS = {
    "thread main on any thread": """
import threading
def ask():
    call("Is_thread_main", ctypes.byref(flag))
thread = threading.Thread(target=ask); thread.start(); thread.join()
assert flag.value == 1
""",
    "allreduce, in place too": """
x = np.arange(5, dtype=np.float64) + rank.value
out = np.zeros(5)
call("Allreduce", ptr(x), ptr(out), 5, DOUBLE, SUM, WORLD)
assert (out == 2 * np.arange(5) + 1).all()
call("Allreduce", ctypes.c_void_p(1), ptr(x), 5, DOUBLE, SUM, WORLD)
assert (x == out).all()
""",
    "sendrecv with a status": """
x = np.array([rank.value + 10], np.int32)
out = np.zeros(1, np.int32)
status = Status()
other = 1 - rank.value
call("Sendrecv", ptr(x), 1, INT32, other, 7, ptr(out), 1, INT32, -1, -2, WORLD, ctypes.byref(status))
assert out[0] == 10 + other
assert (status.source, status.tag) == (other, 7), (status.source, status.tag)
""",
    "no process on the other side": """
out = np.array([-5], np.int32)
call("Sendrecv", ptr(out), 1, INT32, -3, 0, ptr(out), 1, INT32, -3, 0, WORLD, None)
assert out[0] == -5
""",
    "requests": """
x, out = np.full(3, rank.value, np.int32), np.zeros(3, np.int32)
send, receive = size_t(), size_t()
other = 1 - rank.value
status = Status()
call("Irecv", ptr(out), 3, INT32, other, 4, WORLD, ctypes.byref(receive))
call("Isend", ptr(x), 3, INT32, other, 4, WORLD, ctypes.byref(send))
call("Wait", ctypes.byref(send), None)
call("Wait", ctypes.byref(receive), ctypes.byref(status))
assert send.value == receive.value == REQUEST_NULL
assert (out == other).all() and (status.source, status.tag) == (other, 4)
""",
    "groups": """
new = size_t()
call("Comm_split", WORLD, 0, 1 - rank.value, ctypes.byref(new))
call("Comm_rank", new.value, ctypes.byref(flag))
assert flag.value == 1 - rank.value
call("Comm_free", ctypes.byref(new))
assert new.value == 0x100
call("Comm_split", WORLD, rank.value, 0, ctypes.byref(new))
call("Comm_size", new.value, ctypes.byref(flag))
assert flag.value == 1
late = new
""",
    "texts": """
text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
call("Get_library_version", text, ctypes.byref(length))
assert b"MPI" in text.value and length.value > 5
call("Error_string", 1, text, ctypes.byref(length))
assert len(text.value) > 3
call("Get_version", ctypes.byref(flag), ctypes.byref(length))
assert flag.value >= 3
""",
}


@pytest.mark.quick("mpich")
@pytest.mark.parametrize("mpi", PREFIXES)
def test_calls(mpi: str) -> None:
    run_ranks(PRELUDE + "".join(PROGRAMS.values()) + END + 'call("Comm_free", ctypes.byref(late))', 2, mpi=mpi).ok()


def test_calls_of_the_standard_abi() -> None:
    """MPICH 5 ships a library of the MPI-5 ABI beside its own; mpi4py has no module for it, and isn't needed here."""
    libraries = sorted((mpirun().parents[1] / "lib").glob("libmpi_abi.so.*"))
    assert libraries, "MPICH 5 has a libmpi_abi"
    run_ranks(
        PRELUDE + "".join(PROGRAMS.values()) + END + 'call("Comm_free", ctypes.byref(late))',
        2,
        FERROKET_LIBMPI=str(libraries[0]),
    ).ok()


def test_who_initialised_mpi_finalizes_it() -> None:
    script = (
        "from mpi4py import MPI\n"
        + PRELUDE
        + """
call("Finalize")
assert not MPI.Is_finalized()
assert MPI.COMM_WORLD.allreduce(1) == 2
"""
    )
    run_ranks(script, 2).ok()


def test_a_message_of_the_user_never_meets_one_of_xla() -> None:
    """Both send the same tag over what each calls COMM_WORLD; the private duplicate keeps them apart."""
    script = (
        "from mpi4py import MPI\n"
        + PRELUDE
        + """
mine, xlas, out = np.array([1], np.int32), np.array([2], np.int32), np.zeros(1, np.int32)
if rank.value == 0:
    MPI.COMM_WORLD.Send(mine, 1, tag=3)
    request = size_t()
    call("Isend", ptr(xlas), 1, INT32, 1, 3, WORLD, ctypes.byref(request))
    call("Wait", ctypes.byref(request), None)
else:
    request = size_t()
    call("Irecv", ptr(out), 1, INT32, 0, 3, WORLD, ctypes.byref(request))
    call("Wait", ctypes.byref(request), None)
    assert out[0] == 2
    MPI.COMM_WORLD.Recv(out, 0, tag=3)
    assert out[0] == 1
"""
    )
    run_ranks(script, 2).ok()


def test_groups_that_do_not_fit_end_the_job_with_the_reason() -> None:
    script = (
        PRELUDE
        + """
new = size_t()
call("Comm_split", WORLD, 0, 1, ctypes.byref(new))  # both ranks think that they are the second
x = np.zeros(1)
call("Allreduce", ptr(x), ptr(x), 1, DOUBLE, SUM, WORLD)  # rank 1 got its place, and goes on to wait for rank 0
"""
    )
    job = run_ranks(script, 2, timeout=30)
    assert job.returncode != 0
    assert "asked for place 1 in the group of processes that starts with device 0, and got place 0" in job.stderr


def test_an_unknown_datatype_ends_the_job_with_the_reason() -> None:
    script = PRELUDE + 'call("Allreduce", ptr(np.zeros(1)), ptr(np.zeros(1)), 1, 0x201, SUM, WORLD)'
    job = run_ranks(script, 2, timeout=30)
    assert job.returncode != 0
    assert "MPI_Allreduce was called with a datatype that this wrapper doesn't know (number 0x201" in job.stderr


@pytest.mark.parametrize("mpi", ["mpich"])
def test_too_many_communicators_end_the_job_with_the_reason(mpi: str) -> None:
    """XLA doesn't look whether it got one."""
    script = (
        PRELUDE
        + """
news = [size_t() for _ in range(3000)]
for new in news:
    call("Comm_split", WORLD, 0, rank.value, ctypes.byref(new))
print("went on")
"""
    )
    job = run_ranks(script, 2, mpi=mpi, timeout=60)
    assert job.returncode != 0
    assert "went on" not in job.stdout
    assert "making a communicator" in job.stderr, job.stderr
    assert "Use fewer groups: meshes of the same axes and devices in all programs" in job.stderr
