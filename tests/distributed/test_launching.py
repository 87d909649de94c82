"""``ferroket launch``: what it starts, what it shows, and how everything ends."""

import contextlib
import fcntl
import os
import pty
import re
import shlex
import signal
import socket
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferroket.distributed import library
from ferroket.distributed.launching import launchers
from support.mpi import FULL, MPIS, PREFIXES, SOON, SUM, Finished, environment, mpirun, processes

# The sum of the ranks, in a script that knows nothing of Ferroket.
PSUM = (
    SUM
    + """
import sys
print(f"{rank} of {n}: {value} {sys.argv[1:]}")
"""
)
WORK_FOR_EVER = """
while True:
    total(x).block_until_ready()
"""

# Where the ranks come from: an MPI, or this process where there is none.
KINDS = [*PREFIXES, "gloo"]
ALL_KINDS = [*MPIS, "gloo"]


def of_kind(kind: str) -> tuple[list[str], dict[str, str]]:
    """Options and variables for a job over one of the MPIs, or over gloo where no MPI can be found."""
    if kind == "gloo":
        return ["--collectives", "gloo"], {"FERROKET_LIBMPI": "/nowhere/libmpi.so"}
    mpirun(kind)  # skips if it isn't installed
    mpi = MPIS[kind]
    found = [path for folder in ("lib", "lib/*", "lib64") for path in mpi.prefix.glob(f"{folder}/{mpi.library}*")]
    return [], {"FERROKET_LIBMPI": str(max(found))}  # with the whole version: libmpi_abi.so alone is a linker's script


