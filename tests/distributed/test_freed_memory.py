"""What a rank keeps of the memory that it has freed: buffers of a step, but never more than is promised."""

import sys

import pytest

from support.mpi import Finished, run_alone, run_ranks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")

START = """
import ctypes, re, threading, time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from ferroket import _lib

MIB = 1 << 20
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

def resident():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def blocks(number, size):
    found = [libc.malloc(size) for _ in range(number)]
    for block in found:
        ctypes.memset(block, 1, size)
    return found

def free(found):
    for block in reversed(found):
        libc.free(block)

def threads():
    return {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
"""
KEPT = START + "_lib.keep_freed_memory()\n"


def run(script: str, **env: str) -> Finished:
    return run_alone(script, **env).ok()


def test_buffers_that_are_freed_and_allocated_again_cost_no_page_faults() -> None:
    run(
        KEPT
        + """
for _ in range(3):
    free(blocks(12, 16 * MIB))
before = getrusage(RUSAGE_SELF).ru_minflt
for _ in range(5):
    free(blocks(12, 16 * MIB))
faults = getrusage(RUSAGE_SELF).ru_minflt - before
assert faults < 5 * 12 * 16 * MIB / 4096 / 20, faults
"""
    )


def test_what_is_freed_below_a_block_that_lives_goes_back() -> None:
    run(
        KEPT
        + """
before = resident()
freed = blocks(24, 31 * MIB)
lives = libc.malloc(31 * MIB)
free(freed)
assert resident() - before > 700 * MIB
freed = blocks(7, 31 * MIB)  # 217 MiB at the end of the heap, which may stay
free(freed)
time.sleep(10.5)
kept = resident() - before
assert kept < (256 + 16) * MIB, kept / MIB
"""
    )


@pytest.mark.thorough
def test_what_many_threads_have_freed_goes_back() -> None:
    run(
        KEPT
        + """
before = resident()
allocated, over = threading.Barrier(25), threading.Event()

def work():
    freed = blocks(10, 4 * MIB)  # of a heap of its own, if it gets one
    lives = libc.malloc(64)
    freed += blocks(4, 4 * MIB)
    free(freed)
    allocated.wait()
    over.wait()

for _ in range(24):
    threading.Thread(target=work, daemon=True).start()
allocated.wait()
time.sleep(10.5)
kept = resident() - before
over.set()
assert kept < (512 + 16) * MIB, kept / MIB
"""
    )


@pytest.mark.parametrize("setting", ["MALLOC_ARENA_MAX=2", "GLIBC_TUNABLES=glibc.malloc.trim_threshold=131072"])
def test_the_users_own_settings_have_precedence(setting: str) -> None:
    run(KEPT + 'assert "ferroket memory" not in threads()', **dict([setting.split("=", 1)]))


def test_without_a_launcher_nothing_is_kept() -> None:
    run(
        START
        + """
import ferroket as fk
running = threads()
fk.initialize()
before = resident()  # after the imports
free(blocks(8, 16 * MIB))
assert resident() - before < 16 * MIB
assert threads() == running
"""
    )


@pytest.mark.mpi
def test_under_a_launcher_it_is_kept_within_the_bound() -> None:
    """Blocks of all sizes, freed in no order; ten of them, of 4 MiB at most, live on."""
    run_ranks(
        START
        + """
import random
import ferroket as fk

info = fk.initialize()
assert "ferroket memory" in threads()
if info.rank == 0:
    rng = random.Random(0)
    before = resident()
    sizes = [1 << rng.randrange(10, 23) for _ in range(1200)]
    found = [block for size in sizes for block in blocks(1, size)]
    used = resident() - before
    assert used > 600 * MIB, used / MIB
    rng.shuffle(found)
    free(found[10:])
    time.sleep(10.5)
    kept = resident() - before
    assert kept < (256 + 10 * 4 + 16) * MIB, kept / MIB
""",
        2,
    ).ok()
