"""The command line, ``ferroket``. No logic of its own: each command calls the module that does the work."""

import sys
from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
import wrapt
from typer.core import TyperGroup

from ferroket.usage import UsageError


class Commands(TyperGroup):
    """Commands whose bad values end in a message and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        """Calls the command that was chosen."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            groups = [] if ctx.parent is None else [ctx.info_name]
            print(f"{' '.join(['ferroket', *groups, ctx.invoked_subcommand])}: {error}", file=sys.stderr)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a plain traceback can be pasted into a bug report
    help="NetKet on every core of a CPU cluster.",
)
bench = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Benchmarks. Each measures Ferroket and its alternatives in turn, in one run.",
)
app.add_typer(bench, name="bench")
job = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Write a job script for a batch system, to stdout or a file. Nothing is submitted.",
)
app.add_typer(job, name="job")


def at_least(low: int | None) -> Callable[[str | int], int]:
    """Reads a whole number that isn't below a bound, if there is one; the error of a wrong one names it."""

    def read(text: str | int) -> int:
        try:
            number = int(text)
        except ValueError:
            raise typer.BadParameter(f"{text} has to be a whole number") from None
        if low is not None and number < low:
            raise typer.BadParameter(f"{text} has to be {low} or more")
        return number

    return read


def number(*names: str, low: int | None = 1, help: str) -> Any:
    """An option that is a whole number."""
    return typer.Option(*names, parser=at_least(low), metavar="NUMBER", help=help)


class Collectives(StrEnum):
    """What JAX's collectives run over."""

    mpi = "mpi"
    gloo = "gloo"


# All that follows SCRIPT is the script's, options too.
_SCRIPT_LAST = {"allow_interspersed_args": False}

Script = Annotated[str, typer.Argument(metavar="SCRIPT", help="The script, or with -m a module's name.")]
Arguments = Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="The script's arguments.")]
Module = Annotated[bool, typer.Option("-m", help="Run a module, as python -m does.")]
Accelerate = Annotated[
    bool,
    typer.Option(
        "--accelerate/--no-accelerate",
        help="Use Ferroket's kernels and updates in NetKet's operators, samplers and drivers: fk.enable().",
    ),
]
Json = Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the result to this file (needs matplotlib).")]
Cases = Annotated[
    list[str] | None,
    typer.Option(help="Part of the name of the cases to run, once or more than once; all by default."),
]
Batch = Annotated[int, number("--batch", help="Number of samples.")]
Turns = Annotated[int, number("--rounds", help="How often each alternative is measured.")]
Ranks = Annotated[int, number("--ranks", "-n", help="Number of processes.")]
Rounds = Annotated[int, number("--rounds", help="Number of jobs of each kind.")]


def _print_versions(wanted: bool) -> None:
    if wanted:
        from ferroket.distributed.info import version_text

        print(version_text())
        raise typer.Exit


def _names_of_results() -> list[str]:
    from ferroket.published.results import RESULTS

    return list(RESULTS)


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_versions, help="Print the versions that matter, and exit."
        ),
    ] = False,
) -> None:
    """NetKet on every core of a CPU cluster."""


@app.command()
def doctor(
    file: Annotated[Path | None, typer.Argument(help="Write to this file instead of stdout.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Write JSON instead of tables.")] = False,
    trial: Annotated[bool, typer.Option(help="Without a launcher: start a job of two ranks as a trial.")] = True,
) -> None:
    """Check whether a run works here, and how to mend what doesn't. Alone, or as `mpirun -n 4 ferroket doctor`."""
    from ferroket.distributed.doctor.examine import examine

    raise typer.Exit(examine(as_json=json, file=file, own_trial=trial))


@app.command(context_settings=_SCRIPT_LAST)
def run(
    script: Script,
    arguments: Arguments = None,
    *,
    module: Module = False,
    accelerate: Accelerate = True,
    prepend_path: Annotated[bool, typer.Option("--prepend-path", hidden=True)] = False,
) -> None:
    """Run an unchanged script on MPI: mpirun -n 8 ferroket run SCRIPT ARGS."""
    from ferroket.distributed import running

    if accelerate:
        # The script may not need NetKet, and may have settings for it.
        wrapt.register_post_import_hook(_enable, "netket")
    running.run(script, arguments or [], module=module, prepends_path=prepend_path)


