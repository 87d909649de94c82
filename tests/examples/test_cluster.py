"""The job scripts are right, and run: with the real mpirun, and stand-ins for what only a cluster has."""

import os
import re
import shlex
import socket
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from support.hosts import Host, make_hosts
from support.mpi import environment, mpirun, run_command
from support.shell_scripts import RUN, check, make_home, run, said

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "examples" / "cluster"
SCRIPTS = sorted(CLUSTER.glob("*.sh"))

# What the options that job scripts may need have for values; any other option is taken for a mistake.
NUMBER = r"[1-9]\d*"
TIME = r"\d+:[0-5]\d:[0-5]\d"
SBATCH = {
    "job-name": r"\w+",
    "nodes": NUMBER,
    "ntasks-per-node": NUMBER,
    "gpus-per-node": NUMBER,
    "cpus-per-task": NUMBER,
    "hint": "nomultithread",
    "time": TIME,
    "output": "%x-%j.out",
    "open-mode": "append",
}
PBS = {
    "N": r"\w+",
    "l select": rf"{NUMBER}:ncpus={NUMBER}:mpiprocs={NUMBER}:ompthreads=1",
    "l place": r"(?:free|pack|scatter|vscatter)(?::(?:excl|exclhost|shared))?",
    "l walltime": TIME,
    "j": "oe",
}


def options(script: Path, mark: str, option: str) -> list[tuple[str, str]]:
    """The names and values of a script's options: the part of each line behind the mark, taken apart."""
    lines = re.findall(rf"^#{mark} +(.*)$", script.read_text(), re.MULTILINE)
    found = [re.fullmatch(option, line) for line in lines]
    assert lines
    assert None not in found, lines
    return [(match[1], match[2]) for match in found if match]


def sbatch(script: Path) -> dict[str, str]:
    return dict(options(script, "SBATCH", "--([a-z-]+)=(.+)"))


def pbs(script: Path) -> dict[str, str]:
    return dict(options(script, "PBS", "-([A-Z]|l [a-z]+|[a-z])[ =](.+)"))


