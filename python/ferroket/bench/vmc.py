"""``ferroket bench vmc``: a whole step of VMC_SR beside NetKet's, and where its time goes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ferroket.bench import jobs
from ferroket.bench.cases import run as run_cases
from ferroket.bench.report import Report, Row, figure_of
from ferroket.bench.states import CASES, CHAINS, Case

OURS, NETKET = "Ferroket", "NetKet"
PARTS = ("sampling", "local energy", "Jacobian", "solve", "rest")
_LIBRARIES = {OURS: "ferroket", NETKET: "netket"}
_STEPS = 15


@dataclass(frozen=True)
class Steps(Report):
    """The rows of steps, each followed by those of its parts."""

    def plot(self, path: Path) -> None:
        """Draws the steps of each case as bars of their parts, as shares of NetKet's on as many ranks."""
        figure = figure_of(2 + 2.2 * len(self.rows) / (1 + len(PARTS)))
        axes = figure.subplots()
        steps = self.rows[:: 1 + len(PARTS)]
        colors = [f"C{place}" for place in range(len(PARTS))]
        labels: list[tuple[float, str]] = []
        for place, step in enumerate(steps):
            first = place * (1 + len(PARTS))
            for which, contender in enumerate((NETKET, OURS)):
                bottom = 0.0
                for part, row in enumerate(self.rows[first + 1 : first + 1 + len(PARTS)]):
                    share = row.seconds[contender] / step.seconds[NETKET]
                    label = PARTS[part] if not labels else None
                    axes.bar(2.6 * place + which, share, 0.9, bottom, color=colors[part], label=label)
                    bottom += share
                labels.append((2.6 * place + which, contender))
            axes.text(2.6 * place + 0.5, 1.06, step.case.replace(", ", "\n"), ha="center", va="bottom", fontsize=8)
        axes.set_xticks([x for x, _ in labels], [name for _, name in labels], rotation=60)
        axes.set_ylim(0, 1.35)
        axes.set_ylabel("time, NetKet's step = 1")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        figure.savefig(path)


def run(*, cases: str = "", batch: int = 1024, rounds: int = 3) -> Report:
    """Steps of ours and of NetKet's in turns, on one rank with all cores, and on two ranks.

    Args:
        cases: a part of the name of those to run; all by default.
        batch: the number of samples.
        rounds: how many jobs of each; the medians count.

    Raises:
        ValueError: no case has such a name; the batch has no sample.
    """
    found: dict[str, Callable[[str], Iterator[Row]]] = {
        f"{name}, {ranks} rank{'s' * (ranks > 1)}": partial(_case, name, case, ranks, batch, rounds)
        for name, case in CASES.items()
        for ranks in (1, 2)
    }
    rows = run_cases(found, cases=cases, batch=batch)
    title = f"a step of VMC_SR, {batch} samples, {CHAINS} chains a device"
    return Steps(title, OURS, rows, {"cases": cases, "batch": batch, "rounds": rounds})


def _case(name: str, case: Case, ranks: int, batch: int, rounds: int, title: str) -> Iterator[Row]:
    measured: dict[str, list[dict[str, float]]] = {contender: [] for contender in _LIBRARIES}
    for _ in range(rounds):
        for contender, library in _LIBRARIES.items():
            job = jobs.run("step", ranks, name, library, str(batch), str(_STEPS), timeout=1800)
            measured[contender].append(job)

    def medians(part: str) -> dict[str, float]:
        return {contender: float(np.median([job[part] for job in jobs_])) for contender, jobs_ in measured.items()}

    bars = {NETKET: case.step_bar} if ranks == 1 and case.step_bar is not None else {}
    yield Row(title, medians("step"), bars=bars)
    for part in PARTS:
        yield Row(f"  {part}", medians(part))