class Launched:
    """A running ``ferroket launch``, with no terminal, or with one that is its stdout."""

    def __init__(self, folder: Path, arguments: list[str], kind: str, terminal: bool, env: dict[str, str]) -> None:
        options, variables = of_kind(kind)
        self.tag = f"FERROKET_TEST_JOB={uuid.uuid4()}"
        self.terminal = -1
        self._stdout = stdout = subprocess.PIPE
        if terminal:
            self.terminal, stdout = pty.openpty()
        # What a test runner as root needs for Open MPI, launch has to know by itself.
        inherited = {name: value for name, value in environment().items() if not name.startswith("OMPI_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ferroket", "launch", *options, *arguments],
            cwd=folder,
            env={**inherited, **variables, **env, **dict([self.tag.split("=")])},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(1, termios.TIOCSCTTY, 0)) if terminal else None,  # noqa: PLW1509
        )
        if terminal:
            os.close(stdout)

    def ranks(self) -> list[int]:
        """The processes of the ranks."""
        return [pid for pid in self.processes() if b"\0run\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def processes(self) -> list[int]:
        return processes(self.tag)

    def read(self, pattern: str, count: int) -> str:
        """Reads what it shows up to a number of matches."""
        text = ""
        descriptor = self.terminal if self.terminal >= 0 else self.process.stdout.fileno()
        while len(re.findall(pattern, text)) < count:
            data = os.read(descriptor, 1 << 16)
            assert data, f"it ended after {text!r}: {self.process.stderr.read()}"
            text += data.decode()
        return text

    def end(self, timeout: float) -> Finished:
        """Waits for its end; nothing of it may be left then."""
        stdout, stderr = self.process.communicate(timeout=timeout)
        assert self.processes() == [], stderr
        return Finished(self.process.returncode, stdout, stderr)


@contextlib.contextmanager
def launched(
    folder: Path, script: str, *options: str, kind: str = "mpich", terminal: bool = False, **env: str
) -> Iterator[Launched]:
    (folder / "script.py").write_text(script)
    job = Launched(folder, [*options, "script.py"], kind, terminal, env)
    try:
        yield job
    finally:
        for pid in job.processes():
            os.kill(pid, signal.SIGKILL)
        job.process.wait()
        if terminal:
            os.close(job.terminal)


def launch(folder: Path, script: str, *options: str, kind: str = "mpich", timeout: float = 90, **env: str) -> Finished:
    with launched(folder, script, *options, kind=kind, **env) as job:
        return job.end(timeout)


@pytest.mark.quick("openmpi", "gloo")
@pytest.mark.mpi
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_mpi_and_none(kind: str, tmp_path: Path) -> None:
    check = f"""
maps = open("/proc/self/maps").read()
assert ("libmpi" in maps) == {kind != "gloo"}
import ferroket as fk
info = fk.initialize()
assert (info.collectives, info.binding) == ({"gloo" if kind == "gloo" else "mpi"!r}, "ferroket"), info
"""
    (tmp_path / "work.py").write_text(PSUM + check)
    job = Launched(tmp_path, ["-n", "2", "-m", "work", "--label", "-n"], kind, False, {}).end(90)
    lines = [line for line in job.ok().lines() if not line.startswith("[Gloo]")]
    assert lines == [f"{rank} of 2: 1 ['--label', '-n']" for rank in range(2)]


@pytest.mark.mpi
def test_more_ranks_than_cores(tmp_path: Path) -> None:
    n = len(os.sched_getaffinity(0)) + 1
    job = launch(tmp_path, PSUM, "-n", str(n), kind="openmpi").ok()
    assert job.lines() == [f"{rank} of {n}: {n * (n - 1) // 2} []" for rank in range(n)]


# Output.

PIECES = """
import os, sys, time
rank = os.environ.get("PMI_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["FERROKET_RANK"]
for line in range(20):
    for piece in (f"rank {rank}", f" line {line} ", "x" * 5000, "\\n"):
        sys.stdout.write(piece)
        sys.stdout.flush()
        time.sleep(0.0005)
print(f"error {rank}", file=sys.stderr)
os.write(1, b"no end")
"""


@pytest.mark.quick("mpich")
@pytest.mark.mpi
@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_whole_lines(kind: str, tmp_path: Path) -> None:
    job = launch(tmp_path, PIECES, "-n", "3", "--label", kind=kind)
    expected = [f"[{rank}] rank {rank} line {line} {'x' * 5000}" for rank in range(3) for line in range(20)]
    assert sorted(job.stdout.splitlines()) == sorted(expected + [f"[{rank}] no end" for rank in range(3)])
    assert (job.returncode, sorted(job.stderr.splitlines())) == (0, [f"[{rank}] error {rank}" for rank in range(3)])


@pytest.mark.mpi
@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_only(kind: str, tmp_path: Path) -> None:
    job = launch(tmp_path, PIECES, "-n", "3", "--rank", "1", kind=kind)
    assert job.stdout == "".join(f"rank 1 line {line} {'x' * 5000}\n" for line in range(20)) + "no end"
    assert (job.returncode, job.stderr) == (0, "error 1\n")


@pytest.mark.mpi
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_a_rank(kind: str, tmp_path: Path) -> None:
    job = launch(tmp_path, PIECES, "-n", "2", "--log-dir", "logs/today", kind=kind)
    assert job.returncode == 0
    assert sorted(path.name for path in (tmp_path / "logs" / "today").iterdir()) == ["rank-0.log", "rank-1.log"]
    for rank in range(2):
        lines = (tmp_path / "logs" / "today" / f"rank-{rank}.log").read_text().splitlines()
        lines.remove(f"error {rank}")
        assert lines == [f"rank {rank} line {line} {'x' * 5000}" for line in range(20)] + ["no end"]
    assert sorted(job.stderr.splitlines()) == ["error 0", "error 1"]  # it is shown too
    assert len(job.stdout.splitlines()) == 42


@pytest.mark.mpi
def test_a_failure_on_a_rank_that_is_not_shown_is_shown(tmp_path: Path) -> None:
    script = PSUM + "if rank == 1: raise ValueError('the reason')\nprint('done')\ntotal(x + 1)"
    job = launch(tmp_path, script, "-n", "2", "--rank", "0")
    assert job.returncode == 1
    assert job.stdout == "0 of 2: 1 []\ndone\n"
    assert "[1] ValueError: the reason\n" in job.stderr
    assert f"[1] ferroket: rank 1 of 2 on {socket.gethostname()}: uncaught ValueError" in job.stderr


@pytest.mark.mpi
def test_what_a_rank_wrote_before_a_crash_comes_out(tmp_path: Path) -> None:
    script = "import os\nprint('x' * 60000)\nprint('last words', end='', flush=True)\nos.kill(os.getpid(), 9)"
    job = launch(tmp_path, script, "-n", "1", "--label")
    assert "\n[0] last words\n" in job.stdout
    assert job.returncode == 137


@pytest.mark.mpi
def test_a_reader_that_leaves_ends_the_job(tmp_path: Path) -> None:
    with launched(tmp_path, PSUM + "while True: print('more')", "-n", "2", "--label") as job:
        job.read(r"more", 1)
        job.process.stdout.close()
        start = time.monotonic()
        assert job.process.wait(SOON) == 128 + signal.SIGPIPE
        assert time.monotonic() - start < SOON
        assert job.processes() == []
        assert "Broken" not in job.process.stderr.read()


@pytest.mark.mpi
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank-0.log").symlink_to("/dev/full")
    job = launch(tmp_path, PSUM + WORK_FOR_EVER, "-n", "2", "--log-dir", "logs", timeout=30)
    assert job.returncode == 128 + signal.SIGPIPE
    assert "the output can't be written, so the job was ended: [Errno 28] No space left on device" in job.stderr


# The end.


@pytest.mark.quick("15-mpich")
@pytest.mark.mpi
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all(kind: str, signum: signal.Signals, tmp_path: Path) -> None:
    with launched(tmp_path, PSUM + WORK_FOR_EVER, "-n", "2", kind=kind) as job:
        job.read(r"of 2: 1", 2)
        job.process.send_signal(signum)
        assert job.end(SOON).returncode == 128 + signum


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["mpich", "gloo"])
def test_ctrl_c_ends_all(kind: str, tmp_path: Path) -> None:
    with launched(tmp_path, PSUM + WORK_FOR_EVER, "-n", "2", "--label", kind=kind, terminal=True) as job:
        shown = job.read(r"of 2: 1", 2)
        assert re.search(r"\x1b\[\S*m\[0\]\x1b\[0m 0 of 2", shown), shown  # a terminal gets colours
        os.write(job.terminal, b"\x03")
        assert job.process.wait(SOON) == 130
        assert job.processes() == []
        stderr = job.process.stderr.read()
        assert stderr.count("KeyboardInterrupt") <= 2, stderr  # passed on once
        assert stderr.count("KeyboardInterrupt") == len(re.findall(r"rank \d of 2 on \S+: interrupted", stderr)) > 0


