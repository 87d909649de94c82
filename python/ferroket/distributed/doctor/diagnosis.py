"""From an examination to its problems, each with its mend. The same examination gives the same problems.

Here are those that stop a run, :mod:`ferroket.distributed.doctor.performance` has those that slow it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from ferroket._compat.jaxlib import mend_of_reductions
from ferroket.distributed.doctor import performance
from ferroket.distributed.doctor.examination import Examination, Problem, Severity, count, is_gloo, ranks_of
from ferroket.distributed.doctor.trial import RANKS, Failure
from ferroket.distributed.slurm import NO_PMI


def diagnose(examination: Examination) -> list[Problem]:
    """The problems, errors first."""
    causes = [
        *_packages(examination),
        *_independent_runs(examination),
        *_two_launchers(examination),
        *_library(examination),
        *_early_imports(examination),
        *_wrapper(examination),
        *_devices(examination),
        *_wrong_numbers(examination),
    ]
    if not any(problem.severity is Severity.ERROR for problem in causes):
        causes += _failure(examination)
    return sorted(
        [*causes, *performance.problems(examination)], key=lambda problem: problem.severity is not Severity.ERROR
    )


def _packages(e: Examination) -> Iterator[Problem]:
    missing = [name for name, version in e.facts.versions.items() if version is None]
    if missing:
        names = " and ".join(missing)
        text = f"{names} {'are' if len(missing) > 1 else 'is'} not installed for Python {e.facts.python}"
        yield Problem(Severity.ERROR, text, f"pip install {' '.join(missing)}")
    for name, lowest in e.facts.lowest.items():
        version = e.facts.versions.get(name)
        if version and _numbers(version) < _numbers(lowest):
            yield Problem(
                Severity.WARNING if e.works else Severity.ERROR,
                f"{name} {version} is older than {lowest}, the lowest version that ferroket supports",
                f"pip install --upgrade '{name}>={lowest}'",
            )


def _independent_runs(e: Examination) -> Iterator[Problem]:
    """N processes that don't know of each other."""
    if e.facts.is_orphan:
        yield Problem(
            Severity.ERROR,
            f"independent runs: this process was started by {e.facts.started_by[-1]}, but its environment has none of "
            "the variables by which a launcher tells a process its rank, so each process is rank 0 of 1",
            "let the launcher's variables (PMI_*, PMIX_*, OMPI_*, SLURM_*) through to the process: no `env -i`, no "
            "`sudo`, no --cleanenv or --containall of Apptainer between mpirun and python",
        )
    elif e.facts.launcher and e.library and not e.works:
        alone = _said(e, "independent runs")
        own_family = (e.facts.launcher_kind == "openmpi") == (e.library.family == "Open MPI")
        two_families = e.facts.launcher_kind in ("hydra", "intel", "openmpi") and not own_family
        if not alone and not two_families:
            return
        size = e.facts.size
        where = f" ({e.facts.started_by[-1]})" if e.facts.started_by else ""
        families = ", which are of two families" if two_families else ""
        result = f"{size} independent runs, each rank 0 of 1" if alone else "ranks that don't find each other"
        variable = e.library.origin.removeprefix("named in ")
        if variable in e.facts.variables:
            mend = f"unset {variable}, and the library that belongs to the launcher is found"
        elif e.facts.launcher_kind == "slurm":
            mend = NO_PMI
        else:
            mend = "name the library that belongs to the launcher in FERROKET_LIBMPI"
        if e.library.mpirun:
            mend += f"; or start with the library's own launcher, {e.library.mpirun} -n {size}"
        yield Problem(
            Severity.ERROR,
            f"{e.facts.launcher}{where} and the MPI library {e.library.version} ({e.library.path}, {e.library.origin})"
            f"{families}, don't belong together: {result}",
            mend,
        )


def _two_launchers(e: Examination) -> Iterator[Problem]:
    """MPICH gives up if it finds the variables of two; Ferroket removes those that aren't hydra's."""
    if e.facts.launcher_kind == "hydra" and "PMIX_NAMESPACE" in e.facts.variables:
        yield Problem(
            Severity.WARNING,
            "PMIX_NAMESPACE is set beside the variables of mpirun, as in a job of SLURM with MpiDefault=pmix: Ferroket "
            "gets along with it, but other programs of MPICH end in MPI_Init",
            "export SLURM_MPI_TYPE=none above mpirun in the job script",
        )


def _library(e: Examination) -> Iterator[Problem]:
    if e.library is None:
        if not is_gloo(e.facts):
            text, mend = _split(e.library_error or "")
            mend += ". Clusters have their own: `module load ...`. Without any: `ferroket launch --collectives gloo`"
            yield Problem(Severity.ERROR, text, mend)
        return
    if e.facts.launcher or e.facts.is_orphan or is_gloo(e.facts):
        return
    on_path = e.facts.mpirun_on_path
    if e.library.mpirun is None:
        yield Problem(
            Severity.ERROR,
            e.library.mpirun_error or "no mpirun was found",
            f"install the rest of {e.library.version}, or put its mpirun on PATH",
        )
    elif on_path and not _same_folder(on_path, e.library.mpirun):
        yield Problem(
            Severity.WARNING,
            f"`mpirun` in this shell is {on_path}, but the MPI library is {e.library.version}, {e.library.path} "
            f"({e.library.origin})",
            f"start with {e.library.mpirun}, or put {Path(e.library.mpirun).parent} first on PATH",
        )


