"""A real SLURM on this machine, for tests: a login host with the controller, and two nodes, in namespaces of their own.

Needs root, munge and slurm-wlm (``apt-get install slurm-wlm munge iproute2``). Jobs are those of a user ``tester``.
What is a node of its own to SLURM and to MPI libraries: the host name, address, boot identifier and /dev/shm.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

_TOOLS = ("slurmctld", "slurmd", "munged", "ip", "nsenter", "unshare", "setpriv")
_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
_USER = 4242
_LOGIN, _NODES = "n0", ("n1", "n2")
_ADDRESS = {"n0": "10.99.0.1", "n1": "10.99.0.11", "n2": "10.99.0.12"}
_ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}

_CONFIGURATION = """
ClusterName=test
SlurmctldHost=n0(10.99.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={run}/munge/socket
CredType=cred/munge
StateSaveLocation={run}/state
SlurmdSpoolDir={run}/spool-%n
SlurmctldPidFile={run}/slurmctld.pid
SlurmdPidFile={run}/slurmd-%n.pid
SlurmctldLogFile={run}/slurmctld.log
SlurmdLogFile={run}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
MpiDefault=pmix
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=sched_interval=2,bf_interval=5,requeue_delay=1
KillWait=5
InactiveLimit=0
JobRequeue=1
NodeName=n1 NodeAddr=10.99.0.11 CPUs={cores} RealMemory=10000 State=UNKNOWN
NodeName=n2 NodeAddr=10.99.0.12 CPUs={cores} RealMemory=10000 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=60 State=UP
"""


def missing() -> str | None:
    """Why no SLURM can be started here, if so."""
    if os.geteuid() != 0:
        return "starting SLURM needs root"
    absent = [tool for tool in _TOOLS if shutil.which(tool, path=_PATH) is None]
    if absent:
        return f"{', '.join(absent)} isn't installed: apt-get install slurm-wlm munge iproute2"
    if (os.cpu_count() or 1) < 2:
        return "a node of SLURM's needs two cores here"
    return None


class Cluster:
    """A SLURM that runs.

    Attributes:
        home: the home of the user, with an environment ``venv``: this one.
    """

    def __init__(self, folder: Path) -> None:
        self._run = folder
        self.home = folder / "home"
        self._hosts: dict[str, int] = {}

    def command(self, *arguments: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs a command as the user on the login host, in the folder ``job`` of the home."""
        keeper = str(self._hosts[_LOGIN])
        enter = ["nsenter", "--target", keeper, "--net", "--uts", "--mount", f"--wdns={self.home / 'job'}"]
        variables = {
            "HOME": str(self.home),
            "USER": "tester",
            "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "SLURM_CONF": str(self._run / "slurm.conf"),
            "FERROKET_CACHE": "off",
        }
        user = ["setpriv", "--reuid", str(_USER), "--regid", str(_USER), "--clear-groups"]
        environment = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        return subprocess.run(
            [*enter, *environment, *user, *map(str, arguments)],
            env={"PATH": _PATH},
            stdin=subprocess.DEVNULL,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    def submit(self, script: str, *options: str) -> str:
        """Submits a job script. Returns the job's number."""
        file = self.home / "job" / f"{time.monotonic_ns()}.sh"
        file.write_text(script)
        done = self.command("sbatch", "--parsable", *options, file.name)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self, job: str) -> str:
        """The state of a job, such as ``RUNNING``."""
        shown = self.command("scontrol", "--oneliner", "show", "job", job).stdout
        return dict(part.split("=", 1) for part in shown.split() if "=" in part).get("JobState", "")

    def wait(self, job: str, seconds: float = 90) -> str:
        """Waits for a job's end. Returns its state."""
        deadline = time.monotonic() + seconds
        while (state := self.state(job)) not in _ENDED:
            if time.monotonic() > deadline:
                self.command("scancel", job)
                pytest.fail(f"the job is still {state} after {seconds} s\n{self.output(job)}")
            time.sleep(0.2)
        return state

    def wait_for(self, job: str, text: str, times: int = 1, seconds: float = 60) -> None:
        """Waits until a job has written something so often."""
        deadline = time.monotonic() + seconds
        while self.output(job).count(text) < times:
            assert time.monotonic() < deadline, self.output(job)
            time.sleep(0.1)

    def output(self, job: str) -> str:
        """What a job has written so far."""
        return "".join(file.read_text() for file in (self.home / "job").glob(f"*-{job}.out"))

    def processes(self) -> list[psutil.Process]:
        """The processes of the user."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.uids().real == _USER and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


@contextlib.contextmanager
def start_cluster(folder: Path) -> Iterator[Cluster]:
    """A SLURM of two nodes, until the block is left."""
    cluster = Cluster(folder)
    for name in ("munge", "state", "spool-n1", "spool-n2", "home/job"):
        (folder / name).mkdir(parents=True)
    for place in (folder, *folder.parents):  # for the user to get there
        place.chmod(place.stat().st_mode | 0o111)
    cores = min(os.cpu_count() or 1, 8)
    (folder / "slurm.conf").write_text(_CONFIGURATION.format(run=folder, cores=cores))
    for name, entry in (("passwd", f"{cluster.home}:/bin/bash"), ("group", "")):
        line = f"tester:x:{_USER}:{_USER}::{entry}\n" if entry else f"tester:x:{_USER}:\n"
        (folder / name).write_text(Path("/etc", name).read_text() + line)
    hosts = "".join(f"{address} {name}\n" for name, address in _ADDRESS.items())
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
    (folder / "nsswitch.conf").write_text("hosts: files\n")
    (cluster.home / "venv").symlink_to(sys.prefix)
    for path in (cluster.home, cluster.home / "job"):
        os.chown(path, _USER, _USER)
    with ExitStack() as stack:
        for host in _ADDRESS:
            cluster._hosts[host] = stack.enter_context(_host(folder, host))
        _connect(cluster._hosts)
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        parts = {name: folder / "munge" / name for name in ("socket", "pid", "log", "seed")}
        options = [f"--{name}{'' if name == 'socket' else '-file'}={path}" for name, path in parts.items()]
        _run(["munged", "--force", f"--key-file={key}", *options])
        stack.callback(_kill, folder / "munge" / "pid")
        configuration = {"SLURM_CONF": str(folder / "slurm.conf")}
        _run_on(cluster._hosts[_LOGIN], ["slurmctld"], configuration)
        stack.callback(_kill, folder / "slurmctld.pid")
        for node in _NODES:
            _run_on(cluster._hosts[node], ["slurmd", "-N", node], configuration)
            stack.callback(_kill, folder / f"slurmd-{node}.pid")
        stack.callback(_end_jobs, cluster)
        deadline = time.monotonic() + 20
        while cluster.command("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() != "2":
            if time.monotonic() > deadline:
                pytest.skip(f"SLURM doesn't come up here: {cluster.command('sinfo', '-R').stdout}")
            time.sleep(0.1)
        yield cluster


@contextlib.contextmanager
def _host(folder: Path, name: str) -> Iterator[int]:
    """The process that keeps the namespaces of a host."""
    boot_id = folder / f"boot-{name}"
    boot_id.write_text(Path("/proc/sys/kernel/random/uuid").read_text())
    files = ("hosts", "nsswitch.conf", "passwd", "group")
    binds = "".join(f"mount --bind {folder / file} /etc/{file}\n" for file in files)
    pyenv = Path.home() / ".pyenv"
    # A Python that other users than root can't read otherwise.
    shown = f"""
mkdir -p {folder}/shown && mount --bind {pyenv} {folder}/shown
mount -t tmpfs -o mode=755 tmpfs {pyenv.parent} && mkdir {pyenv} && mount --move {folder}/shown {pyenv}
"""
    script = f"""set -e
hostname {name}
{binds}
mount -t tmpfs tmpfs /dev/shm
mount --bind {boot_id} /proc/sys/kernel/random/boot_id
{shown if pyenv.is_dir() else ""}
ip link set lo up
echo ready
exec sleep infinity
"""
    keeper = subprocess.Popen(
        ["unshare", "--net", "--uts", "--mount", "sh", "-c", script],
        env={"PATH": _PATH},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert keeper.stdout
        if keeper.stdout.readline() != "ready\n":
            pytest.skip(f"namespaces can't be made here: {keeper.communicate()[1]}")
        yield keeper.pid
    finally:
        keeper.kill()
        keeper.wait()


def _connect(hosts: dict[str, int]) -> None:
    """Joins the hosts to one network, whose switch is on the login host."""
    login = hosts[_LOGIN]
    _run_on(login, ["ip", "link", "add", "bridge", "type", "bridge"])
    _run_on(login, ["ip", "address", "add", f"{_ADDRESS[_LOGIN]}/24", "dev", "bridge"])
    _run_on(login, ["ip", "link", "set", "bridge", "up"])
    for node in _NODES:
        port = ["ip", "link", "add", f"port-{node}", "type", "veth", "peer", "name", "eth0", "netns", str(hosts[node])]
        _run_on(login, port)
        _run_on(login, ["ip", "link", "set", f"port-{node}", "master", "bridge", "up"])
        _run_on(hosts[node], ["ip", "address", "add", f"{_ADDRESS[node]}/24", "dev", "eth0"])
        _run_on(hosts[node], ["ip", "link", "set", "eth0", "up"])


def _run_on(host: int, command: Sequence[str], variables: dict[str, str] | None = None) -> None:
    _run(["nsenter", "--target", str(host), "--net", "--uts", "--mount", *command], variables)


def _run(command: Sequence[str], variables: dict[str, str] | None = None) -> None:
    """Runs a command that ends, or becomes a daemon, which keeps none of our pipes."""
    done = subprocess.run(
        command,
        env={"PATH": _PATH, **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, command


def _kill(pid_file: Path) -> None:
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        daemon = psutil.Process(int(pid_file.read_text()))
        daemon.terminate()
        try:
            daemon.wait(5)
        except psutil.TimeoutExpired:
            daemon.kill()


def _end_jobs(cluster: Cluster) -> None:
    cluster.command("scancel", "--signal=KILL", "--full", "--user=tester")
    cluster.command("scancel", "--user=tester")
    for process in cluster.processes():
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
