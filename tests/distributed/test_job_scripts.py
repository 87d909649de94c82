"""``ferroket job``: the scripts of the documents, with a user's values in them."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from ferroket.cli import app
from ferroket.distributed import job_scripts
from ferroket.distributed.doctor.facts import Library
from support.shell_scripts import check

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "examples" / "cluster"
PAGE = ROOT / "docs" / "running-on-a-cluster.md"

OURS = "import ferroket as fk\ninfo = fk.initialize()\n"
OTHERS = "import ferroket\nimport jax\njax.distributed.initialize()\n"


def library(
    family: str = "MPICH", version: str = "MPICH 4.2", path: str = "/opt/mpi/lib/libmpi.so", **more: str
) -> Library:
    found = {"mpirun": "/opt/mpi/bin/mpirun", **more}
    return Library(
        path=path,
        family=family,
        version=version,
        origin="PATH",
        attempts=[],
        mpirun=found["mpirun"] or None,
        mpirun_error=None,
    )


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home directory with a virtual environment, as in the documents, and a cluster's MPICH by a module."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "activate").touch()
    (tmp_path / "run.py").write_text(OURS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOADEDMODULES", "mpich")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setattr(job_scripts, "find_library", library)


def no_library() -> Library:
    raise RuntimeError("there is none")


def job(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["job", *arguments])
    assert done.exit_code == 0, done.stderr
    if arguments[0] != "kubernetes":
        check(done.stdout)
    return done.stdout


def body(text: str) -> str:
    """A script from its first option on: above is what it says of itself."""
    found = re.search(r"^(#SBATCH|#PBS|apiVersion).*\Z", text, re.MULTILINE | re.DOTALL)
    assert found
    return found[0]


AS_ON_THE_PAGE = {
    "slurm-mpirun.sh": "slurm --nodes 2 -n 64 --name ising run.py",
    "slurm-srun.sh": "slurm --nodes 2 -n 64 --name ising --launcher srun run.py",
    "pbs.sh": "pbs --nodes 2 -n 64 --name ising run.py",
    "kubernetes-jobset.yaml": "kubernetes --nodes 2 -n 30 --name ising --image registry.example.org/ferroket run.py",
}


@pytest.mark.parametrize("name", AS_ON_THE_PAGE)
def test_the_pages_scripts_are_the_commands(name: str) -> None:
    """The page includes the files of the examples, and the command writes them, but for the comment at their top."""
    assert f"{{literalinclude}} ../examples/cluster/{name}\n" in PAGE.read_text()
    assert body(job(*AS_ON_THE_PAGE[name].split())) == body((CLUSTER / name).read_text())


def test_all_templates_are_links_to_the_examples() -> None:
    links = sorted(job_scripts.TEMPLATES.iterdir())
    assert [link.name for link in links] == sorted(AS_ON_THE_PAGE)
    for link in links:
        assert link.read_text() == (CLUSTER / link.name).read_text()


def test_slurm_has_what_was_asked_for() -> None:
    asked = "slurm -N 3 -n 8 -c 4 --time 1-12:00:00 -A my-project -p long run.py --its own 'two words'"
    text = job(*shlex.split(asked))
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", text, re.MULTILINE))
    assert options == {
        "job-name": "run",
        "nodes": "3",
        "ntasks-per-node": "8",
        "cpus-per-task": "4",
        "hint": "nomultithread",
        "time": "1-12:00:00",
        "account": "my-project",
        "partition": "long",
        "output": "%x-%j.out",
        "open-mode": "append",
    }
    assert text.startswith(
        "#!/bin/bash -l\n# Written by `ferroket job slurm`: 3 nodes of 8 ranks, each with 4 cores.\n"
    )
    assert text.endswith("\nmpirun python run.py --its own 'two words'\n")


def test_pbs_has_what_was_asked_for() -> None:
    text = job(*shlex.split("pbs --nodes 3 -n 8 -c 4 --time 1-12:30:00 -A my-project -q long run.py"))
    assert re.findall(r"^#PBS -(.*)$", text, re.MULTILINE) == [
        "N run",
        "A my-project",
        "q long",
        "l select=3:ncpus=32:mpiprocs=8:ompthreads=1",
        "l place=scatter:excl",
        "l walltime=36:30:00",
        "j oe",
    ]


def test_kubernetes_has_what_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "My run.py").write_text(OTHERS)
    text = job(
        "kubernetes", "--nodes", "3", "-n", "8", "-c", "2", "--image", "a.b/c:1", "My run.py", "12", "yes", 'a"b'
    )
    jobset = yaml.safe_load(text)
    assert jobset["metadata"]["name"] == "my-run"
    launcher, nodes = (job["template"]["spec"] for job in jobset["spec"]["replicatedJobs"])
    (mpirun,), (ranks,) = (job["template"]["spec"]["containers"] for job in (launcher, nodes))
    hosts = "node0:8,node1:8,node2:8"
    program = ["ferroket", "run", "My run.py", "12", "yes", 'a"b']
    assert mpirun["command"] == ["mpirun", "-launcher", "manual", "-hosts", hosts, *program]
    assert (nodes["completions"], nodes["parallelism"], launcher["completions"]) == (3, 3, 1)
    assert ranks["resources"]["requests"]["cpu"] == "16"
    assert mpirun["image"] == ranks["image"] == "a.b/c:1"
    assert "--control-port my-run-launcher-0-0.my-run:20000 " in ranks["command"][2]
    assert "#     kubectl create configmap my-run --from-file='My run.py'\n" in text


@pytest.mark.parametrize(
    ("found", "pmi"),
    [
        (library(), "pmi2"),
        (library("Open MPI", "Open MPI v5.0.6"), "pmix"),
        (library("MPICH", "CRAY MPICH version 8.1"), "cray_shasta"),
    ],
)
def test_srun_is_told_how_this_mpi_finds_ranks(found: Library, pmi: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_scripts, "find_library", lambda: found)
    assert job("slurm", "--launcher", "srun", "-n", "2", "run.py").endswith(
        f"\nsrun --mpi={pmi} --kill-on-bad-exit=1 python run.py\n"
    )
    assert job("slurm", "--mpi", "none", "-n", "2", "-c", "2", "run.py").endswith(
        "\nexport FERROKET_COLLECTIVES=gloo\n"
        'srun --mpi=none --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" python run.py\n'
    )


def test_srun_is_taken_where_mpi_has_no_mpirun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srun").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(job_scripts, "find_library", lambda: library(mpirun=""))
    assert job("slurm", "-n", "2", "run.py").endswith("\nsrun --mpi=pmi2 --kill-on-bad-exit=1 python run.py\n")


def test_mpi_of_pythons_environment_needs_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_scripts, "find_library", lambda: library(path=f"{tmp_path}/venv/lib/libmpi.so.12"))
    assert "module load" not in job("slurm", "-n", "2", "run.py")
    text = job("pbs", "-n", "2", "run.py")
    assert "module load" not in text
    assert text.endswith('\nmpirun -launcher ssh -f "$PBS_NODEFILE" -n "$(wc -l < "$PBS_NODEFILE")" python run.py\n')


def test_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADEDMODULES", "gcc/13.2:openmpi/5.0")
    assert "\nmodule load gcc/13.2 openmpi/5.0\n" in job("slurm", "-n", "2", "run.py")
    assert "\nmodule load a b/1\n" in job("slurm", "-n", "2", "--module", "a", "--module", "b/1", "run.py")
    monkeypatch.setenv("LOADEDMODULES", "")
    assert "module load" not in job("slurm", "-n", "2", "run.py")
    monkeypatch.setattr(job_scripts, "find_library", no_library)
    assert "\nmodule load mpich\n" in job("slurm", "-n", "2", "run.py")


def test_environments_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/opt/my conda")
    assert "\nexport PATH='/opt/my conda/bin':$PATH\n" in job("slurm", "-n", "2", "run.py")


@pytest.mark.parametrize(
    ("script", "runner"), [(OURS, "python"), (OTHERS, "ferroket run"), ("import netket\n", "ferroket run")]
)
def test_scripts_that_do_not_start_ferroket_are_run_by_it(script: str, runner: str, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(script)
    assert job("slurm", "-n", "2", "run.py").endswith(f"\nmpirun {runner} run.py\n")


def test_a_node_is_filled_with_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_scripts.psutil, "cpu_count", lambda logical=True: 48 if logical else 24)
    assert "\n#SBATCH --ntasks-per-node=24\n" in job("slurm", "run.py")
    assert "\n#SBATCH --ntasks-per-node=4\n" in job("slurm", "-c", "6", "run.py")


def test_names_made_of_scripts(tmp_path: Path) -> None:
    (tmp_path / "2 Ising.py").write_text(OURS)
    assert "\n#SBATCH --job-name=job_2_Ising\n" in job("slurm", "2 Ising.py")
    assert (
        yaml.safe_load(job("kubernetes", "--image", "x", "-n", "1", "2 Ising.py"))["metadata"]["name"] == "job-2-ising"
    )


def test_a_file_is_written_once(tmp_path: Path) -> None:
    assert job("slurm", "-n", "2", "--output", "my job.sh", "run.py") == ""
    text = (tmp_path / "my job.sh").read_text()
    check(text)
    assert "\n#     sbatch 'my job.sh'\n" in text
    done = CliRunner().invoke(app, ["job", "slurm", "-n", "4", "--output", "my job.sh", "run.py"])
    assert done.exit_code == 2
    assert done.stderr == (
        "ferroket job slurm: --output 'my job.sh' exists, and may have been edited: remove it, or name another file\n"
    )
    assert (tmp_path / "my job.sh").read_text() == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("slurm no.py", "can't open file '{cwd}/no.py': No such file or directory"),
        ("slurm --time 2:00 run.py", "--time is '2:00', and has to be hours:minutes:seconds or days-hours:minutes"),
        ("slurm --time 0:00:00 run.py", "--time is '0:00:00', and has to be hours:minutes:seconds"),
        ("slurm --account a;b run.py", "--account is 'a;b', and has to be one word of letters, digits and"),
        ("slurm --partition a$b run.py", "--partition or --queue is 'a$b', and has to be one word"),
        (
            "slurm --name 2x run.py",
            "--name is '2x', and has to begin with a letter and consist of letters, digits, _ and -",
        ),
        ("slurm --module a;b run.py", "--module is 'a;b', and has to be one word"),
        ("slurm --mpi pmi3 run.py", "--mpi is 'pmi3', and has to be one of pmi2, pmix, cray_shasta, none"),
        ("slurm --launcher mpirun --mpi pmi2 run.py", "--mpi pmi2 is for srun, and --launcher is mpirun: leave one"),
        ("slurm --nodes 0 run.py", "Invalid value for '--nodes' / '-N': 0 has to be 1 or more"),
        ("slurm -n 0 run.py", "Invalid value for '--ranks-per-node' / '-n': 0 has to be 1 or more"),
        (
            "slurm --output /no/x run.py",
            "--output '/no/x': there is no folder '/no'. Make it, or name a file elsewhere",
        ),
        ("kubernetes -n 2 --image a{b run.py", "--image is 'a{b', and has to be one word"),
        (
            "kubernetes -n 2 --image a --name A run.py",
            "--name is 'A', and has to begin with a letter and consist of small",
        ),
        ("kubernetes -n 2 --image a venv", "'venv' is a folder, and pods get one file: name a script"),
        ("kubernetes --image a run.py", "Missing option '--ranks-per-node' / '-n'"),
    ],
)
def test_bad_values(arguments: str, message: str, tmp_path: Path) -> None:
    done = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["job", *arguments.split()])
    assert (done.exit_code, done.stdout) == (2, "")
    assert message.replace("{cwd}", str(tmp_path)) in done.stderr
