"""``fk.initialize()``, on one process and under mpirun."""

import socket
import sys
import time
from pathlib import Path

import pytest

from ferroket.distributed import startup
from ferroket.distributed.gpus import Gpus
from ferroket.distributed.node import Node
from support.mpi import (
    FULL,
    PREFIXES,
    SOON,
    START,
    SUM,
    Finished,
    environment,
    mpirun,
    run_alone,
    run_command,
    run_ranks,
)

pytestmark = pytest.mark.mpi

PSUM = START + SUM


@pytest.mark.quick("2-mpich", "2-openmpi", "2-impi-rt")
@pytest.mark.parametrize("mpi", PREFIXES)
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_every_mpi_sums_over_the_ranks_and_ends_silently(mpi: str, n: int) -> None:
    job = run_ranks(PSUM + "print(f'{info.rank} {value} {info.mpi}\\n', end='', flush=True)", n, mpi=mpi).ok()
    name = {"mpich": "MPICH", "openmpi": "Open MPI", "impi-rt": "Intel"}[mpi]
    lines = job.lines()
    assert len(lines) == n
    for rank, line in enumerate(lines):
        assert line.startswith(f"{rank} {n * (n - 1) // 2} {name}"), line


@pytest.mark.quick
def test_info_describes_the_job() -> None:
    script = (
        PSUM
        + """
import os
assert fk.runtime_info() is info
assert info.size == jax.process_count() == 2 and info.rank == jax.process_index()
assert (info.local_rank, info.local_size, info.nodes) == (info.rank, 2, 1)
assert info.collectives == "mpi" and info.thread_level == "MPI_THREAD_MULTIPLE"
assert info.coordinator.startswith("127.0.0.1:")
assert info.cores[info.rank] == tuple(sorted(os.sched_getaffinity(0)))
assert os.path.exists(info.mpi_path) and info.mpi_origin == "beside the launcher"
for word in ("MPICH", "hydra", "2 on 1 node", "mpi", info.mpi_path):
    assert word in str(info), word
"""
    )
    run_ranks(script, 2).ok()


@pytest.mark.quick
def test_each_rank_has_cores_of_its_own_and_xla_no_more_threads() -> None:
    script = """
import os
before = sorted(os.sched_getaffinity(0))
import ferroket as fk
info = fk.initialize()
expected = before[: len(before) // 2] if info.rank == 0 else before[len(before) // 2 :][: len(before) // 2]
if len(before) >= 2:
    for task in os.listdir("/proc/self/task"):
        try:
            mask = sorted(os.sched_getaffinity(int(task)))
        except ProcessLookupError:  # it ended meanwhile
            continue
        assert set(mask) <= set(expected) or info.binding == "launcher", (mask, expected)
    assert info.binding == "ferroket"
"""
    run_ranks(script, 2).ok()


def test_binding_can_be_turned_off() -> None:
    script = """
import os
before = os.sched_getaffinity(0)
import ferroket as fk
info = fk.initialize()
assert os.sched_getaffinity(0) == before and info.binding == "none"
"""
    run_ranks(script, 2, FERROKET_BIND="none").ok()


def test_gloo_runs_over_the_same_start() -> None:
    job = run_ranks(PSUM + "assert value == 1 and info.collectives == 'gloo'", 2, FERROKET_COLLECTIVES="gloo")
    assert job.returncode == 0, job.stderr


def test_mpi4py_first_is_joined() -> None:
    script = (
        """
from mpi4py import MPI
assert MPI.COMM_WORLD.allreduce(1) == 2
"""
        + PSUM
        + """
assert info.mpi_origin == "mpi4py uses it"
MPI.COMM_WORLD.Barrier()
assert value == 1
"""
    )
    run_ranks(script, 2).ok()


def test_mpi4py_beside_jax_uses_the_same_library() -> None:
    script = (
        PSUM
        + """
from mpi4py import MPI
for _ in range(20):
    assert MPI.COMM_WORLD.allreduce(info.rank) == 1
    assert float(total(x)[0]) == 1.0
"""
    )
    run_ranks(script, 2).ok()


