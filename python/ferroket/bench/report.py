"""What a benchmark found: a table for people, JSON for programs, a picture for documents."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ferroket.distributed import affinity
from ferroket.distributed.info import versions
from ferroket.usage import UsageError, check_writable


@dataclass(frozen=True)
class Row:
    """One case of a benchmark.

    Attributes:
        case: what was computed.
        seconds: the median time of each contender, by name.
        limits: times to read them against, by name: the machine's memset, MPI's own latency.
        bars: for a peer, how many times faster than it ours has to be.
        notes: what else a reader needs to know, by what it is; printed below the table.
    """

    case: str
    seconds: dict[str, float]
    limits: dict[str, float] = field(default_factory=dict)
    bars: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The times in a line."""
        times = [f"{name} {time_text(seconds)}" for name, seconds in self.seconds.items()]
        return f"{self.case.strip()}: {', '.join(times)}"


@dataclass(frozen=True)
class Report:
    """The rows of a benchmark, `ours` compared with every other contender."""

    title: str
    ours: str
    rows: Sequence[Row]
    settings: dict[str, Any] = field(default_factory=dict)

    def ratios(self, row: Row) -> dict[str, float]:
        """How many times faster ours is than each peer."""
        own = row.seconds[self.ours]
        return {name: time / own for name, time in row.seconds.items() if name != self.ours}

    def print(self, console: Console | None = None) -> None:
        """Prints the rows: consecutive ones that share a peer in one table."""
        tables: list[tuple[set[str], list[Row]]] = []
        for row in self.rows:
            peers = row.seconds.keys() - {self.ours}
            if not tables or not peers & tables[-1][0]:
                tables.append((set(), []))
            tables[-1][0].update(peers)
            tables[-1][1].append(row)
        for _, rows in tables:
            self._print_table(rows, console or Console())

    def _print_table(self, rows: Sequence[Row], console: Console) -> None:
        peers = [name for name in dict.fromkeys(name for row in rows for name in row.seconds) if name != self.ours]
        limits = list(dict.fromkeys(name for row in rows for name in row.limits))
        table = Table(title=self.title, caption="medians; × is how many times faster than the peer")
        table.add_column("case")
        for name in [self.ours, *peers, *limits]:
            table.add_column(name, justify="right")
        for peer in peers:
            table.add_column(f"× {peer}", justify="right")
        for row in rows:
            times = [row.seconds.get(name) for name in [self.ours, *peers]] + [row.limits.get(name) for name in limits]
            ratios = [_ratio(self.ratios(row).get(peer), row.bars.get(peer)) for peer in peers]
            table.add_row(row.case, *map(time_text, times), *ratios)
        console.print(table)
        for row in rows:
            if row.notes:
                notes = "; ".join(f"{name}: {text}" for name, text in row.notes.items())
                console.print(f"{row.case.strip()}: {notes}", highlight=False)

    def write_json(self, path: Path) -> None:
        """Writes settings, machine, versions and rows."""
        content = {
            "title": self.title,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": versions(),
            "settings": self.settings,
            "ours": self.ours,
            "rows": [asdict(row) | {"ratios": self.ratios(row)} for row in self.rows],
        }
        path.write_text(json.dumps(content, indent=2) + "\n")

    def plot(self, path: Path) -> None:
        """Draws the times as dots on a logarithmic scale, a line for each case; the limits are grey.

        Raises:
            ModuleNotFoundError: matplotlib isn't installed.
        """
        contenders = dict.fromkeys(name for row in self.rows for name in row.seconds)
        limits = dict.fromkeys(name for row in self.rows for name in row.limits)
        figure = figure_of(10, 1.2 + 0.3 * len(self.rows))
        axes = figure.subplots()
        markers = {name: {"marker": marker} for name, marker in zip(contenders, cycle("oDsv^<>P"), strict=False)}
        markers |= {
            name: {"marker": marker, "color": "grey"} for name, marker in zip(limits, cycle("|x+."), strict=False)
        }
        for name, look in markers.items():
            times = [1e3 * (row.seconds | row.limits).get(name, float("nan")) for row in self.rows]
            axes.plot(times, range(len(times)), linestyle="", label=name, **look)
        axes.set_yticks(range(len(self.rows)), [row.case for row in self.rows])
        axes.invert_yaxis()
        axes.grid(alpha=0.3)
        axes.set_xscale("log")
        axes.set_xlabel("milliseconds")
        axes.set_title(self.title)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        figure.savefig(path)


_NO_MATPLOTLIB = "drawing needs matplotlib, which isn't installed: pip install matplotlib"


def check_outputs(json: Path | None, plot: Path | None) -> None:
    """Checks that a report can be written and drawn, before it is measured.

    Args:
        json: The file of :meth:`Report.write_json`, None for none.
        plot: The file of :meth:`Report.plot`, None for none.

    Raises:
        UsageError: A file can't be written, its kind can't be drawn, or matplotlib isn't installed.
    """
    if json:
        check_writable(json, "--json")
    if plot:
        check_plot(plot, "--plot")


def check_plot(file: Path, option: str) -> None:
    """Checks that a picture can be drawn.

    Args:
        file: Of the picture.
        option: The option that named it, for the message.

    Raises:
        UsageError: It can't be written, its kind isn't known, or matplotlib isn't installed.
    """
    check_writable(file, option)
    try:
        kinds = figure_of(1, 1).canvas.get_supported_filetypes()
    except ModuleNotFoundError as error:
        raise UsageError(f"{option} {str(file)!r}: {error}") from error
    if file.suffix.removeprefix(".").lower() not in kinds:
        names = ", ".join(f".{kind}" for kind in sorted(kinds))
        raise UsageError(f"{option} {str(file)!r}: a picture's name has to end in one of {names}")


def figure_of(width: float, height: float = 4) -> Any:
    """An empty figure of so many inches.

    Raises:
        ModuleNotFoundError: matplotlib isn't installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(_NO_MATPLOTLIB) from error
    return Figure(figsize=(width, height), layout="constrained")


def machine() -> dict[str, Any]:
    """The machine, in a line for the reader."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = named[0].split(":", 1)[1].strip() if named else model
    return {
        "processor": model,
        "cores": len(affinity.allowed()),
        "system": platform.system(),
        "arch": platform.machine(),
    }


def time_text(value: float | None) -> str:
    """Seconds as a reader wants them; nothing for None."""
    if value is None:
        return ""
    return next(
        f"{value * scale:.3g} {unit}"
        for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs"))
        if value * scale >= 1 or unit == "µs"
    )


def _ratio(ratio: float | None, bar: float | None) -> str:
    if ratio is None:
        return ""
    if bar is None:
        return f"{ratio:.2f}"
    color = "green" if ratio >= bar else "red"
    return f"[{color}]{ratio:.2f}[/] (bar {bar:g})"
