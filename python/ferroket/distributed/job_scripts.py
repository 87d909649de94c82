"""Job scripts for batch systems: those of ``examples/cluster``, with a user's script, size and environment in them."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from ferroket.distributed.doctor.facts import Library, find_library
from ferroket.distributed.scripts import unreadable
from ferroket.usage import UsageError, check_writable

TEMPLATES = Path(__file__).parent / "job_templates"
"""Links to the files in ``examples/cluster``, of which a wheel has copies."""

Starter = Literal["mpirun", "srun"]
PMIS = ("pmi2", "pmix", "cray_shasta", "none")
"""How ranks that srun starts find each other; with "none" without MPI, over JAX's own collectives."""

_TIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d):([0-5]\d)")
_WORD = r"[A-Za-z0-9][\w.@+-]*"
_NAME = r"[A-Za-z][\w-]*"
_KUBERNETES_NAME = r"[a-z]([-a-z0-9]*[a-z0-9])?"
# The names of pods have 16 characters more at least, and 63 at most.
_LONGEST_NAME = 40
_IMAGE = r"[A-Za-z0-9][\w.:/@-]*"
# What YAML takes for a text wherever it stands.
_PLAIN = r"[A-Za-z][\w/-]*\.py"

_CHOSEN_MPI = (
    "# The cluster's MPI, as `module avail` calls it. Drop this line if pip has installed an MPI "
    "(`pip install '.[mpich]'`).\n"
)
_MODULE = "module load mpich\n"
_ACTIVATE = 'source "$HOME/venv/bin/activate"\n'


