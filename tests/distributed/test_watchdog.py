"""The watchdog ends a job that waits for ever, with the place of every rank, and never one that makes progress."""

import json
import re
import textwrap
import time
from dataclasses import asdict, replace

import pytest

from ferroket.distributed import watchdog
from ferroket.distributed.watchdog import (
    Report,
    Watchdog,
    describe,
    find_cycle,
    find_deadlock,
    first_report,
    interval,
    members_of,
)
from support.mpi import SOON, run_alone, run_ranks

SUM = "MPI_Allreduce of 1 float32 (4 bytes) over ranks 0-2"
PAIR = "MPI_Allreduce of 8 float64 (64 bytes) over ranks 1, 2"
LONG, SHORT, LIMIT = 700.0, 5.0, 600.0

WAITS = Report(calls=(SUM,), finished=False, may_act=False, stuck=SHORT, place="x", stack="  File x")
PAIRS = replace(WAITS, calls=(PAIR,))
ENDED = Report(calls=(), finished=True, may_act=False, stuck=SHORT, place="")
IDLE = Report(calls=(), finished=False, may_act=True, stuck=SHORT, place="y", stack="  File y")


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([WAITS, WAITS, ENDED], {0, 1, 2}),  # nobody will come
        ([WAITS, PAIRS, PAIRS], set()),  # the pair is all there: it may be slow
        ([WAITS, PAIRS, WAITS], {0, 1, 2}),  # each waits for the other
        ([WAITS, WAITS, WAITS], set()),  # one long sum
        ([WAITS, WAITS, IDLE], set()),  # it may wake up
        ([WAITS, WAITS], set()),  # the third makes progress
        ([ENDED, ENDED, ENDED], set()),  # nobody waits
        ([IDLE, IDLE, IDLE], set()),
        ([WAITS, WAITS, replace(WAITS, calls=("MPI_Comm_split over all ranks",))], {0, 1, 2}),
        ([WAITS, WAITS, replace(WAITS, calls=("MPI_Wait",))], set()),  # nobody knows for whom
        ([WAITS, WAITS, replace(ENDED, may_act=True)], set()),  # a program of it still waits for a callback
        ([WAITS, replace(PAIRS, may_act=True), WAITS], set()),  # a thread of rank 1 sleeps, and may come
        ([WAITS, replace(WAITS, calls=(PAIR, SUM)), WAITS], set()),  # two threads of rank 1: one sum is complete
    ],
)
def test_what_is_a_deadlock(reports: list[Report], expected: set[int]) -> None:
    assert find_deadlock(dict(enumerate(reports)), 3, LIMIT) == expected


def test_a_circle_of_some_ranks_is_found_though_others_compute() -> None:
    first, second = "MPI_Allreduce over ranks 1, 2", "MPI_Allreduce over ranks 2, 1"
    reports = {1: replace(WAITS, calls=(first,)), 2: replace(WAITS, calls=(second,)), 3: WAITS}
    assert find_cycle(reports, 5) == {1, 2, 3}  # the third waits for them
    assert find_cycle({1: reports[1], 3: WAITS}, 5) == set()


def test_thousands_that_wait_for_one_rank_are_found_to_do_no_more() -> None:
    reports = dict.fromkeys(range(1, 4096), replace(WAITS, calls=("MPI_Allreduce over all ranks",)))
    assert find_cycle(reports, 4096) == set()
    begin = time.perf_counter()
    assert find_cycle({**reports, 0: ENDED}, 4096) == set(range(4096))
    assert time.perf_counter() - begin < 1


def test_thousands_that_wait_send_few_messages() -> None:
    size, seconds = 4096, 600
    sent = [0] * (seconds + 1)
    for rank in range(size):
        at = first_report(rank)
        while at < seconds:
            sent[int(at)] += 2  # a report, and whether the stack is asked for
            at += interval(size, at)
    assert 0 < max(sent) < 100
    # A few ranks report at once, and often until they have waited for long.
    assert first_report(3) < 1
    assert interval(4, 1.0) == 0.25
    assert interval(4, 1e6) == 30