def _enable(_: ModuleType) -> None:
    from ferroket import enable

    enable()


@app.command(context_settings=_SCRIPT_LAST)
def launch(
    script: Script,
    arguments: Arguments = None,
    *,
    ranks: Ranks,
    module: Module = False,
    accelerate: Accelerate = True,
    collectives: Annotated[
        Collectives,
        typer.Option(envvar="FERROKET_COLLECTIVES", help="What JAX's collectives run over. gloo needs no MPI."),
    ] = Collectives.mpi,
    label: Annotated[bool, typer.Option("--label", help="Begin each line with the rank that wrote it.")] = False,
    rank: Annotated[int | None, number("--rank", low=None, help="Show this rank's output only.")] = None,
    log_dir: Annotated[Path | None, typer.Option(help="Write rank-R.log for each rank to this folder too.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command, and start nothing.")] = False,
) -> None:
    """Start a job on this node: each rank runs SCRIPT as `ferroket run` does. If one rank fails, the job ends."""
    from ferroket.distributed.launching.launch import launch as start

    code = start(
        script,
        arguments or [],
        ranks=ranks,
        module=module,
        accelerate=accelerate,
        collectives=collectives.value,
        label=label,
        only=rank,
        log_dir=log_dir,
        dry_run=dry_run,
    )
    raise typer.Exit(code)


@app.command(context_settings=_SCRIPT_LAST)
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Which result; without it all are listed.", autocompletion=_names_of_results)
    ] = None,
    arguments: Arguments = None,
    *,
    page: Annotated[
        Path | None, typer.Option(help="Write the tables of this page anew, and the picture, from the logs.")
    ] = None,
    logs: Annotated[Path, typer.Option(help="The folder of the logs that --page reads.")] = Path(
        "examples/published/logs"
    ),
) -> None:
    """Find a published result again: mpirun -n 8 ferroket reproduce NAME [--short] [--folder DIR] [--minutes M].

    Stopped, the same command goes on, on any number of ranks.
    """
    from ferroket.published import command

    if page:
        command.write_page(page, logs)
    elif name is None:
        command.print_names()
    else:
        command.reproduce(name, arguments or [])


@app.command()
def supports(
    model: Annotated[str | None, typer.Argument(help="Which model; without it all tables are printed.")] = None,
    page: Annotated[Path | None, typer.Option(help="Write the tables of this page anew.")] = None,
) -> None:
    """Say what is accelerated: models, samplers, operators, drivers, spaces, and which implementation each gets."""
    from ferroket.supports import command

    command.supports(model, page)


@bench.command()
def operators(
    json: Json = None, plot: Plot = None, cases: Cases = None, batch: Batch = 1024, rounds: Turns = 5
) -> None:
    """Connected elements, compared with NetKet's JAX and numba operators."""
    _measure("operators", json, plot, cases=cases, batch=batch, rounds=rounds)


@bench.command()
def local_energy(
    json: Json = None, plot: Plot = None, cases: Cases = None, batch: Batch = 1024, rounds: Turns = 5
) -> None:
    """Local energies, compared with NetKet's kernels and with the network alone."""
    _measure("local_energy", json, plot, cases=cases, batch=batch, rounds=rounds)


@bench.command()
def sampler(json: Json = None, plot: Plot = None, cases: Cases = None, batch: Batch = 1024, rounds: Turns = 5) -> None:
    """Metropolis sampling, compared with NetKet's."""
    _measure("sampler", json, plot, cases=cases, batch=batch, rounds=rounds)


@bench.command()
def network(json: Json = None, plot: Plot = None, cases: Cases = None, batch: Batch = 1024, rounds: Turns = 5) -> None:
    """Networks alone on one core, compared with XLA and the processor's peak."""
    _measure("network", json, plot, cases=cases, batch=batch, rounds=rounds)


