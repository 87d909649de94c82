"""One rank fails: the job ends soon, with a code, one message with rank, host and cause, and nothing left behind."""

import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.mpi import FULL, PREFIXES, SOON, START, SUM, Finished, run_alone, run_ranks

pytestmark = pytest.mark.mpi

# Rank 1 fails, while rank 0 waits in a sum (or, with sleeping, in Python): each way of failing is one statement.
SCRIPT = (
    START
    + SUM
    + """
import ctypes, os, signal, sys, time
<before>
if info.rank == 1:
    time.sleep(0.3)
    print(f"FAILS AT {time.time()}\\n", end="", flush=True)
    <failure>
<others>
"""
)
WAITING = "total(x).block_until_ready()"
SLEEPING = "time.sleep(60)"

HOST = socket.gethostname()
TOLD = f"ferroket: rank 1 of {{}} on {HOST}"

# statement, what the message says, the code that mpirun returns (None for any but 0).
FAILURES = {
    "raises": ("raise ValueError('a reason')", "uncaught ValueError, so the whole job is aborted", 1),
    "exits with a number": ("sys.exit(3)", "sys.exit(3), so the whole job is aborted", 3),
    "exits with a text": ("sys.exit('a reason')", "sys.exit('a reason'), so the whole job is aborted", 1),
    "exits by the builtin": ("exit(4)", "sys.exit(4), so the whole job is aborted", 4),
    "has no memory": ("bytearray(1 << 60)", "uncaught MemoryError, so the whole job is aborted", 1),
    "segfaults": ("ctypes.string_at(0)", "segmentation fault (SIGSEGV), so the whole job ends", None),
    "is aborted": ("os.abort()", "abort (SIGABRT) by a library", None),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", "killed (SIGKILL)", None),
    "leaves": ("os._exit(7)", "left", None),
}


def fail(statement: str, others: str, folder: Path, mpi: str = "mpich", before: str = "") -> tuple[Finished, float]:
    """The finished job, and how long it lived after the failure."""
    script = folder / "run.py"
    text = SCRIPT.replace("<before>", before).replace("<failure>", statement).replace("<others>", others)
    script.write_text(text)
    job = run_ranks(script, 2, mpi=mpi)
    end = time.time()
    found = re.search(r"FAILS AT ([\d.]+)", job.stdout)
    assert found, job.stdout + job.stderr
    return job, end - float(found[1])


@pytest.mark.quick("raises-others wait", "segfaults-others wait")
@pytest.mark.parametrize("others", [WAITING, SLEEPING], ids=["others wait", "others sleep"])
@pytest.mark.parametrize("way", FAILURES)
def test_a_rank_fails(way: str, others: str, tmp_path: Path) -> None:
    _check(way, others, tmp_path, "mpich")


@pytest.mark.quick("is killed-openmpi")
@pytest.mark.parametrize("mpi", [mpi for mpi in PREFIXES if mpi != "mpich"])
@pytest.mark.parametrize("way", ["raises", "exits with a number", "segfaults", "is killed"])
def test_a_rank_fails_on_every_mpi(way: str, mpi: str, tmp_path: Path) -> None:
    _check(way, WAITING, tmp_path, mpi)


def _check(way: str, others: str, folder: Path, mpi: str) -> None:
    statement, message, code = FAILURES[way]
    job, seconds = fail(statement, others, folder, mpi)
    text = job.stdout + job.stderr
    assert job.returncode != 0, text
    assert code in (None, job.returncode), text
    assert seconds < SOON, text
    ours = [line for line in job.stderr.splitlines() if line.startswith("ferroket: ")]
    assert len(ours) == 1, text
    assert ours[0].startswith(TOLD.format(2)), text
    assert message in ours[0], text
    is_exception = way in ("raises", "has no memory")
    assert job.stderr.count("Traceback (most recent call last)") == is_exception, text
    if is_exception:
        assert statement in job.stderr  # the line that raised
    if way in ("segfaults", "is aborted"):
        assert job.stderr.count("Fatal Python error") == 1, text
        assert '/run.py", line' in job.stderr, text
    for trace in ("*** Begin stack trace", "stack_trace", "@     0x"):  # what XLA's C++ would print
        assert trace not in text