def section(name: str) -> str:
    """A section of the Apptainer recipe."""
    text = (CLUSTER / "ferroket.def").read_text()
    found = re.search(rf"^%{name}\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    assert found
    return found[1]


def usage(file: Path) -> list[str]:
    """The commands that the comment at the top of a file shows."""
    return re.findall(r"^#     (.+)$", file.read_text(), re.MULTILINE)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_scripts_are_good_shell(script: Path) -> None:
    check(script.read_text())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_options_exist_have_good_values_and_stand_above_all_commands(script: Path) -> None:
    known, given, mark = (PBS, pbs, "#PBS") if script.name == "pbs.sh" else (SBATCH, sbatch, "#SBATCH")
    for name, value in given(script).items():
        assert re.fullmatch(known[name], value), f"{name}={value}"
    # The batch systems read no further than the first command.
    lines = script.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert lines[0] == "#!/bin/bash -l"
    assert all(not line.startswith(mark) for line in lines[first:])
    assert any(command.endswith(f" {script.name}") for command in usage(script))


@pytest.mark.parametrize(
    ("name", "ranks", "cores"), [("slurm-mpirun", 128, 64), ("slurm-srun", 128, 64), ("slurm-gpu", 8, 64)]
)
def test_slurm_jobs_fill_their_nodes(name: str, ranks: int, cores: int) -> None:
    asked = sbatch(CLUSTER / f"{name}.sh")
    per_node = int(asked["ntasks-per-node"])
    assert int(asked["nodes"]) * per_node == ranks
    assert per_node * int(asked["cpus-per-task"]) == cores
    assert int(asked.get("gpus-per-node", 0)) == (per_node if name == "slurm-gpu" else 0)


def test_the_pbs_job_fills_its_nodes() -> None:
    select = pbs(CLUSTER / "pbs.sh")["l select"]
    nodes, cores, ranks, threads = map(int, re.findall(r"\d+", select))
    assert (nodes, cores, ranks, threads) == (2, 64, 64, 1)


# The scripts run.


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home directory, whose folder ``job`` we are in."""
    folder = make_home(tmp_path / "home")
    monkeypatch.chdir(folder / "job")
    return folder


def two_ranks(words: str) -> list[str]:
    return [f"rank {rank} of 2 on {socket.gethostname()}: 1, {words}" for rank in range(2)]


def allocation(script: Path) -> dict[str, str]:
    """What SLURM tells a script that was submitted with ``sbatch --nodes=1 --ntasks-per-node=2``."""
    return {
        "SLURM_JOB_ID": "20",
        "SLURM_JOB_NODELIST": socket.gethostname(),
        "SLURM_NODELIST": socket.gethostname(),
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_TASKS_PER_NODE": "2",
        "SLURM_NTASKS": "2",
        "SLURM_CPUS_PER_TASK": sbatch(script)["cpus-per-task"],
    }


@pytest.mark.quick
@pytest.mark.mpi
def test_slurm_with_mpirun(home: Path) -> None:
    script = CLUSTER / "slurm-mpirun.sh"
    lines, calls = run(home, ["bash", script], **allocation(script))
    assert lines == two_ranks("mpi, MPICH's mpirun (hydra)")
    assert calls[:2] == ["module load mpich", "mpirun python run.py"]
    assert re.match("srun -N 1 -n 1 .*/hydra_pmi_proxy", calls[2])


@pytest.mark.mpi
def test_slurm_with_srun(home: Path) -> None:
    script = CLUSTER / "slurm-srun.sh"
    lines, calls = run(home, ["bash", script], **allocation(script))
    assert lines == two_ranks("mpi, SLURM's srun")
    assert calls == ["module load mpich", "srun --mpi=pmi2 --kill-on-bad-exit=1 python run.py"]


@pytest.mark.mpi
def test_slurm_with_gpus(home: Path) -> None:
    """On the cores, where gloo stands in for NCCL: neither needs MPI."""
    script = CLUSTER / "slurm-gpu.sh"
    lines, calls = run(home, ["bash", script], FERROKET_COLLECTIVES="gloo", **allocation(script))
    assert lines == two_ranks("gloo, SLURM's srun")
    assert calls == ["srun --kill-on-bad-exit=1 --cpus-per-task=16 python run.py"]


@pytest.mark.mpi
def test_pbs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of nodes has a line for each rank, and the job starts in the home directory."""
    (home / "nodes").write_text(f"{socket.gethostname()}\n" * 2)
    monkeypatch.chdir(home)
    told = {"PBS_JOBID": "20.server", "PBS_NODEFILE": str(home / "nodes"), "PBS_O_WORKDIR": str(home / "job")}
    lines, calls = run(home, ["bash", CLUSTER / "pbs.sh"], **told)
    assert lines == two_ranks("mpi, MPICH's mpirun (hydra)")
    assert calls == ["module load mpich", "mpirun python run.py"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_without_the_environment_nothing_runs(script: Path, home: Path) -> None:
    (home / "venv" / "bin" / "activate").unlink()
    for program in ("python", "mpirun"):
        (home / "venv" / "bin" / program).rename(home / "bin" / program)
    env = environment(HOME=str(home), PATH=f"{home / 'bin'}:/usr/bin:/bin", PBS_O_WORKDIR=".", LC_ALL="C.UTF-8")
    job = run_command(["bash", script], env, 30)
    assert job.returncode == 1
    assert "venv/bin/activate: No such file or directory" in job.stderr
    assert job.stdout == ""


# The Apptainer image.


def test_the_image_is_built_by_good_shell() -> None:
    text = (CLUSTER / "ferroket.def").read_text()
    header = dict(re.findall(r"^(\w+): (\S+)$", text, re.MULTILINE))
    assert header == {"Bootstrap": "docker", "From": "python:3.12-slim"}
    assert re.findall(r"^%(\w+)$", text, re.MULTILINE) == ["files", "post", "environment", "runscript"]
    for name in ("post", "environment", "runscript"):
        check(section(name), "sh")
    wheel, folder = section("files").split()
    assert section("post").split() == ["pip", "install", "--no-cache-dir", f"{folder}{wheel}", "'mpich>=5'"]


@pytest.mark.mpi
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_image_runs_as_its_comment_says(number: int, home: Path) -> None:
    commands = usage(CLUSTER / "ferroket.def")
    assert commands[0] == "apptainer build ferroket.sif ferroket.def"
    assert len(commands) == 4
    (home / "runscript").write_text(section("runscript"))
    (home / "environment").write_text(section("environment"))
    (home / "job" / "run.py").write_text(RUN + "import os\nassert os.environ['PYTHONNOUSERSITE'] == '1'\n")
    command = re.sub(r"-n \d+", "-n 2", commands[number])
    lines, calls = run(
        home, ["bash", "-c", f'source "$HOME/venv/bin/activate"\n{command}'], SLURM_NTASKS="2", SLURM_CPUS_PER_TASK="1"
    )
    assert lines == two_ranks("mpi, SLURM's srun" if command.startswith("srun") else "mpi, MPICH's mpirun (hydra)")
    assert sum(call.startswith("apptainer ") for call in calls) == (1 if number == 1 else 2)


# The EasyBuild file and the Spack environment.


def test_the_easyconfig_has_what_the_package_needs() -> None:
    found: dict[str, Any] = {}
    exec((CLUSTER / "Ferroket-0.1.0-foss-2025b.eb").read_text(), found)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    crates = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert found["version"] == crates["workspace"]["package"]["version"]
    versions = {name: version for name, version, *_ in found["dependencies"] + found["exts_list"]}
    versions = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in versions.items()}
    # What these are part of.
    bundles = {"numpy": "scipy-bundle", "packaging": "python"}
    bundles |= dict.fromkeys(("psutil", "rich"), "python-bundle-pypi")
    for requirement in map(Requirement, project["project"]["dependencies"]):
        if requirement.name in bundles:
            assert bundles[requirement.name] in versions
        else:
            assert requirement.specifier.contains(versions[requirement.name]), requirement
    assert versions["netket"] in project["tool"]["ferroket"]["tested"]["netket"]
    assert SpecifierSet(project["project"]["requires-python"]).contains(versions["python"])
    for name, _, *options in found["exts_list"]:
        assert name == "ferroket" or re.fullmatch(r"[0-9a-f]{64}", options[0]["checksums"][0]), name


def test_the_spack_environment_has_a_rust_and_a_python() -> None:
    specs = yaml.safe_load((CLUSTER / "spack.yaml").read_text())["spack"]["specs"]
    versions = dict(spec.split("@") for spec in specs if "@" in spec)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    crates = tomllib.loads((ROOT / "Cargo.toml").read_text())
    assert versions["rust"] == f"{crates['workspace']['package']['rust-version']}:"
    tested = project["tool"]["ferroket"]["tested"]["python"]
    assert versions["python"] == f"{tested[0]}:{tested[-1]}"


# The Kubernetes manifest: what it may consist of, as JobSet's and Kubernetes' references have it, and no more of that
# than is used. What isn't named here is a mistake.


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Named(Part):
    name: str = Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")


class Variable(Part):
    name: str = Field(pattern=r"^[A-Z_]+$")
    value: str


class Resources(Part):
    requests: dict[Literal["cpu", "memory"], str]


class Mount(Named):
    mount_path: str = Field(pattern="^/")


class EmptyDir(Part):
    medium: Literal["Memory"]
    size_limit: str = Field(pattern=r"^\d+[MG]i$")


class Volume(Named):
    config_map: Named | None = None
    empty_dir: EmptyDir | None = None


class Container(Named):
    image: str
    working_dir: str
    command: list[str]
    env: list[Variable] = []
    resources: Resources
    volume_mounts: list[Mount]


class LabelSelector(Part):
    match_labels: dict[str, str]


class AffinityTerm(Part):
    topology_key: str
    label_selector: LabelSelector


class PodAntiAffinity(Part):
    required_during_scheduling_ignored_during_execution: list[AffinityTerm]


class Affinity(Part):
    pod_anti_affinity: PodAntiAffinity


class PodSpec(Part):
    restart_policy: Literal["Never", "OnFailure"]
    affinity: Affinity | None = None
    termination_grace_period_seconds: int = 30
    containers: list[Container] = Field(min_length=1, max_length=1)
    volumes: list[Volume]


class PodTemplate(Part):
    spec: PodSpec


class JobSpec(Part):
    completion_mode: Literal["Indexed"]
    completions: int
    parallelism: int
    backoff_limit: int
    template: PodTemplate


class JobTemplate(Part):
    spec: JobSpec


class ReplicatedJob(Named):
    template: JobTemplate


class SuccessPolicy(Part):
    operator: Literal["All", "Any"]
    target_replicated_jobs: list[str]


class FailurePolicy(Part):
    max_restarts: int


class JobSetSpec(Part):
    success_policy: SuccessPolicy
    failure_policy: FailurePolicy
    replicated_jobs: list[ReplicatedJob]


class JobSet(Part):
    api_version: Literal["jobset.x-k8s.io/v1alpha2"]
    kind: Literal["JobSet"]
    metadata: Named
    spec: JobSetSpec


MANIFEST = CLUSTER / "kubernetes-jobset.yaml"


def manifest() -> tuple[JobSet, JobSpec, JobSpec]:
    """The manifest, and its two jobs: the launcher's and the nodes'."""
    jobset = JobSet.model_validate(yaml.safe_load(MANIFEST.read_text()))
    launcher, nodes = jobset.spec.replicated_jobs
    assert (launcher.name, nodes.name) == ("launcher", "nodes")
    return jobset, launcher.template.spec, nodes.template.spec


def test_the_manifest_is_a_jobset() -> None:
    jobset, launcher, nodes = manifest()
    assert jobset.spec.success_policy.target_replicated_jobs == ["launcher"]
    assert (launcher.completions, nodes.completions) == (1, 2)
    for job in (launcher, nodes):
        assert job.parallelism == job.completions  # all at once: mpirun waits for all
        pod = job.template.spec
        (container,) = pod.containers
        assert {mount.name for mount in container.volume_mounts} == {volume.name for volume in pod.volumes}
        assert container.volume_mounts[0].mount_path == container.working_dir
        assert (pod.volumes[0].name, pod.volumes[0].config_map) == ("script", Named(name="ising"))


def test_the_manifest_agrees_with_itself() -> None:
    jobset, launcher, nodes = manifest()
    (called,) = launcher.template.spec.containers
    (calling,) = nodes.template.spec.containers
    hosts = called.command[called.command.index("-hosts") + 1].split(",")
    assert hosts == ["node0:30", "node1:30"]
    assert len(hosts) == nodes.completions
    assert calling.resources.requests["cpu"] == "30"
    assert nodes.template.spec.affinity
    (apart,) = nodes.template.spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    assert apart.topology_key == "kubernetes.io/hostname"
    assert apart.label_selector.match_labels == {
        "jobset.sigs.k8s.io/jobset-name": jobset.metadata.name,
        "jobset.sigs.k8s.io/replicatedjob-name": "nodes",
    }
    port = called.env[0].value.split(":")[0]
    assert called.env == [Variable(name="MPIEXEC_PORT_RANGE", value=f"{port}:{port}")]
    assert f"--control-port {pod_names(jobset)[0]}:{port} " in calling.command[-1]
    assert calling.command[:2] == ["bash", "-c"]
    check(calling.command[-1])
    assert usage(MANIFEST)[3:] == [
        "kubectl create configmap ising --from-file=run.py",
        f"kubectl apply -f {MANIFEST.name}",
        "kubectl logs --follow job/ising-launcher-0",
    ]


def pod_names(jobset: JobSet) -> list[str]:
    """The names by which JobSet lets the pods reach each other."""
    return [
        f"{jobset.metadata.name}-{job.name}-0-{index}.{jobset.metadata.name}"
        for job in jobset.spec.replicated_jobs
        for index in range(job.template.spec.completions)
    ]


# What gives a pod process numbers of its own; it isn't allowed inside of some containers.
OWN_PROCESSES = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def in_pod(host: Host, job: JobSpec, index: int) -> str:
    """The shell's line that runs a pod's command on a host, with process numbers of its own, as in a pod."""
    (container,) = job.template.spec.containers
    variables = [f"{variable.name}={variable.value}" for variable in container.env]
    command = [word.replace(":30", ":1") if word.startswith("node0:") else word for word in container.command]
    path = f"PATH={mpirun().parent}:{os.environ['PATH']}"
    return shlex.join(
        [str(host.enter), *OWN_PROCESSES, "env", path, *variables, f"JOB_COMPLETION_INDEX={index}", *command]
    )


@pytest.mark.mpi
def test_kubernetes_pods_run_one_job_over_mpi(home: Path) -> None:
    """One rank a node, and the nodes' pods are there before mpirun is. Each pod knows the others by JobSet's names."""
    if subprocess.run([*OWN_PROCESSES, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no process numbers of one's own here: unshare --pid")
    jobset, launcher, nodes = manifest()

    def names(host: Host, hosts: Sequence[Host]) -> Mapping[str, str]:
        return {
            host.name: host.address,
            **{name: of.address for name, of in zip(pod_names(jobset), hosts, strict=True)},
        }

    with make_hosts(home, names, n=3) as hosts:
        pods = [in_pod(hosts[1 + index], nodes, index) for index in range(2)]
        too_early = f"until grep -q 'unable to connect' {home}/stderr; do sleep 0.1; done"
        lines = [
            *(f"{pod} 2> >(tee -a {home}/stderr >&2) & pids+=($!)" for pod in pods),
            too_early,
            f"{in_pod(hosts[0], launcher, 0)} & pids+=($!)",
            'for pid in "${pids[@]}"; do wait "$pid" || exit; done',
        ]
        (home / "stderr").touch()
        job = run_command(["bash", "-c", "\n".join(lines)], environment(), 60)
        assert said(job) == [
            f"rank {rank} of 2 on {hosts[1 + rank].name}: 1, mpi, MPICH's mpirun (hydra)" for rank in range(2)
        ]