@bench.command()
def gram(json: Json = None, plot: Plot = None, cases: Cases = None, rounds: Turns = 5) -> None:
    """The Gram matrix of an update, compared with the product of the Jacobian and the processor's peak."""
    _measure("gram", json, plot, cases=cases, rounds=rounds)


@bench.command()
def solve(json: Json = None, plot: Plot = None, cases: Cases = None, rounds: Turns = 5) -> None:
    """The linear system of an update, compared with LAPACK and the processor's peak."""
    _measure("solve", json, plot, cases=cases, rounds=rounds)


@bench.command()
def determinants(
    json: Json = None, plot: Plot = None, cases: Cases = None, batch: Batch = 4096, rounds: Turns = 5
) -> None:
    """Determinants and Pfaffians of many small matrices, compared with JAX and LAPACK."""
    _measure("determinants", json, plot, cases=cases, batch=batch, rounds=rounds)


@bench.command()
def vmc(
    json: Json = None,
    plot: Plot = None,
    cases: Cases = None,
    batch: Annotated[int | None, number("--batch", help="Number of samples; by default that of each case.")] = None,
    rounds: Turns = 3,
) -> None:
    """A whole step of VMC_SR, compared with NetKet's, and where its time goes, on one rank and on two."""
    _measure("vmc", json, plot, cases=cases, batch=batch, rounds=rounds)


@bench.command()
def collectives(json: Json = None, plot: Plot = None, ranks: Ranks = 2, rounds: Rounds = 5) -> None:
    """jax.lax.psum over MPI and over gloo."""
    _measure("collectives", json, plot, ranks=ranks, rounds=rounds)


@bench.command()
def binding(json: Json = None, plot: Plot = None, ranks: Ranks = 2, rounds: Rounds = 3) -> None:
    """A VMC step with ranks bound to cores by Ferroket, by the launcher, and by nobody."""
    _measure("binding", json, plot, ranks=ranks, rounds=rounds)


@bench.command()
def oversubscription(
    json: Json = None,
    plot: Plot = None,
    ranks: Annotated[int, number("--ranks", "-n", low=2, help="Number of processes, more than cores.")] = 8,
    rounds: Rounds = 3,
) -> None:
    """A VMC step on more ranks than cores, for each setting of binding and of waiting."""
    _measure("oversubscription", json, plot, ranks=ranks, rounds=rounds)


@bench.command()
def scaling(
    json: Json = None,
    plot: Plot = None,
    cases: Annotated[str, typer.Option(help="Part of the name of the case.")] = "Heisenberg 10×10, RBM α=1",
    ranks: Annotated[
        str, typer.Option("--ranks", "-n", help="Numbers of ranks, with commas between them; 1 is one of them.")
    ] = "1,2,4,8",
    batch: Batch = 4096,
    rounds: Rounds = 1,
    peer: Annotated[bool, typer.Option(help="Whether NetKet has its turn, too.")] = True,
) -> None:
    """What a step of VMC_SR and its parts cost on more and more ranks: time, work, messages and memory."""
    from ferroket.bench.scaling import counts_of

    _measure("scaling", json, plot, cases=cases, ranks=counts_of(ranks), batch=batch, rounds=rounds, peer=peer)


@bench.command()
def startup(
    json: Json = None,
    plot: Plot = None,
    ranks: Ranks = 8,
    rounds: Rounds = 5,
) -> None:
    """How long ranks take to be ready, compared with importing JAX alone."""
    _measure("startup", json, plot, ranks=ranks, rounds=rounds)


def _measure(name: str, json: Path | None, plot: Path | None, **settings: Any) -> None:
    from ferroket.bench import progress
    from ferroket.bench.report import check_outputs

    check_outputs(json, plot)
    with progress.shown():
        report = import_module(f"ferroket.bench.{name}").run(**settings)
    report.print()
    if json:
        report.write_json(json)
    if plot:
        report.plot(plot)


