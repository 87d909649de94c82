"""Compiled programs that are kept for the other ranks and for the next job."""

import hashlib
import os
import socket
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ferroket.distributed import compile_cache
from ferroket.distributed.compile_cache import CompileCache, folder, kind_of_programs
from support.mpi import FAST_COMPILATION, START, SUM, Finished, path_to, run_alone, run_ranks

KEY = "0" * 64

# -- in one process, with a compiler that counts ---------------------------------------------------------------


class Compiler:
    """A compilation whose programs are texts."""

    can_be_kept = True

    def __init__(self, seconds: float = 0, readable: bool = True, spans_processes: bool = False) -> None:
        self.seconds = seconds
        self.readable = readable
        self.spans_processes = spans_processes
        self.compiled = 0

    def key(self) -> str:
        return KEY

    def compile(self) -> str:
        time.sleep(self.seconds)
        self.compiled += 1
        return "program"

    def dump(self, program: str) -> bytes:
        return program.encode() * 1000

    def load(self, stored: bytes) -> str | None:
        return stored[:7].decode() if self.readable else None


def program(cache: CompileCache, compiler: Any) -> Any:
    return cache.program(compiler)


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_a_program_is_compiled_once_and_then_read(tmp_path: Path) -> None:
    root = tmp_path / "new" / "cache"
    first, second = Compiler(), Compiler()
    for compiler in (first, first, second):
        assert program(CompileCache(root, trims=False), compiler) == "program"
    assert (first.compiled, second.compiled) == (1, 0)
    (file,) = files(root)
    assert file == root / kind_of_programs() / f"{KEY}.program"
    assert [path.stat().st_mode & 0o077 for path in (root, file.parent, file)] == [0, 0, 0]


def test_those_who_need_a_program_at_once_wait_for_the_one_who_compiles_it(tmp_path: Path) -> None:
    compiler = Compiler(seconds=0.3)
    with ThreadPoolExecutor(8) as threads:
        found = threads.map(lambda _: program(CompileCache(tmp_path, trims=False), compiler), range(8))
        assert list(found) == ["program"] * 8
    assert compiler.compiled == 1


@pytest.mark.parametrize("broken", [b"", b"\0" * 100, zlib.compress(b"program" * 1000)[:-5]], ids=["empty", "0", "cut"])
def test_a_broken_file_is_replaced(tmp_path: Path, broken: bytes) -> None:
    file = tmp_path / kind_of_programs() / f"{KEY}.program"
    file.parent.mkdir()
    file.write_bytes(broken)
    compiler = Compiler()
    for _ in range(2):
        assert program(CompileCache(tmp_path, trims=False), compiler) == "program"
    assert compiler.compiled == 1
    assert files(tmp_path) == [file]


def test_a_program_that_xla_cannot_read_is_compiled(tmp_path: Path) -> None:
    program(CompileCache(tmp_path, trims=False), Compiler())
    compiler = Compiler(readable=False)
    assert program(CompileCache(tmp_path, trims=False), compiler) == "program"
    assert compiler.compiled == 1


class Marked(Compiler):
    """A compilation whose programs show whether they were read."""

    def load(self, stored: bytes) -> str | None:
        return "read" if self.readable else None


@pytest.mark.parametrize("place", ["cache", "/proc/ferroket"])
def test_programs_that_span_processes_run_as_they_are_read(tmp_path: Path, place: str) -> None:
    """On the rank that compiles as well, and where nothing can be written: XLA may order collectives otherwise."""
    compiler = Marked(spans_processes=True)
    assert program(CompileCache(tmp_path / place, trims=False), compiler) == "read"
    assert compiler.compiled == 1
    unreadable = Marked(spans_processes=True, readable=False)
    assert program(CompileCache(tmp_path / "others", trims=False), unreadable) == "program"
    of_one_process = Marked()
    assert program(CompileCache(tmp_path / "own", trims=False), of_one_process) == "program"


@pytest.mark.parametrize("place", ["/proc/ferroket", "/dev/null/ferroket"])
def test_a_folder_that_cannot_be_made_is_no_error(place: str) -> None:
    cache, compiler = CompileCache(Path(place), trims=True), Compiler()
    for compiled in (1, 2):
        assert program(cache, compiler) == "program"
        assert compiler.compiled == compiled


def test_ranks_that_wait_ask_the_file_system_ever_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    file = tmp_path / kind_of_programs() / f"{KEY}.program"
    exists = Path.exists

    def counted(path: Path) -> bool:
        looks.append(time.monotonic())
        return exists(path)

    monkeypatch.setattr(Path, "exists", counted)
    cache, compiler = CompileCache(tmp_path, trims=False), Compiler()
    cache._patience = 2.0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as turn:
        assert not compile_cache._is_taken(turn, file)
        assert program(cache, compiler) == "program"
    assert 3 <= len(looks) < 15


