"""The watchdog ends a job that waits for ever, with the place of every rank, and never one that makes progress."""

import re
import textwrap
import time
from dataclasses import replace

import pytest

from ferroket.distributed import watchdog
from ferroket.distributed.watchdog import Report, describe, is_deadlock, members_of
from mpi import SOON, run_alone, run_ranks

SUM = "MPI_Allreduce of 1 float32 (4 bytes) over ranks 0, 1, 2"
PAIR = "MPI_Allreduce of 8 float64 (64 bytes) over ranks 1, 2"
LONG, SHORT, LIMIT = 700.0, 5.0, 600.0

WAITS = Report(call=SUM, finished=False, stuck=SHORT, stack="  File x")
ENDED = Report(call=None, finished=True, stuck=SHORT, stack="")
IDLE = Report(call=None, finished=False, stuck=SHORT, stack="  File y")


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([WAITS, WAITS, ENDED], True),  # nobody will come
        ([WAITS, replace(WAITS, call=PAIR), replace(WAITS, call=PAIR)], False),  # the pair is all there: it may be slow
        ([WAITS, replace(WAITS, call=PAIR), WAITS], True),  # each waits for the other
        ([WAITS, WAITS, WAITS], False),  # one long sum
        ([WAITS, WAITS, IDLE], False),  # it may wake up
        ([WAITS, WAITS], False),  # the third makes progress
        ([ENDED, ENDED, ENDED], False),  # nobody waits
        ([IDLE, IDLE, IDLE], False),
        ([WAITS, WAITS, replace(WAITS, call="MPI_Comm_split over all ranks")], True),
        ([WAITS, WAITS, replace(WAITS, call="MPI_Wait")], False),  # nobody knows for whom
    ],
)
def test_what_is_a_deadlock(reports: list[Report], expected: bool) -> None:
    assert is_deadlock(dict(enumerate(reports)), 3, LIMIT) is expected


def test_the_limit_is_for_all_that_wait() -> None:
    late = [replace(report, stuck=LONG) for report in (WAITS, WAITS, IDLE)]
    assert is_deadlock(dict(enumerate(late)), 3, LIMIT)
    assert not is_deadlock(dict(enumerate([*late[:2], IDLE])), 3, LIMIT)
    idle = [replace(IDLE, stuck=LONG)] * 3
    assert not is_deadlock(dict(enumerate(idle)), 3, LIMIT)  # nobody waits for another


def test_members_of_a_call() -> None:
    assert members_of(SUM, 4) == {0, 1, 2}
    assert members_of("MPI_Comm_split over all ranks", 4) == {0, 1, 2, 3}
    assert members_of("MPI_Wait", 4) is None
    assert members_of("MPI_Allreduce over a group of ranks that only XLA knows", 4) is None


def test_ranks_in_one_place_are_described_together() -> None:
    text = describe({0: WAITS, 1: ENDED, 2: replace(WAITS, stuck=9)}, ["a", "b", "c"])
    assert f"ranks 0 (a), 2 (c) wait in {SUM}\n  File x\n" in text
    assert "rank 1 (b) has ended its script" in text


@pytest.mark.parametrize("value", ["soon", "-1", "nan"])
def test_a_limit_that_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERROKET_WATCHDOG", value)
    with pytest.raises(ValueError, match=f"FERROKET_WATCHDOG is '{value}', but has to be a number of seconds"):
        watchdog.limit_from_environment()


PRELUDE = """
import ferroket as fk
info = fk.initialize()
import sys, threading, time
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("S",))

def total(mesh=mesh, n=1):
    size = n * mesh.size
    x = jax.make_array_from_callback((size,), NamedSharding(mesh, P("S")), lambda i: np.ones(size, np.float32)[i])
    f = jax.shard_map(lambda x: jax.lax.psum(x, "S"), mesh=mesh, in_specs=P("S"), out_specs=P())
    return float(jax.jit(f)(x)[0])

assert total() == info.size
"""


def _hangs(body: str, n: int = 2, **env: str) -> str:
    """Runs a job that hangs, and returns what the watchdog says."""
    job = run_ranks(PRELUDE + textwrap.dedent(body), n, timeout=60, **env)
    found = re.search(r"HANGS AT ([\d.]+)", job.stdout)
    assert job.returncode == 1, job.stdout + job.stderr
    assert found, job.stdout
    assert job.stderr.count("ferroket: the job hangs") == 1, job.stderr
    assert time.time() - float(found[1]) < SOON, job.stderr
    return job.stderr


