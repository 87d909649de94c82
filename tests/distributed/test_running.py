"""``ferroket run``: an unchanged script, alone and under mpirun."""

import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from support.mpi import PREFIXES, SOON, SUM, Finished, environment, mpirun, run_command

RUN = [sys.executable, "-m", "ferroket", "run"]

SHOW = '''"""Shows what a script can see of its start."""
import atexit, os, sys

def show(when):
    main = sys.modules["__main__"]
    print(when, sys.argv, sys.path[0], __name__, main.__dict__ is globals(), flush=True)

spec = __spec__ and (__spec__.name, __spec__.origin)
print(__file__, spec, __package__, type(__loader__).__name__, __cached__, __doc__, type(__builtins__))
print(sys.excepthook is sys.__excepthook__, "jax" in sys.modules)
show("runs")
atexit.register(show, "ends")
exec(os.environ.get("DO", ""))
'''

THREAD = "import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), show('thread'))).start()"
CHAIN = """
def f():
    1 / 0
try:
    f()
except ZeroDivisionError as error:
    raise ValueError("chained") from error
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a script, a package, a folder and an archive with a `__main__`, and what doesn't compile."""
    for name in ("show.py", "package/__main__.py", "package/module.py", "folder/__main__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(SHOW)
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "link.py").symlink_to("package/module.py")
    (tmp_path / "syntax.py").write_text("x = 1\nprint((x\n")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    return tmp_path


def outcome(command: list[str], folder: Path, **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        command, cwd=folder, env=environment(**env), capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.quick("show.py --help -m -n 3 -- --label", "archive.zip x", "-m package.module a -m b", "syntax.py")
@pytest.mark.parametrize(
    "arguments",
    [
        "show.py",
        "show.py --help -m -n 3 -- --label",
        "package/module.py",
        "link.py",
        "folder x",
        "archive.zip x",
        "-m package --help",
        "-m package.module a -m b",
        "-m nowhere",
        "-m package.nowhere",
        "syntax.py",
    ],
)
def test_as_if_run_by_python(project: Path, arguments: str) -> None:
    code, stdout, stderr = outcome([sys.executable, *arguments.split()], project)
    assert outcome([*RUN, *arguments.split()], project) == (code, stdout, stderr)
    assert stdout.count("runs [") == stdout.count("ends [") == (code == 0)


@pytest.mark.quick(
    "sys.exit(3)", "sys.exit('a message')", "1 / 0", "raise KeyboardInterrupt", "os.kill(os.getpid(), 15)"
)
@pytest.mark.parametrize(
    ("do", "code"),
    [
        ("sys.exit()", 0),
        ("sys.exit(3)", 3),
        ("sys.exit(-1)", 255),
        ("sys.exit(256)", 0),
        ("sys.exit(True)", 1),
        ("sys.exit('a message')", 1),
        ("sys.exit((1, 2))", 1),
        ("raise SystemExit(4)", 4),
        ("1 / 0", 1),
        (CHAIN, 1),
        ("raise ExceptionGroup('several', [ValueError(1)])", 1),
        ("raise KeyboardInterrupt", -2),
        ("os._exit(7)", 7),
        ("os.kill(os.getpid(), 15)", -15),
        (THREAD, 0),
    ],
)
def test_ends_as_under_python(project: Path, do: str, code: int) -> None:
    expected = outcome([sys.executable, "-m", "package.module"], project, DO=do)
    assert expected[0] == code
    assert outcome([*RUN, "-m", "package.module"], project, DO=do) == expected


def test_a_traceback_begins_with_the_script(project: Path) -> None:
    (project / "raises.py").write_text("def f():\n    raise ValueError('the reason')\nf()\n")
    expected = outcome([sys.executable, "raises.py"], project)
    assert expected[2].startswith("Traceback (most recent call last):\n  File ")
    assert outcome([*RUN, "raises.py"], project) == expected


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    code, stdout, stderr = outcome([*RUN, "nowhere.py"], tmp_path)
    assert (code, stdout) == (2, "")
    assert stderr == f"ferroket: can't open file '{tmp_path}/nowhere.py': No such file or directory\n"


def test_without_a_launcher_jax_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        """
import sys
assert "jax" not in sys.modules
import ferroket as fk
assert fk.initialize() is fk.initialize(collectives="gloo") is fk.runtime_info()
import jax
assert jax.process_count() == 1
from jax._src import distributed
assert jax.distributed.initialize is distributed.initialize
"""
    )
    assert outcome([*RUN, "script.py"], tmp_path) == (0, "", "")