def test_where_nothing_can_be_written_nobody_waits() -> None:
    cache, compiler = CompileCache(Path("/proc/ferroket"), trims=False), Compiler()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as turn:
        assert not compile_cache._is_taken(turn, Path("/proc/ferroket") / kind_of_programs() / f"{KEY}.program")
        begin = time.monotonic()
        assert program(cache, compiler) == "program"
        assert time.monotonic() - begin < 1


@pytest.mark.parametrize("place", ["root", "kind"])
def test_a_folder_that_others_may_write_to_is_refused(place: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    guarded = folder if place == "root" else folder / kind_of_programs()
    variables = {"FERROKET_CACHE": str(folder)}
    assert compile_cache.problem(variables) is None  # it isn't there yet
    CompileCache(folder, trims=False)
    assert compile_cache.problem(variables) is None
    for mode in (0o770, 0o707):
        guarded.chmod(mode)
        assert f"others may write to {guarded}" in str(compile_cache.problem(variables))
    guarded.chmod(0o700)
    assert compile_cache.problem(variables) is None
    assert compile_cache.problem({"FERROKET_CACHE": "off"}) is None
    if os.geteuid() == 0:
        os.chown(guarded, 12345, -1)
        assert f"{guarded} (FERROKET_CACHE) belongs to another user" in str(compile_cache.problem(variables))


def test_a_full_disk_is_no_error_and_leaves_no_half_files(tmp_path: Path) -> None:
    script = f"""
import resource
from pathlib import Path
from ferroket.distributed.compile_cache import CompileCache
from test_compile_cache import Compiler
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))  # writing more fails, as on a full disk
cache, compiler = CompileCache(Path({str(tmp_path)!r}), trims=True), Compiler()
assert [cache.program(compiler) for _ in range(2)] == ["program"] * 2 and compiler.compiled == 2
"""
    run_alone(script, PYTHONPATH=path_to(__file__)).ok()
    assert files(tmp_path) == []


def test_nobody_waits_for_ever(tmp_path: Path) -> None:
    """The process that has the turn may have been stopped; patience is lost once, not with each program."""
    cache, compiler = CompileCache(tmp_path / "a", trims=False), Compiler()
    cache._patience = 0.3
    file = tmp_path / "a" / kind_of_programs() / f"{KEY}.program"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as turn:
        assert not compile_cache._is_taken(turn, file)
        for seconds in (0.3, 0.0):
            begin = time.monotonic()
            assert program(cache, compiler) == "program"
            assert seconds <= time.monotonic() - begin < seconds + 0.25
            file.unlink()
    assert compiler.compiled == 2


def test_a_turn_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / kind_of_programs() / f"{KEY}.program"
    name = "ferroket " + hashlib.sha256(os.fsencode(file)).hexdigest()
    script = (
        "import socket, time; turn = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
        f"turn.bind('\\0{name}'); print('taken', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "taken\n"
        compiler = Compiler()
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(program, CompileCache(tmp_path, trims=False), compiler)
            time.sleep(0.2)
            assert not waiting.done()
            process.kill()
            assert waiting.result(10) == "program"
    assert compiler.compiled == 1


def test_the_oldest_files_go_where_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "_LIMIT", 250)
    others = tmp_path / "notes.txt"
    others.write_bytes(b"-" * 1000)
    kept = [tmp_path / kind / f"{age}.program" for kind, age in (("one", 3), ("one", 1), ("two", 2))]
    for age, file in zip((3, 1, 2), kept, strict=True):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"-" * 100)
        os.utime(file, (1000 - age, 1000 - age))
    program(CompileCache(tmp_path, trims=False), Compiler())
    new = tmp_path / kind_of_programs() / f"{KEY}.program"
    assert set(files(tmp_path)) == {others, new, *kept}
    new.unlink()
    program(CompileCache(tmp_path, trims=True), Compiler())  # 61 bytes
    assert set(files(tmp_path)) == {others, new, kept[1]}


def test_a_program_that_is_read_counts_as_new(tmp_path: Path) -> None:
    program(CompileCache(tmp_path, trims=False), Compiler())
    (file,) = files(tmp_path)
    os.utime(file, (1000, 1000))
    program(CompileCache(tmp_path, trims=False), Compiler())
    assert file.stat().st_mtime > time.time() - 60


