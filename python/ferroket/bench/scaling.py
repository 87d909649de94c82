"""``ferroket bench scaling``: what a step of VMC_SR and its parts cost on 1, 2, 4, 8, … ranks."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from ferroket.bench import jobs
from ferroket.bench.cases import run as run_cases
from ferroket.bench.costs import PARTS
from ferroket.bench.prediction import Interconnect, seconds, work_of
from ferroket.bench.report import Report, Row, figure_of, time_text
from ferroket.bench.states import CASES, STEPS
from ferroket.bench.timing import on_cores
from ferroket.bench.updates import Options, text_of
from ferroket.distributed import affinity
from ferroket.usage import UsageError

OURS, NETKET = "Ferroket", "NetKet"
DEFAULT = "Heisenberg 10×10, RBM α=1"
STRONG, WEAK = "strong", "weak"
ALONE, SOLVE = "update alone", "solve"
ALL = ("step", *PARTS, ALONE, SOLVE)
_LIBRARIES = {OURS: "ferroket", NETKET: "netket"}
_STEPS = 9
_TRIED = 3
_TIMEOUT = 3600

Costs = dict[str, dict[str, float]]
"""By part, the fields of :class:`ferroket.bench.costs.Cost` and, for a step and the solve, ``memory``."""


@dataclass(frozen=True, kw_only=True)
class Measured(Row):
    """A part of a step on some ranks.

    Attributes:
        kind: "strong", all ranks together have the same samples, or "weak", each has as many as the others.
        ranks: how many.
        samples: of all ranks together.
        part: one of :data:`ALL`.
        costs: by contender, fields of :class:`ferroket.bench.costs.Cost`, and ``memory`` in bytes where it is known.
    """

    kind: str
    ranks: int
    samples: int
    part: str
    costs: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Scaling(Report):
    """The rows of a case for each number of ranks, each with all parts."""

    rows: Sequence[Measured]

    def print(self, console: Console | None = None) -> None:
        """Prints a table for each contender and kind: what each part costs, and how that compares with one rank."""
        console = console or Console()
        for contender in (OURS, NETKET):
            for kind in (STRONG, WEAK):
                rows = [row for row in self.rows if row.kind == kind and contender in row.costs]
                if rows:
                    self._print_scaling(contender, kind, rows, console)
        for name, text in self.rows[0].notes.items():
            console.print(f"{name}: {text}", highlight=False)

    def _print_scaling(self, contender: str, kind: str, rows: Sequence[Measured], console: Console) -> None:
        table = Table(
            title=f"{self.title}: {contender}, {kind} scaling",
            caption="medians; CPU is that of all ranks together, ×: of one rank; sent, calls and memory: of each rank",
            box=box.SIMPLE_HEAD,
        )
        for name in ("", "time", "CPU", "×", "sent", "calls", "memory"):
            table.add_column(name, justify="right" if name else "left", no_wrap=True)
        for row in rows:
            cost = row.costs[contender]
            step = f"{row.ranks} rank{'s' * (row.ranks > 1)}, {row.samples} samples"
            table.add_row(
                step if row.part == ALL[0] else f"  {row.part}",
                time_text(cost["seconds"]),
                time_text(cost["cpu"]),
                f"{self._growth(row, contender):.2f}",
                f"{cost['sent'] / 1e6:.3g} MB",
                f"{cost['collectives']:.0f}",
                f"{cost['memory'] / 1e6:.0f} MB" if "memory" in cost else "",
                end_section=row.part == ALL[-1],
            )
        console.print(table)

    def _growth(self, row: Measured, contender: str) -> float:
        """How many times the work of one rank all ranks do together."""
        one = next(
            other
            for other in self.rows
            if (other.kind, other.part, other.ranks) == (row.kind, row.part, 1) and contender in other.costs
        )
        return row.costs[contender]["cpu"] / one.costs[contender]["cpu"]

    def predicted(self, ranks: Sequence[int], interconnect: Interconnect | None = None) -> list[dict[str, float]]:
        """What the model says of the parts of our step, with the samples of the strong rows, in seconds."""
        strong = [row for row in self.rows if row.kind == STRONG]
        samples = strong[0].samples
        one = {row.part: row.costs[OURS] for row in strong if row.ranks == 1}
        most = max(row.ranks for row in strong)
        many = {row.part: row.costs[OURS] for row in strong if row.ranks == most}
        gathered, collectives = 0.0, 0.0
        if most > 1:
            gathered = max(0.0, many["step"]["sent"] - many[SOLVE]["sent"]) * most / (most - 1)
            collectives = max(0.0, many["step"]["collectives"] - many[SOLVE]["collectives"])
        work = work_of(one, samples, gathered, collectives)
        return [seconds(work, count, samples, interconnect or Interconnect()) for count in ranks]

    def plot(self, path: Path) -> None:
        """Draws our step as measured and as the model has it, and the work of all ranks beside that of one."""
        figure = figure_of(12, 4.5)
        left, right = figure.subplots(1, 2)
        strong = [row for row in self.rows if row.kind == STRONG]
        ranks = [2**power for power in range(11)]
        found = self.predicted(ranks)
        bottom = np.zeros(len(ranks))
        for part in found[0]:
            top = bottom + [of_ranks[part] for of_ranks in found]
            left.fill_between(ranks, bottom * 1e3, top * 1e3, alpha=0.5, label=part)
            bottom = top
        steps = [row for row in strong if row.part == "step" and row.ranks <= self.settings["cores"]]
        times = [1e3 * row.seconds[OURS] for row in steps]
        left.plot([row.ranks for row in steps], times, "ko", label="measured, a core for each rank")
        left.set(xscale="log", yscale="linear", xlabel="ranks", ylabel="milliseconds a step", ylim=(0, None))
        left.set_title(f"{strong[0].samples} samples, model", fontsize=10)
        left.set_xscale("log", base=2)
        left.legend(fontsize=8)
        for contender, line in ((OURS, "-"), (NETKET, ":")):
            for color, part in enumerate(("step", ALONE, SOLVE)):
                rows = [row for row in strong if row.part == part and contender in row.costs]
                if rows:
                    growth = [self._growth(row, contender) for row in rows]
                    marked = f"C{color}o{line}"
                    right.plot([row.ranks for row in rows], growth, marked, label=f"{contender}, {part}")
        right.set(xlabel="ranks", ylabel="CPU seconds of all ranks, one rank = 1", ylim=(0, None))
        right.set_xscale("log", base=2)
        right.legend(fontsize=8)
        figure.suptitle(self.title, fontsize=10)
        figure.savefig(path)


def run(
    *,
    cases: str = DEFAULT,
    ranks: Sequence[int] = (1, 2, 4, 8),
    batch: int = 4096,
    rounds: int = 1,
    peer: bool = True,
) -> Report:
    """Steps of ours and of NetKet's on each number of ranks.

    Each rank has one core, where there are enough, and one rank has one, too.

    Args:
        cases: a part of the name of those to run.
        ranks: how many, 1 among them.
        batch: the samples of a step for strong scaling; for weak scaling that of the most ranks.
        rounds: how many jobs of each; the medians count.
        peer: whether NetKet has its turn, in strong scaling.

    Raises:
        UsageError: no case has such a name; a rank would have no sample; numbers of ranks are too small, or lack 1.
    """
    counts = sorted(set(ranks))
    if counts[0] != 1:
        raise UsageError(f"ranks are {', '.join(map(str, ranks))}: 1 has to be among them, and nothing below")
    if batch < counts[-1]:
        raise UsageError(f"batch is {batch}: {counts[-1]} ranks need at least {counts[-1]} samples")
    contenders = _LIBRARIES if peer else {OURS: _LIBRARIES[OURS]}
    found: dict[str, Callable[[str], Iterator[Row]]] = {
        name: partial(_case, name, counts, batch, rounds, contenders) for name in CASES | STEPS
    }
    rows = [row for row in run_cases(found, cases=cases, batch=batch) if isinstance(row, Measured)]
    settings: dict[str, Any] = {"cases": cases, "ranks": counts, "batch": batch, "rounds": rounds, "peer": peer}
    settings |= {"cores": len(affinity.allowed())}
    return Scaling(f"a step of VMC_SR, {cases}", OURS, rows, settings)


def counts_of(text: str) -> list[int]:
    """Numbers of ranks, as a user lists them: "1,2,4".

    Raises:
        UsageError: It is no list of whole numbers.
    """
    try:
        return [int(count) for count in text.split(",")]
    except ValueError as error:
        raise UsageError(f"ranks are {text!r}: they have to be whole numbers with commas between, as 1,2,4") from error


def _case(
    name: str, counts: Sequence[int], batch: int, rounds: int, contenders: dict[str, str], title: str
) -> Iterator[Measured]:
    options: dict[str, Options] = {OURS: {}}
    notes = {"strong scaling": f"{batch} samples of all ranks", "weak scaling": f"{batch // counts[-1]} of each rank"}
    if NETKET in contenders:
        tried = on_cores(partial(jobs.run, "settings", 1, name, str(batch), str(_TRIED), **_WAIT), 1)
        options[NETKET] = min(tried, key=lambda setting: setting["seconds"])["options"]
        notes["NetKet's settings"] = text_of(options[NETKET])
    strong = dict.fromkeys(counts, batch)
    weak = {count: batch * count // counts[-1] for count in counts}
    measured: dict[tuple[str, int, int], Costs] = {}
    for kind, samples in ((STRONG, strong), (WEAK, weak)):
        for count in counts:
            for contender, library in contenders.items():
                key = (contender, count, samples[count])
                if kind == WEAK and contender != OURS:
                    continue
                if key not in measured:
                    of_jobs = [_measure(name, library, *key[1:], options[contender]) for _ in range(rounds)]
                    measured[key] = _median(of_jobs)
            costs = {
                contender: measured[contender, count, samples[count]]
                for contender in contenders
                if (contender, count, samples[count]) in measured and (kind == STRONG or contender == OURS)
            }
            for part in ALL:
                yield Measured(
                    f"{title}, {kind}, {count} rank{'s' * (count > 1)}, {part}",
                    {contender: of_parts[part]["seconds"] for contender, of_parts in costs.items()},
                    notes=notes,
                    kind=kind,
                    ranks=count,
                    samples=samples[count],
                    part=part,
                    costs={contender: of_parts[part] for contender, of_parts in costs.items()},
                )


def _measure(name: str, library: str, ranks: int, samples: int, options: Options) -> Costs:
    """The costs of a step, of its parts, and of a real linear system with an unknown for each sample."""

    def measure() -> Costs:
        found: Costs = jobs.run("step", ranks, name, library, str(samples), str(_STEPS), json.dumps(options), **_WAIT)
        solved = jobs.run("solve", ranks, library, str(samples), str(_STEPS), **_WAIT)
        found["step"]["memory"] = found.pop("memory")  # type: ignore[assignment]
        return {**found, SOLVE: {**solved["solve"], "memory": solved["memory"]}}

    return on_cores(measure, ranks)


_WAIT: Any = {"timeout": _TIMEOUT}


def _median(of_jobs: Sequence[Costs]) -> Costs:
    """The medians of the costs that several jobs found."""
    return {
        part: {name: float(np.median([costs[part][name] for costs in of_jobs])) for name in of_part}
        for part, of_part in of_jobs[0].items()
    }
