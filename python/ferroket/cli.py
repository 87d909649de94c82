"""The command line, ``ferroket``. No logic of its own: each command calls the module that does the work."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ferroket.bench.report import Report

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a plain traceback can be pasted into a bug report
    help="NetKet on every core of a CPU cluster.",
)
bench = typer.Typer(no_args_is_help=True, help="Benchmarks, each paired with its peer in one run.")
app.add_typer(bench, name="bench")

Json = Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the result to this file (needs matplotlib).")]
Ranks = Annotated[int, typer.Option(min=1, help="Number of processes.")]
Rounds = Annotated[int, typer.Option(min=1, help="Jobs of each kind.")]


@app.callback()
def main() -> None:
    """NetKet on every core of a CPU cluster."""


@bench.command()
def operators(
    json: Json = None,
    plot: Plot = None,
    sites: Annotated[int, typer.Option(min=2, help="Length of the chain.")] = 128,
    batch: Annotated[int, typer.Option(min=1, help="Number of samples.")] = 1024,
    rounds: Annotated[int, typer.Option(min=1, help="How often each contender is measured.")] = 9,
) -> None:
    """Connected elements, beside those of NetKet's JAX and numba operators."""
    from ferroket.bench import operators

    _show(operators.run(sites=sites, batch=batch, rounds=rounds), json, plot)


@bench.command()
def collectives(json: Json = None, plot: Plot = None, ranks: Ranks = 2, rounds: Rounds = 5) -> None:
    """Psum through JAX, over MPI and over gloo."""
    from ferroket.bench import collectives

    _show(collectives.run(ranks=ranks, rounds=rounds), json, plot)


@bench.command()
def binding(json: Json = None, plot: Plot = None, ranks: Ranks = 2, rounds: Rounds = 3) -> None:
    """A VMC step with ranks bound to cores by Ferroket, by the launcher, and by nobody."""
    from ferroket.bench import binding

    _show(binding.run(ranks=ranks, rounds=rounds), json, plot)


def _show(report: "Report", json: Path | None, plot: Path | None) -> None:
    report.print()
    if json:
        report.write_json(json)
    if plot:
        report.plot(plot)