def test_first_collective_in_a_large_parallel_program() -> None:
    """XLA would refuse to make a communicator outside its main thread."""
    script = """
import ferroket as fk
info = fk.initialize()
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((info.size,), ("S",))

def work(x):
    parts = [jnp.tanh(x @ (x + i)) for i in range(48)]
    return jax.lax.psum(sum(parts), "S"), jax.lax.psum(x, "S")

f = jax.jit(jax.shard_map(work, mesh=mesh, in_specs=P("S"), out_specs=P()))
x = jax.make_array_from_callback(
    (256 * info.size, 256), NamedSharding(mesh, P("S")), lambda i: np.full((256, 256), 1e-3, np.float32)
)
a, b = f(x)
expected = info.size * sum(np.tanh(256 * 1e-3 * (1e-3 + i)) for i in range(48))
np.testing.assert_allclose(np.asarray(a), expected, rtol=1e-4)
np.testing.assert_allclose(np.asarray(b), info.size * 1e-3, rtol=1e-6)
"""
    run_ranks(script, 2, FERROKET_BIND="none").ok()


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_every_collective_of_xla(mpi: str, n: int) -> None:
    script = """
import ferroket as fk
info = fk.initialize()
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
n = info.size
mesh = jax.make_mesh((n,), ("S",))
rng = np.random.default_rng(0)
for dtype in ("int8", "uint16", "int32", "int64", "uint64", "float32", "float64", "complex64", "complex128"):
    data = rng.integers(0, 5, (n, n, 3)).astype(dtype)
    x = jax.make_array_from_callback(data.shape, NamedSharding(mesh, P("S")), lambda i: data[i])
    def check(f, expected, out=P()):
        result = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("S"), out_specs=out, check_vma=False))(x)
        for shard in result.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), expected[shard.index], err_msg=dtype)
    check(lambda x: lax.psum(x, "S"), data.sum(0, keepdims=True))
    check(lambda x: lax.all_gather(x[0], "S"), data)
    check(lambda x: lax.psum_scatter(x[0], "S", tiled=True), data.sum(0), P("S"))
    check(lambda x: lax.all_to_all(x, "S", 1, 0, tiled=True).swapaxes(0, 1), data.swapaxes(0, 1), P("S"))
    check(lambda x: lax.ppermute(x, "S", [(i, (i + 1) % n) for i in range(n)]), np.roll(data, 1, 0), P("S"))
    if not dtype.startswith("complex"):
        check(lambda x: lax.pmin(x, "S"), data.min(0, keepdims=True))
        check(lambda x: lax.pmax(x, "S"), data.max(0, keepdims=True))
"""
    run_ranks(script, n, mpi=mpi).ok()


@pytest.mark.quick
def test_without_a_launcher_it_only_reports() -> None:
    script = """
import sys
import ferroket as fk
info = fk.initialize()
assert (info.size, info.collectives, info.mpi, info.launcher) == (1, "none", None, None)
assert not {"jax", "mpi4py.MPI"} & set(sys.modules)
import jax
assert jax.process_count() == 1
assert not [line for line in open("/proc/self/maps") if "libmpi" in line]
print(info)
"""
    assert "one plain process" in run_alone(script).ok().stdout


def test_what_intels_library_reads_is_set_where_python_sees_it() -> None:
    script = """
import os
import ferroket as fk
info = fk.initialize()
from pathlib import Path
assert list(Path(os.environ["FI_PROVIDER_PATH"]).glob("*-fi.so"))
"""
    run_ranks(script, 2, mpi="impi-rt", I_MPI_FABRICS="ofi").ok()  # as between nodes: over libfabric


# Bad input: an error on every rank, that names the cause and the mend.


def each_rank_says(job: Finished, n: int, *words: str) -> None:
    assert job.returncode != 0
    for word in words:
        assert job.stderr.count(word) >= n, f"{word!r} is not there {n} times in\n{job.stderr}"


INITIALIZE = "import ferroket as fk; fk.initialize()"


