"""The page of published results: a table and a picture of the logs of runs."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ferroket.bench.report import figure_of
from ferroket.pages import MadePart, table
from ferroket.published.log import Segment
from ferroket.published.results import RESULTS, Result

NODE = 64
"""The cores of a node that the model is for."""

_SOLVE, _SAMPLES, _REST, _COLLECTIVES = 1e-2, 1024, 1.5e-3, 20
"""Core-seconds of a linear system of so many unknowns, and of what each rank does by itself; other collectives of a
step: what `ferroket bench scaling --ranks 1,2 --batch 1024` finds."""

MADE = MadePart("ferroket reproduce --page")


def read_logs(folder: Path) -> dict[str, dict[str, Any]]:
    """The logs of runs that came to an end, by the result's name, in the order of :data:`RESULTS`."""
    logs = {name: folder / f"{name}.json" for name in RESULTS}
    found = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in logs.items() if path.exists()}
    return {name: log for name, log in found.items() if log["final"]}


def write(page: Path, logs: Path) -> None:
    """Writes the tables of a page anew, between its two marks, and the picture beside it, of the logs in a folder.

    Raises:
        UsageError: The page has no such marks.
    """
    MADE.write(page, tables(read_logs(logs)))


def tables(logs: dict[str, dict[str, Any]]) -> str:
    """The tables of results and of their sources."""
    results = table(
        [
            "system",
            "ansatz",
            "parameters",
            "steps",
            "found",
            "published",
            "bar",
            "core-hours",
            f"{NODE} cores, a model",
        ],
        [_row(RESULTS[name], log) for name, log in logs.items()],
    )
    machines = table(
        ["system", "ranks", "processor"], [[f"`{name}`", _starts(log), _processors(log)] for name, log in logs.items()]
    )
    sources = [f"- {line}" for line in dict.fromkeys(_sources(logs))]
    return "\n".join([results, "", machines, "", "Sources:", "", *sources, ""])


def _row(result: Result, log: dict[str, Any]) -> list[str]:
    final = log["final"]
    published = "; ".join(f"{reference.method} {_number(reference.value)}" for reference in result.references)
    hours = sum(Segment(**segment).core_hours for segment in log["segments"])
    met = "reached" if final["value"] <= result.bar else "missed"
    return [
        f"{result.title}, {result.unit}",
        result.ansatz,
        f"{final['parameters']:,}".replace(",", " "),
        str(sum(segment["steps"] for segment in log["segments"])),
        f"**{with_error(final['value'], final['error'])}**",
        published,
        f"{_number(result.bar)}: {met}",
        f"{hours:.2g}",
        f"{seconds_on_a_node(log) / 60:.2g} min",
    ]


def seconds_on_a_node(log: dict[str, Any]) -> float:
    """How long the steps of a run would take on a node with :data:`NODE` cores, by the model of `bench scaling`.

    The ranks share what a step cost, but for the model's rest. Each is sent no more than all log-derivatives.
    """
    # It imports JAX, and a run has to prepare MPI before.
    from ferroket.bench.prediction import Interconnect, Work, seconds

    segments = [Segment(**segment) for segment in log["segments"]]
    steps, samples = sum(segment.steps for segment in segments), log["final"]["samples_of_a_step"]
    unknowns = min(samples, log["final"]["parameters"])
    solve = _SOLVE * (unknowns / _SAMPLES) ** 3
    cost = sum(segment.core_hours for segment in segments) * 3600 / steps
    work = Work(
        unknowns,
        sampling=max(0.0, cost - solve - _REST),
        local_energy=0.0,
        derivatives=0.0,
        solve=solve,
        rest=_REST,
        gathered=8.0 * samples * log["final"]["parameters"],
        collectives=_COLLECTIVES,
    )
    return steps * sum(seconds(work, NODE, unknowns, Interconnect()).values())


def with_error(value: float, error: float) -> str:
    """A number with the error of its last two digits behind it, as −0.50381(12)."""
    if not error > 0:
        return _number(value)
    digits = next(places for places in range(1, 15) if error * 10**places >= 10)  # noqa: PLR2004 - two digits
    return f"{value:.{digits}f}({error * 10**digits:.0f})".replace("-", "−")


def _number(value: float) -> str:
    return f"{value:.10g}".replace("-", "−")


def _starts(log: dict[str, Any]) -> str:
    starts = [f"{segment['ranks']} ({segment['steps']} steps)" for segment in log["segments"] if segment["steps"]]
    return ", then ".join(starts)


def _processors(log: dict[str, Any]) -> str:
    return ", ".join(dict.fromkeys(segment["processor"] for segment in log["segments"]))


def _sources(logs: dict[str, dict[str, Any]]) -> Iterator[str]:
    for name in logs:
        for reference in RESULTS[name].references:
            yield f"{RESULTS[name].title}, {reference.method}: {reference.source}"


def draw(picture: Path, logs: Path) -> None:
    """Draws how far energies are above the best that is known, against core-hours, beside published ones.

    Raises:
        ModuleNotFoundError: matplotlib isn't installed.
    """
    runs = {name: log for name, log in read_logs(logs).items() if log["values"]}  # dynamics have no energies
    columns = 3
    rows = -(-len(runs) // columns)
    figure = figure_of(4 * columns, 3 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (name, log) in zip(panels, runs.items(), strict=False):
        result = RESULTS[name]
        best = result.lowest
        scale = abs(best)
        # A step's noise may take its energy below: there the line has a gap.
        above = [(value - best) / scale if value > best else math.nan for value in log["values"]]
        axes.loglog(log["core_hours"], above)
        for number, reference in enumerate(result.references):
            if reference.value > best:
                height = (reference.value - best) / scale
                axes.axhline(height, color="grey", linestyle=":")
                # In turns left and right: neighbouring lines may be near each other.
                side, alignment = axes.get_xlim()[number % 2], ("left", "right")[number % 2]
                axes.annotate(reference.method, (side, height), fontsize=7, ha=alignment)
        axes.set_title(f"{result.title}\n{result.ansatz}", fontsize=9)
        axes.set_xlabel("core-hours")
        axes.set_ylabel("relative error")
        axes.minorticks_off()
    for axes in panels[len(runs) :]:
        axes.set_visible(False)
    figure.savefig(picture)