Nodes = Annotated[int, number("--nodes", "-N", help="Number of nodes.")]
PerNode = Annotated[
    int | None,
    number(
        "--ranks-per-node",
        "-n",
        help="Number of processes on each node; by default one on each physical core, as here.",
    ),
]
Cores = Annotated[int, number("--cores-per-rank", "-c", help="Number of cores of each process.")]
Time = Annotated[
    str, typer.Option("--time", help="The time limit, hours:minutes:seconds or days-hours:minutes:seconds.")
]
Account = Annotated[str | None, typer.Option("--account", "-A", help="Who pays, where the cluster asks for it.")]
Name = Annotated[str | None, typer.Option("--name", help="The job's name; by default the script's.")]
Modules = Annotated[
    list[str] | None, typer.Option("--module", help="A module to load; by default those that are loaded now.")
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this new file instead of stdout.")]


def _job(script: str, arguments: list[str] | None, output: Path | None, **settings: Any) -> Any:
    """What a job script is for."""
    from ferroket.distributed.job_scripts import Job

    return Job(script=script, arguments=arguments or [], file=str(output or "FILE"), **settings)


class Starter(StrEnum):
    """What starts the ranks of a job."""

    mpirun = "mpirun"
    srun = "srun"


@job.command(context_settings=_SCRIPT_LAST)
def slurm(
    script: Script,
    arguments: Arguments = None,
    *,
    nodes: Nodes = 1,
    ranks_per_node: PerNode = None,
    cores_per_rank: Cores = 1,
    time: Time = "02:00:00",
    account: Account = None,
    partition: Annotated[str | None, typer.Option("--partition", "-p", help="The partition.")] = None,
    name: Name = None,
    module: Modules = None,
    launcher: Annotated[
        Starter | None,
        typer.Option(
            help="What starts the ranks; by default mpirun, or srun where the MPI library here has no mpirun."
        ),
    ] = None,
    mpi: Annotated[
        str | None,
        typer.Option(
            help="How ranks of srun find each other, pmi2, pmix, cray_shasta or none; by default as MPI here."
        ),
    ] = None,
    output: Output = None,
) -> None:
    """Write a job script for SLURM's sbatch."""
    from ferroket.distributed import job_scripts

    size = {"nodes": nodes, "ranks_per_node": ranks_per_node, "cores_per_rank": cores_per_rank, "time": time}
    of_cluster = {"account": account, "queue": partition, "modules": module or None}
    found = _job(script, arguments, output, name=name, **size, **of_cluster)
    job_scripts.write(job_scripts.slurm(found, starter=launcher.value if launcher else None, pmi=mpi), output)


@job.command(context_settings=_SCRIPT_LAST)
def pbs(
    script: Script,
    arguments: Arguments = None,
    *,
    nodes: Nodes = 1,
    ranks_per_node: PerNode = None,
    cores_per_rank: Cores = 1,
    time: Time = "02:00:00",
    account: Account = None,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="The queue.")] = None,
    name: Name = None,
    module: Modules = None,
    output: Output = None,
) -> None:
    """Write a job script for PBS's qsub."""
    from ferroket.distributed import job_scripts

    size = {"nodes": nodes, "ranks_per_node": ranks_per_node, "cores_per_rank": cores_per_rank, "time": time}
    of_cluster = {"account": account, "queue": queue, "modules": module or None}
    found = _job(script, arguments, output, name=name, **size, **of_cluster)
    job_scripts.write(job_scripts.pbs(found), output)


@job.command(context_settings=_SCRIPT_LAST)
def kubernetes(
    script: Script,
    arguments: Arguments = None,
    *,
    image: Annotated[str, typer.Option("--image", help="The image of the pods, with Ferroket and MPICH.")],
    ranks_per_node: Annotated[int, number("--ranks-per-node", "-n", help="Number of processes on each node.")],
    nodes: Nodes = 1,
    cores_per_rank: Cores = 1,
    name: Name = None,
    output: Output = None,
) -> None:
    """Write a JobSet for Kubernetes."""
    from ferroket.distributed import job_scripts

    size = {"nodes": nodes, "ranks_per_node": ranks_per_node, "cores_per_rank": cores_per_rank}
    found = _job(script, arguments, output, name=name, **size)
    job_scripts.write(job_scripts.kubernetes(found, image=image), output)