NETKET = """
import netket as nk
hilbert = nk.hilbert.Spin(0.5, 4)
operator = nk.operator.IsingJax(hilbert, nk.graph.Chain(4), h=1.0)
state = nk.vqs.MCState(nk.sampler.ExactSampler(hilbert), nk.models.RBM(), n_samples=16)
kernel = nk.vqs.get_local_kernel(state, operator)

import ferroket as fk
from netket.vqs.mc.kernels import local_value_kernel_jax
print(fk.local_energy.is_enabled(), kernel is local_value_kernel_jax, fk.explain(state, operator).path)
"""


@pytest.mark.quick("options1-True False known ratios")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "True False known ratios"),
        (["--accelerate"], "True False known ratios"),
        (["--no-accelerate"], "False True NetKet"),
    ],
)
def test_netkets_operators_are_accelerated_unless_told_otherwise(
    tmp_path: Path, options: list[str], expected: str
) -> None:
    (tmp_path / "script.py").write_text(NETKET)
    assert outcome([*RUN, *options, "script.py"], tmp_path) == (0, f"{expected}\n", "")


# Under mpirun.

# What any JAX script may do: it knows nothing of Ferroket.
PSUM = (
    SUM
    + """
import sys
print(f"{rank} of {n}: {value} {sys.argv[1:]}\\n", end="", flush=True)
"""
)


def run_script(
    text: str, folder: Path, *arguments: str, n: int = 2, mpi: str = "mpich", timeout: float = 90, **env: str
) -> Finished:
    script = folder / "script.py"
    script.write_text(text)
    launcher: list[str | Path] = [mpirun(mpi), "-n", str(n)]
    if mpi == "openmpi":
        launcher.insert(1, "--oversubscribe")
    return run_command([*launcher, *RUN, script, *arguments], environment(mpi, **env), timeout)


@pytest.mark.quick("mpich")
@pytest.mark.mpi
@pytest.mark.parametrize("mpi", PREFIXES)
def test_an_unchanged_script_is_one_program_of_all_ranks(mpi: str, tmp_path: Path) -> None:
    job = run_script(PSUM, tmp_path, "-n", "--help", mpi=mpi).ok()
    assert job.lines() == [f"{rank} of 2: 1 ['-n', '--help']" for rank in range(2)]


NAMES = """
import sys
print(sorted(map(hash, ["energy", "spin", "charge"])), len(sys.argv))
"""


@pytest.mark.quick
@pytest.mark.mpi
@pytest.mark.parametrize("launch", [False, True], ids=["run", "launch"])
def test_sets_have_one_order_on_all_ranks(launch: bool, tmp_path: Path) -> None:
    (tmp_path / "names.py").write_text(NAMES)
    command = [*RUN[:-1], "launch", "-n", "2"] if launch else [mpirun(), "-n", "2", *RUN]
    job = run_command([*command, tmp_path / "names.py", "-x"], environment(), 90).ok()
    first, second = job.lines()[-2:]
    assert first.split("[")[1] == second.split("[")[1]
    assert first.endswith("] 2")