# The watcher sleeps while the last rank is killed, and then the launcher kills the others.
LATE = (
    START
    + SUM
    + """
import os, signal, subprocess, time
from ferroket.distributed import failure
if rank == 0:
    time.sleep(1)  # it has started
    watcher = failure._watcher.pid
    os.kill(watcher, signal.SIGSTOP)
    wakes = ["sh", "-c", f"sleep 1; kill -CONT {watcher}"]
    subprocess.Popen(wakes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
fk.distributed.barrier()
if rank == n - 1:
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    total(x).block_until_ready()
"""
)
# The watcher takes a second to start, and meanwhile the last rank is killed.
EARLY = """
import os, signal, sys, time
sys.executable = sys.argv[1]
from ferroket.distributed import startup

bind = startup._bind
def kill_one(reports, machines, rank, mode):
    if rank == len(reports) - 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    return bind(reports, machines, rank, mode)
startup._bind = kill_one
startup.initialize()
"""


@pytest.mark.parametrize("mpi", [mpi for mpi in PREFIXES if FULL or mpi != "impi-rt"])
@pytest.mark.parametrize("script", [LATE, EARLY], ids=["late", "early"])
def test_the_rank_that_is_killed_is_named_however_late_the_watcher_is(script: str, mpi: str, tmp_path: Path) -> None:
    file = tmp_path / "run.py"
    file.write_text(script)
    slow = tmp_path / "python"
    slow.write_text(f'#!/bin/sh\nsleep 1\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    job = run_ranks(file, 3, str(slow), mpi=mpi)
    assert job.returncode != 0
    ours = [line for line in job.stderr.splitlines() if line.startswith("ferroket: ")]
    assert len(ours) == 1, job.stderr
    assert ours[0].startswith(f"ferroket: rank 2 of 3 on {HOST}"), job.stderr
    assert "killed (SIGKILL)" in ours[0], job.stderr


# Two processes as ranks: rank 0 is killed and rank 1 aborts, in the order of ORDER, and then the watcher looks.
KILLED_AND_ABORTED = """
import os, subprocess, sys
from ferroket import _lib

rank = '''
import os, sys
from ferroket import _lib
_lib.announce_crashes(sys.argv[1])
print(*_lib.Beacon().address, flush=True)
input()
os.abort()
'''
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
ranks = {name: subprocess.Popen([sys.executable, "-c", rank, name], **pipes) for name in ("rank 0", "rank 1")}
found = _lib.find_ranks([(name, tuple(map(int, rank.stdout.readline().split()))) for name, rank in ranks.items()])
for name in os.environ["ORDER"].split(", "):
    if name == "rank 0":
        ranks[name].kill()
    else:
        print(file=ranks[name].stdin, flush=True)
    os.waitid(os.P_PID, ranks[name].pid, os.WEXITED | os.WNOWAIT)
_lib.watch_ranks(found.events, found.ranks, found.oom_kills, None, None, "")
"""


@pytest.mark.parametrize(
    ("order", "said"),
    [("rank 0, rank 1", "rank 0 was killed (SIGKILL)"), ("rank 1, rank 0", "rank 1: abort (SIGABRT) by a library")],
)
def test_of_an_abort_and_a_loss_the_first_is_the_cause(order: str, said: str) -> None:
    job = run_alone(KILLED_AND_ABORTED, ORDER=order)
    assert job.returncode == 0, job.stderr
    assert len(job.stderr.splitlines()) == 1, job.stderr
    assert job.stderr.startswith(f"ferroket: {said}"), job.stderr


# A rank may have no more files than it has; no process can be started.
NO_WATCHER = {
    "no descriptors": "resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/proc/self/fd')) - 1, hard))",
    "no process": "failure.PYTHON = ('/nowhere/python',)",
}
WATCHED = """
import os, resource, sys
import ferroket as fk
from ferroket.distributed import failure
watch, (soft, hard) = failure.watch, resource.getrlimit(resource.RLIMIT_NOFILE)

def watch_without(*arguments):
    python = failure.PYTHON
    <without>
    try:
        watch(*arguments)
    finally:
        failure.PYTHON = python
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert failure._watcher is None

failure.watch = watch_without
info = fk.initialize()
"""
PRINT = """
print(f"{value}\\n", end="", flush=True)
"""


@pytest.mark.parametrize("way", NO_WATCHER)
def test_a_job_without_a_watcher_goes_on(way: str) -> None:
    cause = {"no descriptors": "Too many open files", "no process": "[Errno 2] No such file or directory: "}
    job = run_ranks(WATCHED.replace("<without>", NO_WATCHER[way]) + SUM + PRINT, 2)
    assert (job.returncode, job.lines()) == (0, ["1", "1"]), job.stdout + job.stderr
    assert job.stderr.count("\n") == 1, job.stderr
    said = f"ferroket: rank 0 of 2 on {HOST} can't start the process that watches the ranks of its node: {cause[way]}"
    assert job.stderr.startswith(said), job.stderr


def test_a_rank_without_a_beacon_is_not_watched() -> None:
    script = """
import errno, os
from ferroket import _lib

class Beacon:
    reported = finished = staticmethod(lambda: None)

    def __init__(self):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

_lib.Beacon = Beacon
"""
    assert run_ranks(script + START + SUM + PRINT, 2).ok().lines() == ["1", "1"]


@pytest.mark.parametrize("folder", ["/nowhere", "/proc"])
def test_no_room_for_temporary_files(folder: str) -> None:
    assert run_ranks(START + SUM + PRINT, 2, TMPDIR=folder).ok().lines() == ["1", "1"]


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """The list of the processes of a control group with 1500 MiB."""
    first, second = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")
    group, limit = (second, "memory.limit_in_bytes") if second.is_dir() else (first, "memory.max")
    group /= f"ferroket-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        try:
            (group / limit).write_text(str(1500 << 20))
            for swap in ("memory.swap.max", "memory.swappiness"):
                if (group / swap).exists():
                    (group / swap).write_text("0")
        except OSError as error:
            pytest.skip(f"the memory of a control group can't be limited: {error}")
        yield group / "cgroup.procs"
    finally:
        deadline = time.monotonic() + SOON
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        group.rmdir()


@pytest.mark.parametrize("mpi", [mpi for mpi in PREFIXES if FULL or mpi != "impi-rt"])
def test_a_rank_that_the_kernel_kills_for_lack_of_memory(mpi: str, little_memory: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(f"""
import os
open({str(little_memory)!r}, "w").write(str(os.getpid()))
{START}
kept = []
while True:
    if info.rank == 1:
        kept.append(b"x" * (8 << 20))
""")
    job = run_ranks(script, 2, mpi=mpi)
    assert job.returncode != 0
    ours = [line for line in job.stderr.splitlines() if line.startswith("ferroket: ")]
    assert len(ours) == 1, job.stderr
    assert ours[0].startswith(TOLD.format(2)), job.stderr
    assert "killed (SIGKILL), probably by the kernel for lack of memory: it has killed " in ours[0], job.stderr


HOOKS = {
    "of the script": (
        "sys.excepthook = lambda kind, error, trace: print('pretty:', error, file=sys.stderr)",
        "pretty: a",
    ),
    "around ours": (
        "shown = sys.excepthook\nsys.excepthook = lambda *error: (print('more', file=sys.stderr), shown(*error))",
        "more\nTraceback (most recent call last):",
    ),
    "that fails": ("sys.excepthook = lambda *error: 1 / 0", "Original exception was:"),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_an_exception_hook_of_the_script_shows_it_and_the_job_ends(hook: str, tmp_path: Path) -> None:
    install, shown = HOOKS[hook]
    job, seconds = fail("raise ValueError('a reason')", SLEEPING, tmp_path, before=install)
    assert job.returncode == 1
    assert seconds < SOON
    assert shown in job.stderr
    assert f"{TOLD.format(2)}: uncaught ValueError, so the whole job is aborted" in job.stderr


MEETING = """
import socket, subprocess, sys, time
from ferroket.distributed import failure

program = "from ferroket import _lib; import time; print(*_lib.Beacon().address, flush=True); time.sleep(60)"
rank = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
pid, descriptor = map(int, rank.stdout.readline().split())
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
failure.watch([("rank 0", (pid, descriptor))], failure.Meeting(f"127.0.0.1:{port}", "secret", listener))

def tell(password):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(f"{password}\\nlost 5 said with {password}\\x1b[31m\\n".encode())
    return connection

stranger = tell("guessed")
time.sleep(1)
friend = tell("secret")
assert friend.recv(100) == b"reported\\n"
assert stranger.recv(100) == b""
assert rank.wait(10) == -9  # no launcher has ended it
"""


def test_watchers_of_other_nodes_are_heard_if_they_know_the_password() -> None:
    job = run_alone(MEETING)
    assert (job.returncode, job.stderr) == (0, "said with secret[31m\n")


def test_a_text_is_printed_as_python_prints_it(tmp_path: Path) -> None:
    job, _ = fail("sys.exit('a reason')", WAITING, tmp_path)
    assert "\na reason\n" in "\n" + job.stderr


def test_a_caught_exit_and_a_good_one_end_nothing() -> None:
    script = """
    import ferroket as fk
    info = fk.initialize()
    import sys
    try:
        sys.exit(3)
    except SystemExit as error:
        assert error.code == 3 and type(error).__name__ == "SystemExit"
    try:
        try:
            sys.exit("text")
        finally:
            passed = True
    except SystemExit as error:
        assert str(error) == error.code == "text"
    assert passed
    sys.exit(0)
    """
    run_ranks(script, 2).ok()


def test_a_forked_process_is_no_rank() -> None:
    script = """
    import ferroket as fk
    info = fk.initialize()
    import os, sys, warnings
    warnings.simplefilter("ignore")  # JAX warns of forks
    child = os.fork()
    if child == 0:
        sys.stderr = open(os.devnull, "w")
        sys.exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    """
    run_ranks(script, 2).ok()


def test_programs_that_still_run_are_ended_before_mpi() -> None:
    script = """
    import ferroket as fk
    info = fk.initialize()
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import NamedSharding, PartitionSpec as P
    mesh = jax.make_mesh((info.size,), ("S",))

    def work(x):
        for _ in range(100):
            x = jax.lax.psum(jnp.sin(x), "S")
        return x

    f = jax.jit(jax.shard_map(work, mesh=mesh, in_specs=P("S"), out_specs=P(), check_vma=False))
    n = 100_000 * info.size
    x = jax.make_array_from_callback((n,), NamedSharding(mesh, P("S")), lambda i: np.arange(n, dtype=np.float32)[i])
    for _ in range(5):
        f(x)
    """
    run_ranks(script, 2).ok()


def test_ctrl_c_in_one_rank(tmp_path: Path) -> None:
    job, seconds = fail("signal.raise_signal(signal.SIGINT)", WAITING, tmp_path)
    assert job.returncode == 130
    assert seconds < SOON
    assert f"{TOLD.format(2)}: interrupted, so the whole job is aborted" in job.stderr


def test_scripts_that_end_mpi_or_jax_themselves() -> None:
    run_ranks("""
    import ferroket as fk
    fk.initialize()
    from mpi4py import MPI
    MPI.COMM_WORLD.Barrier()
    MPI.Finalize()
    """, 2).ok()  # fmt: skip
    run_ranks("""
    import ferroket as fk
    fk.initialize()
    import jax
    jax.distributed.shutdown()
    """, 2).ok()  # fmt: skip


def test_a_thread_that_exits_ends_itself_alone() -> None:
    script = """
    import ferroket as fk
    fk.initialize()
    import sys, threading
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()
    """
    run_ranks(script, 2).ok()