@pytest.mark.mpi
def test_a_script_may_end_by_itself_after_a_signal(tmp_path: Path) -> None:
    script = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
signal.signal(signal.SIGUSR1, lambda *_: print("reminded", flush=True))
print("ready", flush=True)
try:
    time.sleep(60)
finally:
    print("saved", flush=True)
"""
    with launched(tmp_path, script, "-n", "2") as job:
        job.read("ready", 2)
        job.process.send_signal(signal.SIGUSR1)
        job.read("reminded", 2)
        job.process.send_signal(signal.SIGTERM)
        job.read("saved", 2)
        assert job.end(2).returncode == 128 + signal.SIGTERM


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_killed_rank_ends_all(kind: str, tmp_path: Path) -> None:
    with launched(tmp_path, PSUM + WORK_FOR_EVER, "-n", "2", "--label", kind=kind) as job:
        job.read(r"of 2: 1", 2)
        os.kill(job.ranks()[-1], signal.SIGKILL)
        end = job.end(5)
        assert end.returncode == 137
        # Over gloo the other rank says that the first has left it, and may be the only one to say anything.
        message = "ferroket: rank " if kind == "gloo" else "killed (SIGKILL), "
        assert message in end.stderr, end.stderr
        assert "ferroket launch:" not in end.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_is_killed_while_nobody_watches(kind: str, tmp_path: Path) -> None:
    script = """