class Store:
    """JAX's store, in this process."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def key_value_set(self, key: str, value: str, *, allow_overwrite: bool = False) -> None:
        assert allow_overwrite or key not in self.values
        self.values[key] = value

    def key_value_dir_get(self, folder: str) -> list[tuple[str, str]]:
        return [(key, value) for key, value in self.values.items() if key.startswith(folder)]


@pytest.fixture
def aborted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    causes: list[str] = []
    monkeypatch.setattr(watchdog, "abort_job", lambda code, cause: causes.append(cause))
    return causes


def _report(store: Store, rank: int, report: Report, stuck: float) -> None:
    store.key_value_set(
        f"ferroket/watchdog/{rank}", json.dumps(asdict(replace(report, stuck=stuck))), allow_overwrite=True
    )


def test_stacks_are_asked_for_and_told_for_each_place(aborted: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    size = 100
    dog, store = Watchdog(0, ["n1"] * 50 + ["n2"] * 50, LIMIT), Store()
    waits = replace(WAITS, calls=("MPI_Allreduce over all ranks",), stack="")
    for clock in (2.0, 4.0, 6.0):
        for rank in range(size):
            asked = f"ferroket/watchdog-asked/{rank}" in store.values
            report = replace(ENDED if rank == 7 else waits, stack="  File a" if asked else "")
            _report(store, rank, report, clock)
        assert not aborted
        dog._end_if_deadlocked(store, clock)
    assert aborted == ["the job has made no progress for 6 s"]
    assert [key for key in store.values if "asked" in key] == ["ferroket/watchdog-asked/0"]
    text = capsys.readouterr().err
    assert "ranks 0-6, 8-99 (n1, n2) wait in MPI_Allreduce over all ranks" in text
    assert text.count("  File a") == 1
    assert "rank 7 (n1) has ended its script" in text
    assert len(text) < 20_000


def test_a_rank_that_moved_on_is_no_part_of_a_circle(aborted: list[str]) -> None:
    dog, store = Watchdog(0, ["n1"] * 3, LIMIT), Store()
    for clock in (2.0, 3.0, 4.0, 5.0, 6.0, 7.0):
        _report(store, 0, WAITS, clock)
        _report(store, 1, WAITS, clock)
        if clock == 2:
            _report(store, 2, ENDED, clock)  # and is never renewed
        dog._end_if_deadlocked(store, clock)
    assert not aborted
    for clock in (8.0, 9.0):  # stuck anew, for a shorter time than before
        assert not aborted
        for rank, each in enumerate((WAITS, WAITS, ENDED)):
            _report(store, rank, each, clock - 6.5)
        dog._end_if_deadlocked(store, clock)
    assert aborted == ["the job has made no progress for 2 s"]


def test_the_limit_is_for_all_that_wait() -> None:
    late = [replace(report, stuck=LONG) for report in (WAITS, WAITS, IDLE)]
    assert find_deadlock(dict(enumerate(late)), 3, LIMIT) == {0, 1, 2}
    assert not find_deadlock(dict(enumerate([*late[:2], IDLE])), 3, LIMIT)
    idle = [replace(IDLE, stuck=LONG)] * 3
    assert not find_deadlock(dict(enumerate(idle)), 3, LIMIT)  # nobody waits for another


def test_members_of_a_call() -> None:
    assert members_of(SUM, 4) == {0, 1, 2}
    assert members_of(PAIR, 4) == {1, 2}
    assert members_of("MPI_Comm_create_group over ranks 0-2, 5, 7-9", 10) == {0, 1, 2, 5, 7, 8, 9}
    assert members_of("MPI_Comm_split over all ranks", 4) == {0, 1, 2, 3}
    assert members_of("MPI_Wait", 4) is None
    assert members_of("MPI_Allreduce over a group of ranks that only XLA knows", 4) is None


def test_ranks_in_one_place_are_described_together() -> None:
    reports = {0: WAITS, 1: replace(ENDED, failed="Thread-1 ended by ValueError"), 2: replace(WAITS, stuck=9)}
    text = describe(reports, ["a", "b", "c", "d"], {0, 1, 2})
    assert f"ranks 0, 2 (a, c) wait in {SUM}\n  File x\n" in text
    assert "rank 1 (b) has ended its script (Thread-1 ended by ValueError)" in text
    assert "rank 3 (d) goes on" in text


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
    assert re.search(r"rank 0 \(.*\) waits in MPI_Allreduce of 1 float32 \(4 bytes\) over all ranks\n", text), text
    assert "in the_mistake\n" in text
    assert "in total\n" in text
    assert re.search(r"rank 1 \(.*\) has ended its script\n", text), text


@pytest.mark.mpi
def test_different_collectives_on_each_rank() -> None:
    text = _hangs("""
    print(f"HANGS AT {time.time()}\\n", end="", flush=True)
    total(Mesh(np.array(jax.devices()[1:]), ("S",)) if info.rank == 2 else mesh)
    """, n=3)  # fmt: skip
    assert re.search(r"ranks 0-1 \(.*\) wait in MPI_Allreduce of 1 float32 \(4 bytes\) over all ranks\n", text), text
    assert re.search(r"rank 2 \(.*\) waits in MPI_Comm_create_group over ranks 1, 2\n", text), text


@pytest.mark.mpi
def test_a_mesh_whose_ranks_do_not_all_come() -> None:
    text = _hangs("""
    if info.rank == 0:
        print(f"HANGS AT {time.time()}\\n", end="", flush=True)
        total(Mesh(np.array(jax.devices()[:2]), ("S",)))
    """, n=3)  # fmt: skip
    assert re.search(r"rank 0 \(.*\) waits in MPI_Comm_create_group over ranks 0, 1\n", text), text
    assert re.search(r"ranks 1-2 \(.*\) have ended their scripts\n", text), text


BUSY = """
def monitor():
    while True:
        end = time.monotonic() + 0.02
        while time.monotonic() < end:
            pass
        time.sleep(0.1)