@pytest.mark.mpi
def test_a_module_under_mpirun(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(PSUM)
    env = environment(PYTHONPATH=str(tmp_path))
    job = run_command([mpirun(), "-n", "2", *RUN, "-m", "work", "-m"], env, 90).ok()
    assert job.lines() == [f"{rank} of 2: 1 ['-m']" for rank in range(2)]


STARTS = {
    "JAX's guide": "import jax; jax.distributed.initialize()",
    "NetKet's guide": """
import jax
jax.config.update("jax_cpu_collectives_implementation", "mpi")
jax.distributed.initialize(cluster_detection_method="mpi4py")
""",
    "gloo": """
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
from jax.distributed import initialize
initialize(cluster_detection_method="mpi4py", initialization_timeout=10)
""",
    "by hand": """
import os, jax
jax.distributed.initialize("127.0.0.1:9", num_processes=2, process_id=int(os.environ["PMI_RANK"]))
assert jax.distributed.is_initialized()
""",
    "through mpi4py": """
from mpi4py import MPI
import jax
jax.distributed.initialize("127.0.0.1:9", MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank)
""",
    "Ferroket's": """
import ferroket as fk
assert fk.initialize() is fk.initialize(collectives="mpi") is fk.runtime_info()
""",
}


@pytest.mark.quick("JAX's guide")
@pytest.mark.mpi
@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_script_that_starts_jax_itself(start: str, tmp_path: Path) -> None:
    check = "\nimport ferroket; assert ferroket.runtime_info().collectives == 'mpi'\n"
    assert run_script(start + PSUM + check, tmp_path).ok().lines() == [f"{rank} of 2: 1 []" for rank in range(2)]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("start", "message"),
    [
        (
            "import jax; jax.distributed.initialize(num_processes=4)",
            "jax.distributed.initialize(num_processes=4) contradicts the job that `ferroket run` has started for this "
            "script: MPICH's mpirun (hydra) started 2 processes",
        ),
        (
            "import jax; jax.distributed.initialize('127.0.0.1:9', 2, 1 - jax.process_index())",
            "contradicts the job that `ferroket run` has started for this script: MPICH's mpirun (hydra) started 2 "
            "processes, and this is process",
        ),
        (
            "import ferroket; ferroket.initialize(collectives='gloo')",
            "fk.initialize(collectives='gloo') contradicts the job that `ferroket run` has started for this script: "
            "its collectives are mpi, and FERROKET_COLLECTIVES chooses them",
        ),
        ("import jax; jax.distributed.initialize(processes=2)", "got an unexpected keyword argument 'processes'"),
    ],
)
def test_a_script_that_asks_for_something_else(start: str, message: str, tmp_path: Path) -> None:
    job = run_script(start, tmp_path, timeout=30)
    assert job.returncode != 0
    assert message in job.stderr


@pytest.mark.quick("sys.exit(3)-3-sys.exit(3)-mpich")
@pytest.mark.mpi
@pytest.mark.parametrize("mpi", PREFIXES)
@pytest.mark.parametrize(
    ("end", "code", "cause"),
    [
        ("raise ValueError('the reason')", 1, "uncaught ValueError"),
        ("sys.exit(3)", 3, "sys.exit(3)"),
        ("raise SystemExit(3)", 3, "sys.exit(3)"),
        ("sys.exit('the\\nreason')", 1, "sys.exit('the\\nreason')"),
    ],
)
def test_one_rank_that_fails_ends_the_job(mpi: str, end: str, code: int, cause: str, tmp_path: Path) -> None:
    fail = f"""
import time
if jax.process_index() == 1:
    print("failed at", time.time())
    {end}
total(x + 1)
"""
    job = run_script(PSUM + fail, tmp_path, mpi=mpi, timeout=30)
    failed = next(float(line.split()[-1]) for line in job.lines() if line.startswith("failed at"))
    assert time.time() - failed < SOON
    assert job.returncode == code, job.stderr
    assert job.stderr.count(f"ferroket: rank 1 of 2 on {socket.gethostname()}: {cause}, so the whole job") == 1
    assert "ferroket: rank 0" not in job.stderr
    assert job.stderr.count("Traceback") == job.stderr.count("\nValueError: the reason\n") == ("ValueError" in cause)
    assert job.stderr.count("the\nreason\n") == ("\\n" in cause)
    assert "running.py" not in job.stderr


@pytest.mark.mpi
def test_exit_code_0_on_one_rank_is_no_failure(tmp_path: Path) -> None:
    run_script(PSUM + "\nif jax.process_index() == 1: sys.exit(0)", tmp_path).ok()


@pytest.mark.mpi
def test_lines_come_at_once(tmp_path: Path) -> None:
    """Python would keep them until its buffer is full, since this is no terminal, and lose them here."""
    assert run_script("import os; print('one'); print('two'); os._exit(0)", tmp_path, n=1).lines() == ["one", "two"]