@dataclass(frozen=True, kw_only=True)
class Job:
    """A script, and what it is to run on.

    Attributes:
        script: the script's file.
        arguments: the script's.
        nodes: their number, at least 1.
        ranks_per_node: their number on each node; None for one on each physical core of a node like this machine.
        cores_per_rank: the cores of each rank, at least 1.
        time: the limit, as hours:minutes:seconds or days-hours:minutes:seconds.
        account: who pays, None where the cluster doesn't ask.
        queue: SLURM's partition or PBS's queue, None for the cluster's default.
        name: of the job, None for that of the script.
        modules: those to load, None for those that are loaded now, where MPI isn't of this Python's environment.
        file: the file that the job script is going to be, for its comment.
    """

    script: str
    arguments: Sequence[str] = ()
    nodes: int = 1
    ranks_per_node: int | None = None
    cores_per_rank: int = 1
    time: str = "02:00:00"
    account: str | None = None
    queue: str | None = None
    name: str | None = None
    modules: Sequence[str] | None = None
    file: str = "FILE"

    def __post_init__(self) -> None:
        for option, value in (
            ("--nodes", self.nodes),
            ("--ranks-per-node", self.ranks_per_node),
            ("--cores-per-rank", self.cores_per_rank),
        ):
            if value is not None and value < 1:
                raise UsageError(f"{option} is {value}, and has to be at least 1")
        seconds = _TIME.fullmatch(self.time)
        if not seconds or not any(int(part or 0) for part in seconds.groups()):
            raise UsageError(
                f"--time is {self.time!r}, and has to be hours:minutes:seconds or days-hours:minutes:seconds, "
                "as 02:00:00 or 1-12:00:00"
            )
        _check("--account", self.account, _WORD)
        _check("--partition or --queue", self.queue, _WORD)
        for module in self.modules or ():
            _check("--module", module, r"[A-Za-z0-9][\w./+-]*")
        for text in (self.script, self.file):
            if not text.isprintable():
                raise UsageError(f"{text!r}: a job script has no room for such a name. Rename the file")
        problem = unreadable(self.script)
        if problem:
            raise UsageError(problem)

    @property
    def ranks(self) -> int:
        """The number of ranks on each node."""
        cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
        return self.ranks_per_node or max(1, cores // self.cores_per_rank)

    @property
    def program(self) -> list[str]:
        """The command of each rank: the script that starts Ferroket by itself, or ``ferroket run`` with another."""
        return [*_runner(self.script), self.script, *self.arguments]

    @property
    def size(self) -> str:
        """The size in words."""
        nodes, ranks, cores = (
            f"{count} {what}{'s' * (count > 1)}"
            for count, what in ((self.nodes, "node"), (self.ranks, "rank"), (self.cores_per_rank, "core"))
        )
        return f"{nodes} of {ranks}, each with {cores}"


def slurm(job: Job, *, starter: Starter | None = None, pmi: str | None = None) -> str:
    """A script for ``sbatch``.

    Args:
        job: What to run, and on what.
        starter: What starts the ranks; None for mpirun, or srun where the MPI library of this machine has no mpirun.
        pmi: With srun, one of :data:`PMIS`; None for that of the MPI library of this machine.

    Returns:
        The script.

    Raises:
        UsageError: A value can't be used.
    """
    library = _library()
    if pmi is not None and pmi not in PMIS:
        raise UsageError(f"--mpi is {pmi!r}, and has to be one of {', '.join(PMIS)}")
    if starter is None:
        alone = library is not None and library.mpirun is None and shutil.which("srun") is not None
        starter = "srun" if alone or pmi is not None else "mpirun"
    if starter == "mpirun" and pmi is not None:
        raise UsageError(f"--mpi {pmi} is for srun, and --launcher is mpirun: leave one of them out")
    script = _Script(f"slurm-{starter}.sh", "#SBATCH")
    script.begin(f"#!/bin/bash -l\n{_comment(job, 'slurm', f'sbatch {shlex.quote(job.file)}')}")
    name = _name(job, _NAME)
    script.put("#SBATCH --job-name=ising", f"#SBATCH --job-name={name}")
    script.put("#SBATCH --nodes=2", f"#SBATCH --nodes={job.nodes}")
    script.put("#SBATCH --ntasks-per-node=64", f"#SBATCH --ntasks-per-node={job.ranks}")
    script.put("#SBATCH --cpus-per-task=1", f"#SBATCH --cpus-per-task={job.cores_per_rank}")
    script.put("#SBATCH --time=02:00:00", f"#SBATCH --time={job.time}")
    script.choose("##SBATCH --account=your-project", "#SBATCH --account=", job.account)
    script.choose("##SBATCH --partition=compute", "#SBATCH --partition=", job.queue)
    script.prepare(job, library)
    program = shlex.join(job.program)
    if starter == "mpirun":
        script.put("\nmpirun python run.py\n", f"\nmpirun {program}\n")
        return script.text
    pmi = pmi or _pmi(library)
    gloo = "export FERROKET_COLLECTIVES=gloo\n" * (pmi == "none")
    cores = ' --cpus-per-task="$SLURM_CPUS_PER_TASK"' * (job.cores_per_rank > 1)
    options = f"--mpi={pmi} --kill-on-bad-exit=1{cores}"
    script.put("\nsrun --mpi=pmi2 --kill-on-bad-exit=1 python run.py\n", f"\n{gloo}srun {options} {program}\n")
    return script.text


def pbs(job: Job) -> str:
    """A script for ``qsub`` of PBS Pro and OpenPBS.

    Args:
        job: What to run, and on what.

    Returns:
        The script.

    Raises:
        UsageError: A value can't be used.
    """
    library = _library()
    script = _Script("pbs.sh", "#PBS")
    script.begin(f"#!/bin/bash -l\n{_comment(job, 'pbs', f'qsub {shlex.quote(job.file)}')}")
    name = _name(job, _NAME)
    script.put("#PBS -N ising", f"#PBS -N {name}")
    script.choose("##PBS -A your-project", "#PBS -A ", job.account)
    script.choose("##PBS -q compute", "#PBS -q ", job.queue)
    size = f"select={job.nodes}:ncpus={job.ranks * job.cores_per_rank}:mpiprocs={job.ranks}:ompthreads=1"
    script.put("select=2:ncpus=64:mpiprocs=64:ompthreads=1", size)
    days, hours, minutes, seconds = (int(part or 0) for part in _time(job.time))
    script.put("walltime=02:00:00", f"walltime={24 * days + hours:02}:{minutes:02}:{seconds:02}")
    script.prepare(job, library)
    options = ""
    if library and library.family == "MPICH" and _is_of_python(library):  # knows nothing of PBS
        options = ' -launcher ssh -f "$PBS_NODEFILE" -n "$(wc -l < "$PBS_NODEFILE")"'
    script.put("\nmpirun python run.py\n", f"\nmpirun{options} {shlex.join(job.program)}\n")
    return script.text


def kubernetes(job: Job, *, image: str) -> str:
    """A JobSet for ``kubectl apply``.

    Args:
        job: What to run, and on what. Its time, account, queue and modules aren't Kubernetes's.
        image: The image of the pods, with Ferroket and MPICH.

    Returns:
        The manifest.

    Raises:
        UsageError: A value can't be used.
    """
    _check("--image", image, _IMAGE)
    path = Path(job.script)
    if path.is_dir():
        raise UsageError(f"{job.script!r} is a folder, and pods get one file: name a script")
    name = _name(job, _KUBERNETES_NAME)
    script = _Script("kubernetes-jobset.yaml", "apiVersion")
    commands = [
        f"kubectl create configmap {name} --from-file={shlex.quote(job.script)}",
        f"kubectl apply -f {shlex.quote(job.file)}",
        f"kubectl logs --follow job/{name}-launcher-0",
    ]
    comment = "# The cluster needs JobSet, https://jobset.sigs.k8s.io, and the image Ferroket with MPICH of series 5.\n"
    script.begin(_comment(job, "kubernetes", *commands).removesuffix("#\n") + comment)
    hosts = ",".join(f"node{number}:{job.ranks}" for number in range(job.nodes))
    program = [*_runner(job.script), *map(_yaml, [path.name, *job.arguments])]
    script.put(
        '[mpirun, -launcher, manual, -hosts, "node0:30,node1:30", python, run.py]',
        f'[mpirun, -launcher, manual, -hosts, "{hosts}", {", ".join(program)}]',
    )
    script.put("          completions: 2\n", f"          completions: {job.nodes}\n")
    script.put("          parallelism: 2\n", f"          parallelism: {job.nodes}\n")
    script.put('{cpu: "30", memory', f'{{cpu: "{job.ranks * job.cores_per_rank}", memory')
    script.put("image: registry.example.org/ferroket\n", f"image: {image}\n", times=2)
    script.rename("ising", name)
    return script.text


def write(text: str, file: Path | None) -> None:
    """Writes a job script to a new file, or prints it.

    Args:
        text: The script.
        file: The file, None for stdout.

    Raises:
        UsageError: The file exists, or can't be written.
    """
    if file is None:
        print(text, end="")
        return
    check_writable(file, "--output")
    if file.exists():
        raise UsageError(f"--output {str(file)!r} exists, and may have been edited: remove it, or name another file")
    file.write_text(text, encoding="utf-8")


class _Script:
    """A template, whose values are replaced."""

    def __init__(self, name: str, first: str) -> None:
        text = (TEMPLATES / name).read_text(encoding="utf-8")
        self.text = text[text.index(f"\n{first}") + 1 :]  # without what it says of itself

    def begin(self, text: str) -> None:
        self.text = text + self.text

    def put(self, old: str, new: str, times: int = 1) -> None:
        if self.text.count(old) != times:
            raise AssertionError(f"a template doesn't have {old!r} {times} times")
        self.text = self.text.replace(old, new)

    def choose(self, old: str, option: str, value: str | None) -> None:
        """An option that stands in a comment unless it has a value."""
        self.put(old, old if value is None else option + value)

    def rename(self, old: str, new: str) -> None:
        self.text = re.sub(rf"\b{old}\b", new, self.text)

    def prepare(self, job: Job, library: Library | None) -> None:
        """The modules and Python's environment."""
        modules = _modules(library) if job.modules is None else job.modules
        loaded = f"{_CHOSEN_MPI}module load {' '.join(modules)}\n" if modules else ""
        self.put(_CHOSEN_MPI + _MODULE, loaded)
        activate = Path(sys.prefix) / "bin" / "activate"
        found = f"source {_path(activate)}\n" if activate.is_file() else f"export PATH={_path(activate.parent)}:$PATH\n"
        self.put(_ACTIVATE, found)


def _comment(job: Job, kind: str, *commands: str) -> str:
    lines = "".join(f"#     {command}\n" for command in commands)
    written = f"# Written by `ferroket job {kind}`: {job.size}.\n# In the folder from which {job.script!r} is found:\n"
    return f"{written}#\n{lines}#\n"


def _check(option: str, value: str | None, pattern: str) -> None:
    if value is not None and not re.fullmatch(pattern, value, re.ASCII):
        raise UsageError(f"{option} is {value!r}, and has to be one word of letters, digits and . _ - + @ / :")


def _name(job: Job, pattern: str) -> str:
    """The job's name, or one that is made of the script's."""
    if job.name is not None:
        if not re.fullmatch(pattern, job.name, re.ASCII) or len(job.name) > _LONGEST_NAME:
            letters = "small letters, digits and -" if pattern == _KUBERNETES_NAME else "letters, digits, _ and -"
            raise UsageError(
                f"--name is {job.name!r}, and has to begin with a letter and consist of {letters}, "
                f"{_LONGEST_NAME} at most"
            )
        return job.name
    stem = Path(job.script).resolve().stem
    if pattern == _KUBERNETES_NAME:
        name = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
        name = name if name[:1].isalpha() else f"job-{name}".strip("-")
        return name[:_LONGEST_NAME].rstrip("-")
    name = re.sub(r"[^A-Za-z0-9]+", "_", stem)
    return (name if name[:1].isalpha() else f"job_{name}")[:_LONGEST_NAME]


def _runner(script: str) -> list[str]:
    """What runs a script: python where it calls ``fk.initialize()``, and ``ferroket run`` for all others."""
    path = Path(script)
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    own = re.search(r"^\s*(import|from) ferroket\b", text, re.MULTILINE)
    starts = re.search(r"(?<!distributed\.)\binitialize\(", text)
    return ["python"] if own and starts else ["ferroket", "run"]


def _library() -> Library | None:
    """The MPI library that a run would use here, None if there is none."""
    try:
        return find_library()
    except RuntimeError:
        return None


def _is_of_python(library: Library) -> bool:
    """Whether an MPI library comes from ``pip install mpich`` and its like."""
    return Path(sys.prefix) in Path(library.path).parents


def _modules(library: Library | None) -> Sequence[str]:
    """The modules that are loaded now; without any MPI here the templates' one, which a user has to choose."""
    loaded = [name for name in os.environ.get("LOADEDMODULES", "").split(":") if name]
    if library is None:
        return loaded or ["mpich"]
    return [] if _is_of_python(library) else loaded


def _pmi(library: Library | None) -> str:
    """How ranks of an MPI library that srun starts find each other."""
    if library is not None and "cray" in library.version.lower():
        return "cray_shasta"
    return "pmix" if library is not None and library.family == "Open MPI" else "pmi2"


def _time(text: str) -> tuple[str | None, ...]:
    match = _TIME.fullmatch(text)
    return match.groups() if match else ()


def _path(path: Path) -> str:
    """A path as a shell takes it, and on a node whose home directory has another name too."""
    home = Path.home()
    if home in path.parents:
        rest = path.relative_to(home).as_posix()
        if re.fullmatch(r"[\w@%+=:,./-]+", rest, re.ASCII):
            return f'"$HOME/{rest}"'
    return shlex.quote(str(path))


def _yaml(text: str) -> str:
    """A text in a list of YAML's."""
    return text if re.fullmatch(_PLAIN, text, re.ASCII) else json.dumps(text)