threading.Thread(target=monitor, daemon=True).start()
"""


@pytest.mark.mpi
@pytest.mark.parametrize("other", ["", "threading.Event().wait()"], ids=["ended", "waits"])
def test_a_busy_thread_in_the_background_is_no_progress(other: str) -> None:
    text = _hangs(
        BUSY
        + textwrap.dedent(f"""
    if info.rank == 0:
        print(f"HANGS AT {{time.time()}}\\n", end="", flush=True)
        total()
    {other}
    """),
        FERROKET_WATCHDOG="4",
    )
    assert re.search(r"rank 0 \(.*\) waits in MPI_Allreduce", text), text


@pytest.mark.mpi
def test_two_that_wait_for_each_other_while_a_third_computes() -> None:
    text = _hangs(
        """
    first, second = (Mesh(np.array([jax.devices()[rank] for rank in ranks]), ("S",)) for ranks in ((0, 1), (1, 0)))
    if info.rank < 2:
        assert total(first) == total(second) == 2
        print(f"HANGS AT {time.time()}\\n", end="", flush=True)
        total((first, second)[info.rank])
    while True:
        np.linalg.eigvalsh(np.ones((200, 200)))
    """,
        n=3,
    )
    assert "2 of 3 ranks have made no progress" in text
    assert re.search(r"rank 2 \(.*\) goes on\n", text), text


@pytest.mark.mpi
def test_an_exception_in_a_thread_is_told_if_others_wait_for_it() -> None:
    text = _hangs("""
    def work():
        if info.rank == 1:
            raise ValueError("the reason")
        print(f"HANGS AT {time.time()}\\n", end="", flush=True)
        total()

    thread = threading.Thread(target=work, name="trainer")
    thread.start()
    thread.join()
    """)
    assert re.search(r"rank 1 \(.*\) has ended its script \(trainer ended by ValueError: the reason\)\n", text), text


@pytest.mark.mpi
def test_threads_that_come_later_are_waited_for() -> None:
    run_ranks(
        PRELUDE
        + """
reverse = Mesh(np.array(jax.devices()[::-1]), ("S",))
assert total(reverse) == 2

def work(mesh, later):
    time.sleep(4 * later)
    assert total(mesh) == 2

threads = [threading.Thread(target=work, args=(each, (each is mesh) == bool(info.rank))) for each in (mesh, reverse)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
        2,
    ).ok()


@pytest.mark.mpi
def test_a_program_that_waits_for_a_callback_after_the_script_is_waited_for() -> None:
    run_ranks(
        PRELUDE
        + """
def slow(value):
    time.sleep(4 * info.rank)
    return value

def f(x):
    return jax.lax.psum(jax.pure_callback(slow, jax.ShapeDtypeStruct(x.shape, x.dtype), x), "S")

x = jax.make_array_from_callback((2,), NamedSharding(mesh, P("S")), lambda i: np.ones(2, np.float32)[i])
y = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("S"), out_specs=P(), check_vma=False))(x)
""",
        2,
        JAX_CPU_ENABLE_ASYNC_DISPATCH="1",
    ).ok()


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