def _early_imports(e: Examination) -> Iterator[Problem]:
    early = [facts for facts in e.ranks if facts.early]
    if early:
        where = early[0].startup_file or "sitecustomize.py, or the .pth file in site-packages that has it"
        yield Problem(
            Severity.WARNING if e.works else Severity.ERROR,
            f"Python imports {', '.join(early[0].early)} when it starts ({ranks_of(early)}), before any script can "
            "call fk.initialize()",
            f"remove the import from {where}",
        )


def _wrapper(e: Examination) -> Iterator[Problem]:
    """Somebody else's wrapper of MPI: jaxlib opens it when it is imported, and ends the process if it can't."""
    wrapper = e.facts.variables.get("MPITRAMPOLINE_LIB")
    if wrapper and not Path(wrapper).name.startswith("_lib."):
        opened = any("MPItrampoline" in line for failure in e.failures for line in failure.output)
        yield Problem(
            Severity.ERROR if opened else Severity.WARNING,
            f"MPITRAMPOLINE_LIB is {wrapper}, which isn't ferroket's wrapper of MPI"
            + (", and jaxlib can't load it" if opened else ", though fk.initialize() replaces it"),
            "unset MPITRAMPOLINE_LIB",
        )


def _devices(e: Examination) -> Iterator[Problem]:
    asked = e.facts.variables.get("JAX_NUM_CPU_DEVICES", "")
    flag = re.search(r"--xla_force_host_platform_device_count=(\d+)", e.facts.variables.get("XLA_FLAGS", ""))
    wishes = {
        "JAX_NUM_CPU_DEVICES": int(asked) if asked.isdigit() else 1,
        "--xla_force_host_platform_device_count in XLA_FLAGS": int(flag[1]) if flag else 1,
    }
    for name, devices in wishes.items():
        if devices > 1 and not is_gloo(e.facts):
            yield Problem(
                Severity.WARNING if e.works else Severity.ERROR,
                f"{name} asks for {devices} CPU devices in each process, but XLA's MPI collectives allow one",
                f"unset {name}, and start {devices} times as many ranks",
            )


def _wrong_numbers(e: Examination) -> Iterator[Problem]:
    compared = e.outcome.reductions if e.outcome else []
    wrong = [computation for computation in compared if computation.wrong]
    if wrong:
        first, jaxlib = wrong[0], e.facts.versions.get("jaxlib") or ""
        ranks = f" (and {count(len(first.wrong) - 1, 'more rank')})" if first.wrong[1:] else ""
        yield Problem(
            Severity.ERROR,
            f"jaxlib {jaxlib} computes wrong numbers, in {len(wrong)} of {len(compared)} computations: "
            f"{first.name} in {first.dtype}, {first.wrong[0]}{ranks}",
            mend_of_reductions(jaxlib),
        )


def _failure(e: Examination) -> Iterator[Problem]:
    """What no special case explains: the first error itself, which says what to do if it is ours."""
    for first in e.failures[:1]:
        text, mend = _split(str(first))
        yield Problem(Severity.ERROR, text, mend or _mend(e, first))


def _mend(e: Examination, failure: Failure) -> str:
    output = " ".join(failure.output)
    if "run as root" in output:
        return (
            "Open MPI runs no jobs of root: become another user, or set OMPI_ALLOW_RUN_AS_ROOT=1 and "
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
        )
    if "not enough slots" in output:
        return "Open MPI counts fewer cores than ranks: mpirun --oversubscribe, or more cores"
    if "SIGKILL" in failure.text:
        return (
            "the kernel kills processes when memory runs out (`dmesg` says so): ask for more memory, or start fewer "
            "ranks; if it wasn't that, a person or the batch system killed it"
        )
    if failure.text.startswith("the process") or failure.output:
        mpirun = e.library.mpirun if e.library and e.library.mpirun else "mpirun"
        return f"check that MPI works without ferroket, `{mpirun} -n {RANKS} hostname`; if it does, report this page"
    return "check that the packages fit together, `pip check`; if they do, report this page"


def _said(e: Examination, words: str) -> bool:
    return any(words in failure.text for failure in e.failures)


def _split(message: str) -> tuple[str, str]:
    """What is wrong and what to do, of a message of ours: its first sentence, and the others but the list of places."""
    text, _, mend = message.partition(" Tried: ")[0].partition(". ")
    return text, mend.rstrip(".")


def _same_folder(one: str, other: str) -> bool:
    return Path(one).resolve().parent == Path(other).resolve().parent


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", re.split(r"[a-z+]", version)[0])]