import os, signal, time
import ferroket as fk
from ferroket.distributed import failure
info = fk.initialize()
if info.rank == 0:
    os.kill(failure._watcher.pid, signal.SIGKILL)
fk.distributed.barrier()
if info.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""
    job = launch(tmp_path, script, "-n", "2", "--label", kind=kind)
    assert job.returncode == 137
    assert job.stderr.count("ferroket launch: a rank was killed (SIGKILL), ") == 1, job.stderr


@pytest.mark.mpi
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent was killed")
@pytest.mark.parametrize("kind", KINDS)
def test_if_it_is_killed_itself_all_ends(kind: str, tmp_path: Path) -> None:
    with launched(tmp_path, PSUM + WORK_FOR_EVER, "-n", "2", kind=kind) as job:
        job.read(r"of 2: 1", 2)
        job.process.kill()
        deadline = time.monotonic() + SOON
        while job.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        job.end(1)


@pytest.mark.quick("sys.exit(3)-3-mpich")
@pytest.mark.mpi
@pytest.mark.parametrize("kind", ALL_KINDS if FULL else KINDS)
@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit(3)", 3), ("raise ValueError('the reason')", 1), ("import os; os.abort()", 134)]
)
def test_a_rank_that_fails_ends_all_with_its_code(kind: str, end: str, code: int, tmp_path: Path) -> None:
    with launched(tmp_path, PSUM + f"if rank == 1:\n    {end}\n" + WORK_FOR_EVER, "-n", "2", kind=kind) as job:
        job.read(r"of 2: 1", 2)
        ended = job.end(5)
        assert ended.returncode == code, ended.stderr
        assert ended.stderr.count(f"ferroket: rank 1 of 2 on {socket.gethostname()}") == 1, ended.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("kind", ["mpich", "gloo"])
def test_what_a_rank_left_running_is_ended(kind: str, tmp_path: Path) -> None:
    script = """
import subprocess, sys
ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
left = subprocess.Popen([sys.executable, "-c", ignore], start_new_session=True, stdout=subprocess.PIPE, stderr=-3)
left.stdout.readline()
print("done")
"""
    start = time.monotonic()
    assert launch(tmp_path, script, "-n", "1", kind=kind, timeout=30).ok().stdout == "done\n"
    assert time.monotonic() - start < SOON


# Bad input: an error before anything is started.