@pytest.mark.quick
@pytest.mark.mpi
def test_the_classic_mistake_with_the_stack_of_every_rank() -> None:
    text = _hangs("""
    def the_mistake():
        print(f"HANGS AT {time.time()}\\n", end="", flush=True)
        total()

    if jax.process_index() == 0:
        the_mistake()
    """)
    assert re.search(r"rank 0 \(.*\) waits in MPI_Allreduce of 1 float32 \(4 bytes\) over ranks 0, 1\n", text), text
    assert "in the_mistake\n" in text
    assert "in total\n" in text
    assert re.search(r"rank 1 \(.*\) has ended its script\n", text), text


@pytest.mark.mpi
def test_different_collectives_on_each_rank() -> None:
    text = _hangs("""
    print(f"HANGS AT {time.time()}\\n", end="", flush=True)
    total(Mesh(np.array(jax.devices()[1:]), ("S",)) if info.rank == 2 else mesh)
    """, n=3)  # fmt: skip
    assert re.search(
        r"ranks 0 \(.*\), 1 \(.*\) wait in MPI_Allreduce of 1 float32 \(4 bytes\) over ranks 0, 1, 2\n", text
    )
    assert re.search(r"rank 2 \(.*\) waits in MPI_Comm_create_group over ranks 1, 2\n", text), text


@pytest.mark.mpi
def test_a_mesh_whose_ranks_do_not_all_come() -> None:
    text = _hangs("""
    if info.rank == 0:
        print(f"HANGS AT {time.time()}\\n", end="", flush=True)
        total(Mesh(np.array(jax.devices()[:2]), ("S",)))
    """, n=3)  # fmt: skip
    assert re.search(r"rank 0 \(.*\) waits in MPI_Comm_create_group over ranks 0, 1\n", text), text
    assert re.search(r"ranks 1 \(.*\), 2 \(.*\) have ended their scripts\n", text), text


@pytest.mark.mpi
def test_a_rank_that_could_wake_up_gets_the_whole_limit() -> None:
    text = _hangs(
        """
    if info.rank == 0:
        print(f"HANGS AT {time.time()}\\n", end="", flush=True)
        total()
    threading.Event().wait()
    """,
        FERROKET_WATCHDOG="4",
    )
    assert re.search(r"rank 1 \(.*\) is in no collective, and idle\n.*waiter.acquire", text, re.DOTALL), text
    seconds = re.search(r"has made no progress for (\d+) s", text)
    assert seconds, text
    assert 4 <= int(seconds[1]) < 8


@pytest.mark.mpi
@pytest.mark.parametrize(
    "work",
    [
        "sum(i for i in range(10**7) for _ in range(4))",
        "while time.monotonic() < start + 6: np.linalg.eigvalsh(np.ones((200, 200)))",
        "import subprocess\nsubprocess.run([sys.executable, '-c', 'sum(i for i in range(10**7) for _ in range(4))'])",
        "while time.monotonic() < start + 6: open('/dev/zero', 'rb').read(1 << 20); time.sleep(0.05)",
        "f = lambda x: x\nwhile time.monotonic() < start + 6: jax.jit(lambda x: x + time.monotonic())(1.0)",
    ],
    ids=["python", "numpy", "another process", "reading", "compiling"],
)
def test_a_job_that_makes_progress_is_left_alone(work: str) -> None:
    """Rank 0 waits far longer than the limit, for a rank that works."""
    body = f"start = time.monotonic()\nif info.rank == 1:\n{textwrap.indent(work, '    ')}\nassert total() == 2\n"
    run_ranks(PRELUDE + body, 2, FERROKET_WATCHDOG="2").ok()


@pytest.mark.mpi
def test_a_rank_that_ends_first_waits_for_the_work_of_the_others() -> None:
    run_ranks(PRELUDE + "if info.rank == 0:\n    sum(i for i in range(10**8))\n", 2, FERROKET_WATCHDOG="1").ok()


@pytest.mark.mpi
def test_it_can_be_turned_off() -> None:
    body = "assert not [t for t in threading.enumerate() if 'watchdog' in t.name]\n"
    run_ranks(PRELUDE + body, 2, FERROKET_WATCHDOG="0").ok()
    wrong = run_ranks(PRELUDE, 2, FERROKET_WATCHDOG="x")
    assert wrong.returncode
    assert "FERROKET_WATCHDOG is 'x'" in wrong.stderr


def test_a_single_process_has_none() -> None:
    run_alone("""
    import threading
    import ferroket as fk
    fk.initialize()
    assert threading.active_count() == 1
    """).ok()