@pytest.mark.quick
def test_missing_library() -> None:
    job = run_ranks(INITIALIZE, 2, FERROKET_LIBMPI="/nowhere/libmpi.so", timeout=20)
    each_rank_says(job, 2, "FERROKET_LIBMPI names /nowhere/libmpi.so", "or unset FERROKET_LIBMPI")


def test_no_library_anywhere_lists_every_place() -> None:
    script = """
from ferroket import _lib
try:
    print("found", _lib.find_mpi(["/nowhere"]).path)
except RuntimeError as error:
    print(error)
"""
    text = run_alone(script).ok().stdout
    if text.startswith("found"):
        pytest.skip(f"this system has an MPI library of its own: {text}")
    assert "`pip install mpich`" in text
    assert "libmpi.so.12 (found by the system's loader): libmpi.so.12: cannot open" in text


def test_library_and_launcher_of_two_families() -> None:
    library = mpirun("openmpi").parents[1] / "lib" / "libmpi.so.40"
    job = run_ranks(INITIALIZE, 2, FERROKET_LIBMPI=str(library), timeout=30)
    each_rank_says(job, 2, "don't belong together", "2 independent runs", "rank 0 of 1")


def test_a_launcher_that_mpi_does_not_know() -> None:
    job = run_alone(INITIALIZE, PMI_RANK="1", PMI_SIZE="2", timeout=20)
    each_rank_says(job, 1, "this is rank 1 of 2, but MPI says rank 0 of 1", "FERROKET_LIBMPI")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "PMI_FD": "77"}, ["PMI_FD=77, which isn't an open file", "unset PMI_RANK"]),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_PORT": "127.0.0.1:1"}, ["has ended this process", "PMI_PORT=127.0."]),
        ({"ALPS_APP_PE": "3"}, ["ALPS_APP_PE=3 is in the environment", "independent runs", "unset ALPS_APP_PE"]),
        ({"PALS_RANKID": "1", "PALS_SIZE": "2"}, ["Cray's mpiexec (PALS) says that this is rank 1 of 2"]),
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2"}, ["flux run says that this is rank 1 of 2"]),
        ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2", "PMI_ID": "1"}, ["MVAPICH's mpirun_rsh says"]),
        ({"PMIX_RANK": "1", "PMIX_NAMESPACE": "prterun-1"}, ["PMIX_RANK=1, PMIX_NAMESPACE=prterun-1"]),
        ({"FERROKET_RANK": "0", "FERROKET_SIZE": "2"}, ["unset FERROKET_RANK and FERROKET_SIZE"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_variables_that_another_job_has_left_or_of_launchers_that_are_not_known(
    variables: dict[str, str], words: list[str]
) -> None:
    job = run_alone(INITIALIZE, timeout=30, **variables)
    assert job.returncode != 0
    for word in words:
        assert word in job.stderr, job.stderr


def test_an_mpi_library_that_was_opened_stays() -> None:
    script = """
from pathlib import Path
from ferroket import _lib
from ferroket.distributed.library import search_prefixes

found = _lib.find_mpi(search_prefixes())
mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if len(line.split()) > 5}
assert str(Path(found.path).resolve()) in {str(Path(file).resolve()) for file in mapped}
"""
    run_alone(script).ok()


@pytest.mark.parametrize("command", ["mpirun", "launch"])
def test_nothing_is_imported_from_the_current_folder(command: str, tmp_path: Path) -> None:
    here, script = tmp_path / "here", tmp_path / "script" / "run.py"
    for folder in (here, script.parent):
        folder.mkdir()
    (here / "ferroket.py").write_text("print('FOREIGN')\nraise SystemExit(0)\n")
    (script.parent / "beside.py").write_text("name = 'beside'\n")
    script.write_text("import beside\n" + PSUM + "import time\ntime.sleep(2)\nprint(beside.name, value)\n")
    start = {
        "mpirun": [mpirun(), "-n", "2", sys.executable, script],
        "launch": [Path(sys.executable).parent / "ferroket", "launch", "-n", "2", script],
    }
    job = run_command(["env", f"--chdir={here}", *start[command]], environment(), 60)
    assert (job.returncode, job.lines()) == (0, ["beside 1"] * 2), job.stdout + job.stderr


def test_under_hydra_a_name_of_pmix_is_no_harm() -> None:
    assert run_ranks(START + SUM + "print(value)\n", 2, PMIX_NAMESPACE="slurm.pmix.7.0").ok().lines() == ["1", "1"]


def test_what_ranks_find_out_of_4096_takes_no_time() -> None:
    cores = tuple(range(128))
    nodes = [Node(f"n{rank // 64}", *[f"m{rank // 64}"] * 3) for rank in range(4096)]
    reports = [startup._Report({"a": "b"}, node, cores, None, Gpus(None, ()), (rank, 3), None, None, 1 << 33)
               for rank, node in enumerate(nodes)]  # fmt: skip
    sent = [report.dump() for report in reports]
    begin = time.perf_counter()
    assert [startup._Report.load(part) for part in sent] == reports
    machines = startup._ranks_by_machine(reports)
    by_rank, binding = startup._bind(reports, machines, 0, "none")
    assert not startup._yields(tuple((rank % 64,) for rank in range(4096)), machines, "auto")
    assert startup._yields((cores,) * 4096, machines, "auto") is False
    assert startup._yields((cores[:63],) * 4096, machines, "auto") is True
    assert time.perf_counter() - begin < 1  # less than 0.1 where nothing else runs
    assert (by_rank, binding) == ((cores,) * 4096, "none")
    assert machines["m3"] == list(range(192, 256))


def test_updates_have_half_of_the_memory_of_the_rank_with_the_least() -> None:
    nodes = [Node(name, name, name, name) for name in "aab"]
    sizes = (8 << 30, 8 << 30, 6 << 30)
    reports = [
        startup._Report({}, node, (0,), None, Gpus(None, ()), None, None, None, size)
        for node, size in zip(nodes, sizes, strict=True)
    ]
    machines = startup._ranks_by_machine(reports)
    assert startup._memory_of_each(reports, machines) == 2 << 30
    assert startup._memory_of_each(reports[2:], {"b": [0]}) == 3 << 30


def test_ranks_that_were_bound_to_one_core_of_several_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    node = Node("n1", "m", "m", "m")
    reports = [startup._Report({}, node, (0,), 4, Gpus(None, ()), None, None, None, 1 << 33) for _ in range(2)]
    for rank in (0, 1):
        startup._warn_of_shared_cores(reports, {"m": [0, 1]}, rank, ((0,), (0,)))
    said = capsys.readouterr().err
    assert said.count("the 2 ranks on n1 share core 0, but the job has 4 cores there") == 1
    assert "SLURM_CPU_BIND=none" in said
    startup._warn_of_shared_cores(reports, {"m": [0, 1]}, 0, ((0,), (1,)))
    assert capsys.readouterr().err == ""


def test_the_limit_is_for_the_other_ranks_and_not_for_a_slow_file_system() -> None:
    script = """
import time
import wrapt
wrapt.register_post_import_hook(lambda module: time.sleep(6), "jax")
import ferroket as fk
fk.initialize()
"""
    job = run_ranks(script, 2, timeout=60, FERROKET_INIT_TIMEOUT="4")
    assert job.returncode == 0, job.stderr
    assert job.stderr.startswith("ferroket: all ranks have called fk.initialize(), and some have imported JAX for 4 s")
    assert job.stderr.count("\n") == 1


@pytest.mark.skipif(not FULL, reason="a minute and 16 GB: FERROKET_TEST_FULL=1")
@pytest.mark.parametrize("end", ["", "if rank == 0:\n    total(x).block_until_ready()\n"], ids=["sums", "hangs"])
def test_sixty_four_ranks(end: str) -> None:
    job = run_ranks(PSUM + "print(value)\n" + end, 64, timeout=300, FERROKET_INIT_TIMEOUT="200")
    assert job.stdout.split() == ["2016"] * 64
    if not end:
        job.ok()
        return
    assert job.returncode != 0
    assert len(job.stderr) < 20_000
    assert "ranks 1-63 (" in job.stderr, job.stderr
    assert job.stderr.count("the job hangs") == 1


@pytest.mark.quick("mpi-gloo")
@pytest.mark.parametrize(
    ("name", "values", "shown"),
    [
        ("FERROKET_COLLECTIVES", ("mpi", "gloo"), ("mpi", "gloo")),
        ("FERROKET_CACHE", ("/tmp/programs", "off"), ("on", "off")),
        ("JAX_ENABLE_COMPILATION_CACHE", ("True", "false"), ("true", "false")),
    ],
    ids=["mpi-gloo", "cache", "JAX's cache"],
)
def test_ranks_that_disagree(name: str, values: tuple[str, str], shown: tuple[str, str]) -> None:
    script = f"""
import os
os.environ["{name}"] = {values}[int(os.environ["PMI_RANK"])]
import ferroket as fk
fk.initialize()
"""
    job = run_ranks(script, 2, timeout=20)
    each_rank_says(job, 2, f"the ranks disagree: {name} is {shown[0]} on rank 0 and {shown[1]} on rank 1")


def test_unknown_setting() -> None:
    each_rank_says(run_ranks(INITIALIZE, 2, FERROKET_BIND="socket", timeout=20), 2, "FERROKET_BIND is 'socket'")


def test_taken_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        job = run_ranks(INITIALIZE, 2, FERROKET_COORDINATOR_PORT=port, timeout=20)
    each_rank_says(job, 2, f"rank 0 on {socket.gethostname()}: JAX's coordinator can't listen on 127.0.0.1:{port}")


def test_host_that_does_not_resolve() -> None:
    script = """
import os
from ferroket.distributed import startup
from ferroket.distributed.node import Node
startup.this_node = lambda: Node("nowhere.invalid", *[os.environ["PMI_RANK"]] * 3)
startup.initialize()
"""
    each_rank_says(run_ranks(script, 2, timeout=20), 2, "'nowhere.invalid' doesn't resolve")


def test_twice() -> None:
    job = run_ranks(INITIALIZE + "; fk.initialize()", 2, timeout=30)
    assert job.returncode != 0
    assert "fk.initialize() was called twice in this process: remove the second call" in job.stderr
    job = run_alone(INITIALIZE + "; fk.initialize()", timeout=30)
    each_rank_says(job, 1, "fk.initialize() was called twice in this process: remove the second call")


@pytest.mark.parametrize("first", ["netket", "jax"])
def test_too_late(first: str) -> None:
    job = run_ranks(f"import {first}; {INITIALIZE}", 2, timeout=60)
    each_rank_says(job, 2, f"came too late: {first} was imported before it", f"above `import {first}`")


def test_too_late_on_one_rank_is_an_error_on_all() -> None:
    script = """
import os
if os.environ["PMI_RANK"] == "1":
    import jax
import ferroket as fk
fk.initialize()
"""
    each_rank_says(run_ranks(script, 2, timeout=30), 2, "rank 1 on", "came too late: jax was imported")


def test_too_many_devices() -> None:
    job = run_ranks(INITIALIZE, 2, JAX_NUM_CPU_DEVICES="2", timeout=30)
    assert job.returncode != 0
    assert "this process has 2 CPU devices" in job.stderr
    assert "Unset JAX_NUM_CPU_DEVICES" in job.stderr


def test_too_low_a_thread_level() -> None:
    script = """
import mpi4py
mpi4py.rc.thread_level = "funneled"
from mpi4py import MPI
import ferroket as fk
fk.initialize()
"""
    each_rank_says(run_ranks(script, 2, timeout=20), 2, "MPI_THREAD_FUNNELED", "remove mpi4py.rc.thread_level")


def test_a_rank_that_never_comes() -> None:
    script = """
import os, time
if os.environ["PMI_RANK"] == "1":
    time.sleep(60)
import ferroket as fk
fk.initialize()
"""
    job = run_ranks(script, 2, timeout=30, FERROKET_INIT_TIMEOUT="2")
    assert job.returncode != 0
    assert "rank 0 of 2: fk.initialize() has waited 2 s for the other ranks" in job.stderr


@pytest.mark.quick("is killed-impi-rt")
@pytest.mark.parametrize("mpi", PREFIXES)
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit()"], ids=["is killed", "exits"])
def test_a_rank_that_ends_before_it_has_come(end: str, mpi: str) -> None:
    script = f"""
import os, sys
rank = os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
if rank == "1":
    {end}
import ferroket as fk
fk.initialize()
"""
    begin = time.monotonic()
    job = run_ranks(script, 3, mpi=mpi, timeout=60)
    assert job.returncode != 0, job.stderr
    assert time.monotonic() - begin < SOON, job.stderr
    ours = [line for line in job.stderr.splitlines() if line.startswith("ferroket: ")]
    if mpi == "impi-rt" or end == "sys.exit()":
        assert len(ours) == 1, job.stderr
        assert ours[0].startswith("ferroket: rank 1 of 3 ended before the ranks had met"), job.stderr
    else:  # the launcher has said it
        assert not ours, job.stderr


def test_a_rank_whose_coordinator_is_gone_leaves_it_to_others_to_say_so() -> None:
    """Rank 0 is killed while JAX connects, at which JAX raises an error on the others."""
    script = """
import os, time
import ferroket as fk
from ferroket.distributed import jax_start

def initialize(**settings):
    if settings["process_id"] == 0:
        time.sleep(1)
        os.kill(os.getpid(), 9)
    raise RuntimeError("the coordinator is gone")

load = jax_start.load
def load_and_replace():
    load()
    import jax
    jax.distributed.initialize = initialize
jax_start.load = load_and_replace
fk.initialize()
"""
    job = run_ranks(script, 3, timeout=60)
    assert job.returncode != 0
    ours = [line for line in job.stderr.splitlines() if line.startswith("ferroket: ")]
    assert len(ours) == 1, job.stderr
    assert ours[0].startswith("ferroket: rank 0 of 3 on "), job.stderr


@pytest.mark.parametrize("mpi", PREFIXES)
def test_an_uncaught_exception_on_one_rank_ends_the_job(mpi: str) -> None:
    script = (
        PSUM
        + """
if info.rank == 1:
    raise ValueError("the reason")
total(x)
"""
    )
    job = run_ranks(script, 2, mpi=mpi, timeout=30)
    assert job.returncode != 0
    assert f"rank 1 of 2 on {socket.gethostname()}: uncaught ValueError" in job.stderr
    assert job.stderr.count("ValueError: the reason") == 1


def test_a_web_proxy_does_not_stand_between_the_ranks() -> None:
    run_ranks(PSUM, 2, timeout=30, http_proxy="http://127.0.0.1:9", https_proxy="http://127.0.0.1:9").ok()


def test_two_jobs_at_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    script = PSUM + "print(f'{value}\\n', end='', flush=True)"
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(run_ranks, script, 2, PYTHONHASHSEED="0") for _ in range(2)]
    assert [job.result().ok().stdout for job in jobs] == ["1\n1\n"] * 2


def test_large_results_reuse_memory() -> None:
    """Without the allocator's cooperation each psum of 16 MiB takes more than 4096 page faults on each rank."""
    script = """
import resource
total = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "S"), mesh=mesh, in_specs=P("S"), out_specs=P()))
size = 1 << 22
x = jax.make_array_from_callback((n * size,), NamedSharding(mesh, P("S")), lambda i: np.ones(size, np.float32))

def faults(calls):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(calls):
        total(x).block_until_ready()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(20)
print(f"{faults(20)}\\n", end="", flush=True)
"""
    few = 20 * 1000
    assert [int(line) < few for line in run_ranks(PSUM + script, 2).ok().lines()] == [True, True]
    default = run_ranks(PSUM + script, 2, MALLOC_TRIM_THRESHOLD_="131072", MALLOC_MMAP_THRESHOLD_="131072").ok()
    assert [int(line) > few for line in default.lines()] == [True, True]  # the user's own settings stay