@pytest.mark.quick("options0", "options3", "options4")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-n", "2", "nowhere.py"], "can't open file '{cwd}/nowhere.py': No such file or directory"),
        (["-n", "2", "--rank", "2", "script.py"], "--rank is 2, but the ranks of -n 2 are 0 to 1"),
        (["-n", "2", "--rank", "-1", "script.py"], "--rank is -1, but the ranks of -n 2 are 0 to 1"),
        (["-n", "2", "--log-dir", "script.py", "script.py"], "--log-dir 'script.py': File exists (script.py)"),
        (["-n", "0", "script.py"], "Invalid value for '--ranks' / '-n': 0 has to be 1 or more"),
        (["script.py"], "Missing option '--ranks' / '-n'"),
        (["-n", "2", "--collectives", "nccl", "script.py"], "Invalid value for '--collectives'"),
    ],
)
def test_bad_input(options: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("open('started', 'w')")
    job = Launched(tmp_path, options, "gloo", False, {}).end(30)
    assert job.returncode == 2
    assert message.format(cwd=tmp_path) in job.stderr
    assert not (tmp_path / "started").exists()


def test_no_mpi_names_the_way_out(tmp_path: Path) -> None:
    job = launch(tmp_path, "", "-n", "2", "--collectives", "mpi", kind="gloo", timeout=30)
    assert job.returncode == 2
    assert "FERROKET_LIBMPI names /nowhere/libmpi.so" in job.stderr
    assert "Without any MPI: ferroket launch --collectives gloo" in job.stderr


# The command.


def dry_run(folder: Path, *options: str, kind: str, **env: str) -> list[list[str]]:
    job = launch(folder, "", "--dry-run", *options, kind=kind, timeout=30, **env).ok()
    return [shlex.split(line) for line in job.stdout.splitlines()]


# Nothing of Ferroket's own comes from the current folder, and for the script python prepends what it does.
RUN = [sys.executable, "-P", "-m", "ferroket", "run", "--prepend-path"]
AS_ROOT = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"] if os.geteuid() == 0 else []
MANY = str(10 * (os.cpu_count() or 1))


@pytest.mark.quick("mpich")
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("kind", "n", "variables", "launcher"),
    [
        ("mpich", "1", [], ["mpirun", "-n", "1"]),
        ("mpich", MANY, [], ["mpirun", "-n", MANY]),
        ("openmpi", "1", AS_ROOT, ["mpirun", "--bind-to", "none", "-n", "1"]),
        ("openmpi", MANY, AS_ROOT, ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", MANY]),
        ("impi-rt", MANY, ["I_MPI_PIN=0"], ["mpiexec.hydra", "-n", MANY]),
    ],
)
def test_dry_run(kind: str, n: str, variables: list[str], launcher: list[str], tmp_path: Path) -> None:
    (command,) = dry_run(tmp_path, "-n", n, "--label", kind=kind)
    path = (PREFIXES[kind] / "bin" / launcher[0]).resolve()
    command[len(variables)] = str(Path(command[len(variables)]).resolve())
    assert command == [*variables, str(path), *launcher[1:], *RUN, "script.py"]


@pytest.mark.mpi
def test_dry_run_leaves_the_binding_to_the_launcher_if_ours_is_off(tmp_path: Path) -> None:
    (command,) = dry_run(tmp_path, "-n", "1", kind="openmpi", FERROKET_BIND="none")
    assert "--bind-to" not in command


def test_no_accelerate_is_passed_on(tmp_path: Path) -> None:
    for command in dry_run(tmp_path, "-n", "2", "--no-accelerate", kind="gloo"):
        assert command[-len(RUN) - 2 :] == [*RUN, "--no-accelerate", "script.py"]


@pytest.mark.mpi
def test_what_dry_run_prints_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "a script.py").write_text(PSUM)
    arguments = ["-n", "2", "--dry-run", "a script.py", "$HOME", "it's"]
    line = Launched(tmp_path, arguments, "mpich", False, {}).end(30).ok().stdout
    job = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert sorted(job.stdout.splitlines()) == [f"{rank} of 2: 1 ['$HOME', \"it's\"]" for rank in range(2)]


def test_dry_run_without_mpi(tmp_path: Path) -> None:
    commands = dry_run(tmp_path, "-n", "2", kind="gloo")
    for rank, command in enumerate(commands):
        assert command[0] == "FERROKET_COLLECTIVES=gloo"
        assert re.fullmatch(r"FERROKET_COORDINATOR=127\.0\.0\.1:\d+", command[1])
        assert command[2:] == [f"FERROKET_RANK={rank}", "FERROKET_SIZE=2", *RUN, "script.py"]
    assert len(commands) == 2
    assert commands[0][1] == commands[1][1]


