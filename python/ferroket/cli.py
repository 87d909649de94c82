"""The command line, ``ferroket``. No logic of its own: each command calls the module that does the work."""

import sys
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer
import wrapt

if TYPE_CHECKING:
    from ferroket.bench.report import Report

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a plain traceback can be pasted into a bug report
    help="NetKet on every core of a CPU cluster.",
)
bench = typer.Typer(
    no_args_is_help=True, help="Benchmarks. Each measures Ferroket and its alternatives in turn, in one run."
)
app.add_typer(bench, name="bench")


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
Cases = Annotated[str, typer.Option(help="Part of the name of the cases to run; all by default.")]
Batch = Annotated[int, typer.Option(min=1, help="Number of samples.")]
Turns = Annotated[int, typer.Option("--rounds", min=1, help="How often each alternative is measured.")]
Ranks = Annotated[int, typer.Option(min=1, help="Number of processes.")]
Rounds = Annotated[int, typer.Option(min=1, help="Number of jobs of each kind.")]


@app.callback()
def main() -> None:
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
    ranks: Annotated[int, typer.Option("-n", min=1, help="Number of processes.")],
    module: Module = False,
    accelerate: Accelerate = True,
    collectives: Annotated[
        Collectives,
        typer.Option(envvar="FERROKET_COLLECTIVES", help="What JAX's collectives run over. gloo needs no MPI."),
    ] = Collectives.mpi,
    label: Annotated[bool, typer.Option("--label", help="Begin each line with the rank that wrote it.")] = False,
    rank: Annotated[int | None, typer.Option(help="Show this rank's output only.")] = None,
    log_dir: Annotated[Path | None, typer.Option(help="Write rank-R.log for each rank to this folder too.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command, and start nothing.")] = False,
) -> None:
    """Start a job on this node: each rank runs SCRIPT as `ferroket run` does. If one rank fails, the job ends."""
    from ferroket.distributed.launching.launch import LaunchError
    from ferroket.distributed.launching.launch import launch as start

    try:
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
    except LaunchError as error:
        print(f"ferroket launch: {error}", file=sys.stderr)
        code = 2
    raise typer.Exit(code)


@app.command(context_settings=_SCRIPT_LAST)
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Which result; without it all are listed.")] = None,
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

    raise typer.Exit(command.supports(model, page))


@bench.command()
def operators(json: Json = None, plot: Plot = None, cases: Cases = "", batch: Batch = 1024, rounds: Turns = 5) -> None:
    """Connected elements, compared with NetKet's JAX and numba operators."""
    from ferroket.bench import operators

    _show(operators.run(cases=cases, batch=batch, rounds=rounds), json, plot)


@bench.command()
def local_energy(
    json: Json = None, plot: Plot = None, cases: Cases = "", batch: Batch = 1024, rounds: Turns = 5
) -> None:
    """Local energies, compared with NetKet's kernels and with the network alone."""
    from ferroket.bench import local_energy

    _show(local_energy.run(cases=cases, batch=batch, rounds=rounds), json, plot)


@bench.command()
def sampler(json: Json = None, plot: Plot = None, cases: Cases = "", batch: Batch = 1024, rounds: Turns = 5) -> None:
    """Metropolis sampling, compared with NetKet's."""
    from ferroket.bench import sampler

    _show(sampler.run(cases=cases, batch=batch, rounds=rounds), json, plot)


@bench.command()
def network(json: Json = None, plot: Plot = None, cases: Cases = "", batch: Batch = 1024, rounds: Turns = 5) -> None:
    """Networks alone on one core, compared with XLA and the processor's peak."""
    from ferroket.bench import network

    _show(network.run(cases=cases, batch=batch, rounds=rounds), json, plot)


@bench.command()
def gram(json: Json = None, plot: Plot = None, cases: Cases = "", rounds: Turns = 5) -> None:
    """The Gram matrix of an update, compared with the product of the Jacobian and the processor's peak."""
    from ferroket.bench import gram

    _show(gram.run(cases=cases, rounds=rounds), json, plot)


@bench.command()
def solve(json: Json = None, plot: Plot = None, cases: Cases = "", rounds: Turns = 5) -> None:
    """The linear system of an update, compared with LAPACK and the processor's peak."""
    from ferroket.bench import solve

    _show(solve.run(cases=cases, rounds=rounds), json, plot)


@bench.command()
def determinants(
    json: Json = None, plot: Plot = None, cases: Cases = "", batch: Batch = 4096, rounds: Turns = 5
) -> None:
    """Determinants and Pfaffians of many small matrices, compared with JAX and LAPACK."""
    from ferroket.bench import determinants

    _show(determinants.run(cases=cases, batch=batch, rounds=rounds), json, plot)


@bench.command()
def vmc(
    json: Json = None,
    plot: Plot = None,
    cases: Cases = "",
    batch: Annotated[int | None, typer.Option(min=1, help="Number of samples; by default that of each case.")] = None,
    rounds: Turns = 3,
) -> None:
    """A whole step of VMC_SR, compared with NetKet's, and where its time goes, on one rank and on two."""
    from ferroket.bench import vmc

    _show(vmc.run(cases=cases, batch=batch, rounds=rounds), json, plot)


@bench.command()
def collectives(json: Json = None, plot: Plot = None, ranks: Ranks = 2, rounds: Rounds = 5) -> None:
    """jax.lax.psum over MPI and over gloo."""
    from ferroket.bench import collectives

    _show(collectives.run(ranks=ranks, rounds=rounds), json, plot)


@bench.command()
def binding(json: Json = None, plot: Plot = None, ranks: Ranks = 2, rounds: Rounds = 3) -> None:
    """A VMC step with ranks bound to cores by Ferroket, by the launcher, and by nobody."""
    from ferroket.bench import binding

    _show(binding.run(ranks=ranks, rounds=rounds), json, plot)


@bench.command()
def oversubscription(
    json: Json = None,
    plot: Plot = None,
    ranks: Annotated[int, typer.Option(min=2, help="Number of processes, more than cores.")] = 8,
    rounds: Rounds = 3,
) -> None:
    """A VMC step on more ranks than cores, for each setting of binding and of waiting."""
    from ferroket.bench import oversubscription

    _show(oversubscription.run(ranks=ranks, rounds=rounds), json, plot)


@bench.command()
def scaling(
    json: Json = None,
    plot: Plot = None,
    cases: Cases = "Heisenberg 10×10, RBM α=1",
    ranks: Annotated[
        str, typer.Option(help="Numbers of ranks, with commas between them; 1 is one of them.")
    ] = "1,2,4,8",
    batch: Batch = 4096,
    rounds: Rounds = 1,
    peer: Annotated[bool, typer.Option(help="Whether NetKet has its turn, too.")] = True,
) -> None:
    """What a step of VMC_SR and its parts cost on more and more ranks: time, work, messages and memory."""
    from ferroket.bench import scaling

    counts = [int(count) for count in ranks.split(",")]
    _show(scaling.run(cases=cases, ranks=counts, batch=batch, rounds=rounds, peer=peer), json, plot)


@bench.command()
def startup(
    json: Json = None,
    plot: Plot = None,
    ranks: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 8,
    rounds: Rounds = 5,
) -> None:
    """How long ranks take to be ready, compared with importing JAX alone."""
    from ferroket.bench import startup

    _show(startup.run(ranks=ranks, rounds=rounds), json, plot)


def _show(report: "Report", json: Path | None, plot: Path | None) -> None:
    report.print()
    if json:
        report.write_json(json)
    if plot:
        report.plot(plot)
