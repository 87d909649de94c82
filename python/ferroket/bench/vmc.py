"""``ferroket bench vmc``: a whole step of VMC_SR beside NetKet's, and where its time goes."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ferroket.bench import jobs
from ferroket.bench.cases import Chosen
from ferroket.bench.cases import run as run_cases
from ferroket.bench.costs import PARTS
from ferroket.bench.report import Report, Row, figure_of, time_text
from ferroket.bench.states import CASES, CHAINS, DETERMINANTS, STEPS, Case
from ferroket.bench.updates import Options, text_of

OURS, NETKET = "Ferroket", "NetKet"
ALONE = "update alone"
SETTINGS, MEMORY = "NetKet's settings", "memory of its update"
_LIBRARIES = {OURS: "ferroket", NETKET: "netket"}
_STEPS = 15
_TRIED = 5
_TIMEOUT = 3600
# Each step has a row, and so have its parts and the update alone.
_ROWS = 2 + len(PARTS)
# Steps beside each other in a picture.
_PER_LINE = 6


@dataclass(frozen=True)
class Steps(Report):
    """The rows of steps, each followed by those of its parts and by that of the update alone."""

    def plot(self, path: Path) -> None:
        """Draws the steps of each case as bars of their parts, as shares of NetKet's on as many ranks."""
        steps = range(0, len(self.rows), _ROWS)
        lines = [steps[place : place + _PER_LINE] for place in range(0, len(steps), _PER_LINE)]
        figure = figure_of(1.2 + 1.3 * len(lines[0]), 3.4 * len(lines))
        every = figure.subplots(len(lines), squeeze=False)[:, 0]
        for axes, line in zip(every, lines, strict=True):
            self._plot_line(axes, line)
        handles, names = every[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
        figure.savefig(path, dpi=160)

    def _plot_line(self, axes: Any, steps: Sequence[int]) -> None:
        """Draws those steps whose rows begin at these places: NetKet's on the left, ours on the right."""
        for place, first in enumerate(steps):
            step, *parts = self.rows[first : first + 1 + len(PARTS)]
            for side, contender in ((-0.2, NETKET), (0.2, OURS)):
                bottom = 0.0
                for part, row in enumerate(parts):
                    share = row.seconds[contender] / step.seconds[NETKET]
                    label = None if place or contender == OURS else PARTS[part]
                    axes.bar(place + side, share, 0.36, bottom, color=f"C{part}", label=label)
                    bottom += share
                above = time_text(step.seconds[contender])
                if contender == OURS:
                    above = f"$\\bf{{{self.ratios(step)[NETKET]:.0f}×}}$\n{above}"
                axes.text(place + side, bottom + 0.02, above, ha="center", va="bottom", fontsize=8)
        names = [self.rows[first].case.removesuffix(", 1 rank").replace(", ", "\n", 1) for first in steps]
        axes.set_xticks(range(len(steps)), names, fontsize=8)
        axes.margins(y=0.15)
        axes.set_ylabel("a step: NetKet (left), Ferroket")
        axes.spines[["top", "right"]].set_visible(False)


def run(*, cases: Chosen = None, batch: int | None = None, rounds: int = 3) -> Report:
    """Steps of ours and of NetKet's in turns, on one rank with all cores, and on two ranks.

    Ours is NetKet's own script after ``fk.enable()``, with the default settings of ``VMC_SR``. NetKet has those with
    which its update is fastest. The bars are for one rank, and so is the memory.

    Args:
        cases: a part of the name of those to run, or several; all by default.
        batch: the number of samples; by default that of each case.
        rounds: how many jobs of each; the medians count.

    Raises:
        ValueError: no case has such a name; the batch has no sample.
    """
    found: dict[str, Callable[[str], Iterator[Row]]] = {
        f"{name}, {ranks} rank{'s' * (ranks > 1)}": partial(_case, name, case, ranks, batch or case.samples, rounds)
        for name, case in (CASES | STEPS).items()
        for ranks in (1, 2)
    }
    rows = run_cases(found, cases=cases, batch=batch)
    title = f"a step of VMC_SR, {CHAINS} chains a device"
    return Steps(title, OURS, rows, {"cases": cases, "batch": batch, "rounds": rounds})


def _case(name: str, case: Case, ranks: int, batch: int, rounds: int, title: str) -> Iterator[Row]:
    run = partial(jobs.run, env=jobs.THREADS if name in DETERMINANTS else None, timeout=_TIMEOUT)
    tried = run("settings", ranks, name, str(batch), str(_TRIED))
    fastest: Options = min(tried, key=lambda setting: setting["seconds"])["options"]
    options = {OURS: json.dumps({}), NETKET: json.dumps(fastest)}
    measured: dict[str, list[dict[str, Any]]] = {contender: [] for contender in _LIBRARIES}
    for _ in range(rounds):
        for contender, library in _LIBRARIES.items():
            arguments = (name, library, str(batch), str(_STEPS), options[contender])
            measured[contender].append(run("step", ranks, *arguments))

    def row(title: str, part: str, bar: float | None = None, notes: dict[str, str] | None = None) -> Row:
        seconds = {
            contender: float(np.median([job[part]["seconds"] for job in jobs_]))
            for contender, jobs_ in measured.items()
        }
        return Row(title, seconds, bars={NETKET: bar} if ranks == 1 and bar is not None else {}, notes=notes or {})

    notes = {"samples": str(batch), SETTINGS: text_of(fastest)}
    if ranks == 1:
        grown = {
            contender: run("memory", 1, name, library, str(batch), options[contender])["bytes"]
            for contender, library in _LIBRARIES.items()
        }
        notes[MEMORY] = ", ".join(f"{contender} {size / 1e6:.0f} MB" for contender, size in grown.items())
    yield row(title, "step", case.step_bar, notes)
    for part in PARTS:
        yield row(f"  {part}", part)
    yield row(f"  {ALONE}", ALONE, case.update_bar)