# What launchers say of a rank's end: their own words.
HYDRA = """
=   EXIT CODE: {code}
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: {how} (signal {code})
"""
INTEL = """
=   RANK {rank} PID 1 RUNNING AT host
=   KILLED BY SIGNAL: {signal} (Killed)
"""


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        pytest.param(0, "", 0, id="a good end"),
        pytest.param(3, "", 3, id="a code"),
        pytest.param(9, "", 9, id="the code 9"),
        pytest.param(9, HYDRA.format(code=9, how="Killed"), 137, id="MPICH, killed"),
        pytest.param(11, HYDRA.format(code=11, how="Segmentation fault"), 139, id="MPICH, segmentation fault"),
        pytest.param(3, "a rank prints (signal 3)", 3, id="a rank that writes of signals"),
        pytest.param(137, "", 137, id="Open MPI says it itself"),
        pytest.param(255, INTEL.format(rank=0, signal=9) + INTEL.format(rank=1, signal=11), 139, id="Intel, crash"),
        pytest.param(255, INTEL.format(rank=0, signal=9) + INTEL.format(rank=1, signal=9), 137, id="Intel, killed"),
        pytest.param(255, INTEL.format(rank=0, signal=9), 255, id="Intel, the code of rank 1 is lost"),
        pytest.param(-15, "", 143, id="the launcher itself was killed"),
    ],
)
def test_exit_code(code: int, said: str, expected: int) -> None:
    assert launchers.exit_code(code, said, ranks=2) == expected


# The launcher that belongs to a library.


class Library:
    """What is known of an MPI library."""

    def __init__(self, path: Path, version: str) -> None:
        self.path = path
        self.version = version
        self.family = "Open MPI" if "Open MPI" in version else "MPICH"


VERSIONS = {"mpich": "HYDRA build details:", "openmpi": "mpirun (Open MPI) 4.1.4", "intel": "Intel(R) MPI Library"}


def install(folder: Path, **launchers: str) -> None:
    """Launchers that only know their version, by name with _ for a dot."""
    folder.mkdir(parents=True)
    for name, mpi in launchers.items():
        path = folder / name.replace("_", ".")
        path.write_text(f"#!/bin/sh\necho '{VERSIONS[mpi]}'\n")
        path.chmod(0o755)


@pytest.mark.parametrize(
    ("library_path", "version", "expected"),
    [
        ("lib/x86_64-linux-gnu/libmpich.so.12", "MPICH Version: 4.0.2", "bin/mpirun.mpich"),
        ("lib/x86_64-linux-gnu/libmpi.so.40", "Open MPI v4.1.4", "bin/mpirun.openmpi"),
        ("lib/x86_64-linux-gnu/openmpi/lib/libmpi.so.40", "Open MPI v4.1.4", "bin/mpirun.openmpi"),
        ("opt/mpich/lib/libmpi.so.12", "MPICH Version: 5.0", "opt/mpich/bin/mpirun"),
        ("opt/intel/lib/release/libmpi.so.12", "Intel(R) MPI Library 2021.9", "opt/intel/bin/mpiexec.hydra"),
    ],
)
def test_find_mpirun(
    library_path: str, version: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node with Debian's MPICH and Open MPI, of which the latter is the default, and two more installations."""
    monkeypatch.setenv("PATH", "/nowhere")
    install(tmp_path / "bin", mpirun="openmpi", mpirun_openmpi="openmpi", mpirun_mpich="mpich", mpiexec_hydra="mpich")
    install(tmp_path / "opt" / "mpich" / "bin", mpirun="mpich")
    install(tmp_path / "opt" / "intel" / "bin", mpirun="intel", mpiexec_hydra="intel")
    found = library.find_mpirun(Library(tmp_path / library_path, version))  # type: ignore[arg-type]
    assert str(found.relative_to(tmp_path)) == expected


def test_find_mpirun_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "bin", mpirun="mpich")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    elsewhere = Path("/nowhere/lib/libmpi.so.12")
    assert library.find_mpirun(Library(elsewhere, "MPICH Version: 5.0")) == tmp_path / "bin" / "mpirun"  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError) as error:
        library.find_mpirun(Library(elsewhere, "Open MPI v5.0"))  # type: ignore[arg-type]
    assert "no mpirun belongs to Open MPI v5.0, /nowhere/lib/libmpi.so.12" in str(error.value)
    assert f"({tmp_path / 'bin' / 'mpirun'} belongs to another MPI)" in str(error.value)
    assert "FERROKET_LIBMPI" in str(error.value)