def test_programs_for_other_numbers_of_threads_or_flags_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    here = kind_of_programs()
    assert here == kind_of_programs()
    monkeypatch.setattr(compile_cache.affinity, "allowed", lambda: tuple(range(123)))
    more = kind_of_programs()
    monkeypatch.setenv("NPROC", "7")
    fewer = kind_of_programs()
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert len({here, more, fewer, kind_of_programs()}) == 4


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache/ferroket"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/scratch/me"}, "/scratch/me/ferroket"),
        ({"HOME": "/home/me", "FERROKET_CACHE": "/work/programs"}, "/work/programs"),
        ({"HOME": "/home/me", "FERROKET_CACHE": "~/programs"}, "/home/me/programs"),
        ({"HOME": "/home/me", "FERROKET_CACHE": "off"}, None),
        ({"HOME": "relative"}, None),
    ],
)
def test_the_folder(variables: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", variables["HOME"])
    assert folder(variables) == (Path(expected) if expected else None)


# -- jobs ------------------------------------------------------------------------------------------------------

# Programs on one device, over all ranks and over some, and with callbacks into Python.
JOB = (
    START
    + """
import jax
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name.rpartition("/")[2]))
"""
    + SUM
    + """
import jax.numpy as jnp
seed = jax.device_put(np.linspace(0, 1, 500, dtype=np.float32).reshape(5, 100), jax.local_devices()[0])
own = jax.jit(lambda x: jnp.tanh(x @ x.T).sum())(seed)
assert float(jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(2 * x), x, x))(own)) == 2 * float(own)
all_ranks = jax.jit(jax.shard_map(lambda x: jax.lax.pmean(jnp.sin(x), "S"), mesh=mesh, in_specs=P("S"), out_specs=P()))
mean = all_ranks(x)
alone = jax.make_mesh((1,), ("T",), devices=jax.local_devices()[:1])
some = jax.jit(jax.shard_map(lambda x: jax.lax.psum(jnp.cos(x), "T"), mesh=alone, in_specs=P("T"), out_specs=P()))
cos = some(jax.device_put(np.ones(3, np.float32), NamedSharding(alone, P("T"))))
values = [float(np.asarray(part).sum()).hex() for part in (own, mean, cos)]
counts = events.count("cache_hits"), events.count("cache_misses")
print(" ".join(map(str, (info.rank, *counts, value, *values))) + "\\n", end="", flush=True)
"""
)


# A kernel of Ferroket's, which is partitioned along the samples.
KERNEL = """
import netket as nk
hilbert = nk.hilbert.Spin(0.5, 6)
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("S",))
samples = jax.device_put(hilbert.all_states(), NamedSharding(mesh, P("S")))
for h in (1.5, 1.5, 2.5):
    operator = fk.operator.Ising(hilbert, nk.graph.Chain(6), h=h)
    elements = jax.jit(lambda x: operator.get_conn_padded(x)[1] ** 3, out_shardings=NamedSharding(mesh, P()))(samples)
    total = float(np.asarray(elements).sum())
    print(f"{info.rank} 0 {events.count('cache_misses')} {total}\\n", end="", flush=True)
"""


def run_job(cache: object, **env: str) -> tuple[int, int, str]:
    """Runs the job on two ranks. Returns how many programs were read, how many compiled, and the numbers."""
    return read(run_ranks(JOB, 2, FERROKET_CACHE=str(cache), **env))


def read(job: Finished) -> tuple[int, int, str]:
    ranks = [line.split(maxsplit=3) for line in job.ok().lines()]
    assert [rank for rank, *_ in ranks] == ["0", "1"]
    assert ranks[0][3] == ranks[1][3]
    return sum(int(hits) for _, hits, _, _ in ranks), sum(int(misses) for _, _, misses, _ in ranks), ranks[0][3]


@pytest.mark.mpi
@pytest.mark.quick
def test_the_second_job_reads_what_the_first_has_compiled(tmp_path: Path) -> None:
    hits, misses, numbers = run_job(tmp_path)
    assert misses == len(files(tmp_path)) - 2  # those of the start, before the job counts
    assert hits == misses  # what one rank compiles the other reads
    assert run_job(tmp_path) == (hits + misses, 0, numbers)
    for file in files(tmp_path):
        file.write_bytes(file.read_bytes()[:-20])
    assert run_job(tmp_path) == (hits, misses, numbers)
    assert run_job("off") == (0, 0, numbers)


# Sums over pairs of ranks, whose communicators are created from the text of the program.
PAIRS = (
    START
    + """
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
misses = []
jax.monitoring.register_event_listener(lambda name, **_: misses.append(name) if name.endswith("cache_misses") else None)
mesh = jax.make_mesh((2, 2), ("A", "B"))
x = jax.make_array_from_callback((2, 2), NamedSharding(mesh, P("A", "B")), lambda i: np.arange(4.0).reshape(2, 2)[i])
for axis in "AB":
    total = jax.shard_map(lambda x: jax.lax.psum(x, axis), mesh=mesh, in_specs=P("A", "B"), out_specs=P("A", "B"))
    value = float(jax.jit(total)(x).addressable_data(0)[0, 0])
    print(f"{info.rank} {axis} {value}\\n", end="", flush=True)
print(f"{info.rank} compiled {len(misses)}\\n", end="", flush=True)
"""
)


@pytest.mark.mpi
def test_programs_that_are_read_have_their_communicators(tmp_path: Path) -> None:
    first, second = (run_ranks(PAIRS, 4, FERROKET_CACHE=str(tmp_path)).ok().lines() for _ in range(2))
    sums = {("0", "A"): 2, ("1", "A"): 4, ("2", "A"): 2, ("3", "A"): 4}
    sums |= {("0", "B"): 1, ("1", "B"): 1, ("2", "B"): 5, ("3", "B"): 5}
    compiled = {(str(rank), "compiled"): 0 for rank in range(4)}
    assert {(rank, what): float(value) for rank, what, value in map(str.split, second)} == sums | compiled
    assert [line for line in first if "compiled" not in line] == [line for line in second if "compiled" not in line]


# The random program of seed 4 has independent collectives, which XLA orders otherwise once it has read the program.
_PROGRAMS = Path(__file__).parents[1] / "collectives" / "programs.py"


@pytest.mark.mpi
@pytest.mark.quick
def test_the_rank_that_compiles_runs_what_the_others_read(tmp_path: Path) -> None:
    run_ranks(_PROGRAMS, 4, "4", "5", FERROKET_CACHE=str(tmp_path), XLA_FLAGS=FAST_COMPILATION).ok()


@pytest.mark.mpi
def test_partitioned_kernels_are_kept(tmp_path: Path) -> None:
    first, second = (run_ranks(JOB + KERNEL, 2, FERROKET_CACHE=str(tmp_path)).ok().lines() for _ in range(2))
    assert all(line.split()[2] == "0" for line in second)
    sums = [[line.split()[3] for line in lines if len(line.split()) == 4] for lines in (first, second)]
    assert sums[0] == sums[1]
    # Each of 64 samples has 6 flips with -h. Diagonals change their sign with every second spin: their cubes cancel.
    assert {float(value) for value in sums[0]} == {-64 * 6 * 1.5**3, -64 * 6 * 2.5**3}


@pytest.mark.mpi
def test_no_rank_runs_programs_of_a_folder_that_others_may_write_to(tmp_path: Path) -> None:
    assert run_job(tmp_path)[1] > 0
    tmp_path.chmod(0o777)
    job = run_ranks(JOB, 2, FERROKET_CACHE=str(tmp_path))
    assert job.returncode == 0, job.stderr
    assert job.stderr.count("others may write to") == job.stderr.count("\n") == 1
    assert {line.split()[1] for line in job.lines() if len(line.split()) == 4} <= {"0"}


@pytest.mark.mpi
def test_two_jobs_at_once_share_a_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(run_job, [tmp_path] * 2)
    assert first[2] == second[2]
    assert first[1] + second[1] <= len(files(tmp_path))
    assert {file.suffix for file in files(tmp_path)} == {".program"}
    assert run_job(tmp_path)[1] == 0


@pytest.mark.mpi
def test_programs_of_one_process_are_left_to_a_cache_of_jax(tmp_path: Path) -> None:
    """It would keep a program that spans processes for rank 0 alone, which runs its collectives in another order."""
    theirs = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "theirs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        "XLA_FLAGS": FAST_COMPILATION,
    }
    for cache in ("off", str(tmp_path / "ours")) * 2:
        run_ranks(_PROGRAMS, 4, "4", "5", FERROKET_CACHE=cache, **theirs).ok()
    assert files(tmp_path / "ours")
    assert files(tmp_path / "theirs")
    assert run_job(tmp_path / "neither", JAX_ENABLE_COMPILATION_CACHE="false")[:2] == (0, 0)
    assert files(tmp_path / "neither") == []


@pytest.mark.mpi
def test_the_folder_is_that_of_the_users_caches(tmp_path: Path) -> None:
    run_ranks(START + SUM, 2, XDG_CACHE_HOME=str(tmp_path), FERROKET_CACHE="").ok()
    assert files(tmp_path / "ferroket")


@pytest.mark.mpi
def test_a_job_whose_folder_cannot_be_made_runs(tmp_path: Path) -> None:
    hits, misses, numbers = run_job("/proc/ferroket")
    assert (hits, numbers) == (0, run_job("off")[2])
    assert misses > 0


def test_without_a_launcher_nothing_is_kept(tmp_path: Path) -> None:
    run_alone(START + SUM, FERROKET_CACHE=str(tmp_path / "cache")).ok()
    assert not (tmp_path / "cache").exists()
