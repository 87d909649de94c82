"""The examination for people, as tables that survive being pasted into a bug report, and for programs."""

import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ferroket.distributed.affinity import describe
from ferroket.distributed.doctor.examination import Examination, Problem, Severity, count
from ferroket.distributed.doctor.facts import Facts, Library

# Columns of running text where there is no terminal to say.
_WIDTH = 110
_UNBOUNDED = 10_000
_INDENT = "  "
_SHOWN_RANKS = 64
_MIB = 1 << 20

_BINDINGS = {"ferroket": "bound by ferroket", "launcher": "bound by the launcher", "none": "bound by nobody"}

Rows = list[tuple[str, str]]


class Page:
    """What the doctor prints, piece by piece.

    Args:
        file: where to.
        terminal: whether a person reads it there; some launchers give their ranks a terminal that nobody sees.
    """

    def __init__(self, file: IO[str], *, terminal: bool) -> None:
        if hasattr(file, "reconfigure"):
            file.reconfigure(errors="replace")  # a terminal that has no µ is no reason to stop
        self._console = Console(
            file=file,
            width=None if terminal else _UNBOUNDED,
            force_terminal=terminal,
            color_system="auto" if terminal else None,
            highlight=False,
            emoji=False,
            markup=False,
        )

    def static(self, facts: Facts, library: Library | None, library_error: str | None) -> None:
        """What is known before anything runs."""
        self._rows("ferroket doctor", _software(facts))
        self._rows("MPI", _mpi(facts, library, library_error))
        self._rows("node", _node(facts))
        self._rows("variables", [*facts.variables.items(), *facts.proxies.items()])

    def running(self, examination: Examination) -> None:
        """What came of the trial."""
        outcome = examination.outcome
        if outcome and outcome.command:
            self._rows("trial", [("command", outcome.command)])
        if outcome:
            self._rows("run", _run(examination))
        if examination.facts.launcher or examination.running:
            self._ranks(examination)
        for failure in outcome.failures if outcome else []:
            self._paragraph("failed: ", str(failure), "bold red")
            for line in failure.output:
                self._console.print(f"  | {line}", soft_wrap=True)
            self._console.print()

    def problems(self, examination: Examination, problems: Sequence[Problem]) -> None:
        """What is wrong, and what to do."""
        print = self._console.print
        for problem in problems:
            style = "bold red" if problem.severity is Severity.ERROR else "bold yellow"
            self._paragraph(f"{problem.severity.upper()}: ", problem.text, style)
            self._paragraph("mend: ", problem.mend, "bold green")
            print()
        errors = sum(problem.severity is Severity.ERROR for problem in problems)
        warnings = count(len(problems) - errors, "warning")
        tried = "A run works" if examination.works else "No run was tried"
        if errors:
            print(Text(f"A run would fail: {count(errors, 'error')}, {warnings}.", "bold red"))
        elif problems:
            print(Text(f"{tried}, with {warnings}.", "bold yellow"))
        else:
            print(Text(f"{tried}, and no problem was found.", "bold green"))

    def _rows(self, title: str, rows: Rows) -> None:
        table = _table([title, ""])
        for name, value in rows:
            table.add_row(name, value)
        if rows:
            self._print(table)

    def _ranks(self, examination: Examination) -> None:
        heads = ["rank", "host", "cores", "physical cores", "from launcher", "XLA threads", "memory", "devices"]
        table = _table(heads)
        for facts in examination.ranks[:_SHOWN_RANKS]:
            rank = examination.running.get(facts.rank)
            cores = rank.cores if rank else facts.cores
            physical = dict(zip(facts.cores, facts.physical, strict=True))
            table.add_row(
                str(facts.rank),
                facts.hostname,
                describe(tuple(cores)),
                str(len({physical[cpu] for cpu in cores if cpu in physical})),
                describe(tuple(facts.cores)),
                (str(rank.threads) if rank.threads else "unknown") if rank else "not started",
                _size(rank.memory) if rank else "",
                ", ".join(rank.devices) if rank else "",
            )
        more = len(examination.ranks) - _SHOWN_RANKS
        if more > 0:
            table.add_row("...", f"and {more} more")
        self._print(table)

    def _print(self, table: Table) -> None:
        print = self._console.print
        if self._console.is_terminal:
            print(table, "")
            return
        # As wide as it is: a path that is cut helps nobody. Without the blanks that fill the last column.
        with self._console.capture() as capture:
            print(table, "")
        self._console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))

    def _paragraph(self, head: str, text: str, style: str) -> None:
        """Running text, broken between words only."""
        width = self._console.width if self._console.is_terminal else _WIDTH
        lines = textwrap.wrap(
            text,
            width,
            initial_indent=" " * len(head),
            subsequent_indent=_INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
        body = "\n".join(lines)[len(head) :]
        self._console.print(Text.assemble((head, style), body), soft_wrap=True)


def as_json(examination: Examination, problems: Sequence[Problem]) -> str:
    """Everything, for programs."""
    content: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "ok": not any(problem.severity is Severity.ERROR for problem in problems),
        "problems": [asdict(problem) for problem in problems],
        **asdict(examination),
    }
    return json.dumps(content, indent=2, default=str)


def _table(heads: Iterable[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _software(facts: Facts) -> Rows:
    versions = [(name, version or "not installed") for name, version in facts.versions.items()]
    return [*versions, ("python", facts.python), ("system", facts.system)]


def _mpi(facts: Facts, library: Library | None, error: str | None) -> Rows:
    started = " < ".join(facts.started_by)
    rows = [("launcher", f"{facts.launcher}, {facts.size} ranks" if facts.launcher else "none")]
    rows += [("started by", started)] if started else []
    if library is None:
        message, _, tried = (error or "").partition(" Tried: ")
        places = [("tried", place.strip()) for place in tried.splitlines() if place.strip()]
        return [*rows, ("library", f"none: {message.partition('. ')[0]}"), *places]
    return [
        *rows,
        ("library", f"{library.version} ({library.family})"),
        ("its file", library.path),
        ("found", library.origin),
        *(("tried", f"{place}: {result}") for place, result in library.attempts),
        ("its mpirun", library.mpirun or library.mpirun_error or "none"),
        ("mpirun on PATH", facts.mpirun_on_path or "none"),
    ]


def _node(facts: Facts) -> Rows:
    physical = f" ({facts.node_physical} physical)" if facts.node_physical else ""
    quota = f"{facts.quota:g} cores' worth of time" if facts.quota is not None else "none"
    limit = _size(facts.memory_limit) if facts.memory_limit else "none"
    resolved = facts.address or f"doesn't resolve: {facts.address_error}"
    load = f", load {facts.load:g}" if facts.load is not None else ""
    return [
        ("host name", f"{facts.hostname}, {resolved}"),
        ("cores", f"{facts.node_cores} logical{physical}, {facts.available_cores} of them available{load}"),
        ("limit of CPU time", quota),
        ("memory", f"{_size(facts.memory)}, {_size(facts.memory_free)} free; limit {limit}"),
        (
            "shared memory",
            f"/dev/shm: {_size(facts.shm[0])}, {_size(facts.shm[1])} free" if facts.shm else "no /dev/shm",
        ),
    ]


def _run(examination: Examination) -> Rows:
    outcome = examination.outcome
    assert outcome
    rows: Rows = []
    if outcome.info:
        info = outcome.info
        nodes = f"{info['size']} on {count(info['nodes'], 'node')}"
        rows += [
            ("ranks", nodes),
            ("MPI", f"{info['mpi']}, {info['mpi_path']}" if info["mpi"] else "not used"),
            ("thread level", info["thread_level"] or "none"),
            ("collectives", info["collectives"]),
            ("cores", _BINDINGS.get(info["binding"], info["binding"])),
            ("while waiting", "ranks leave their core to others" if info["yielding"] else "ranks keep their core"),
            ("coordinator", info["coordinator"] or "none"),
            *([("reductions", info["reductions"])] if info["reductions"] else []),
        ]
    for psum in outcome.psum:
        rate = f", {psum.bytes / psum.seconds / 1e9:.2g} GB/s" if psum.bytes >= _MIB else ""
        rows.append(
            (
                f"psum of {_size(psum.bytes)}",
                f"{_time(psum.seconds)}{rate} ({psum.calls} calls, mean {_time(psum.mean)})",
            )
        )
    if outcome.reductions:
        wrong = sum(bool(computation.wrong) for computation in outcome.reductions)
        kinds = count(len(outcome.reductions), "computation")
        rows.append(("XLA's numbers", f"wrong in {wrong} of {kinds}" if wrong else f"those of NumPy in {kinds}"))
    return rows


def _size(number: int) -> str:
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":  # noqa: PLR2004
            break
        value /= 1024
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"  # noqa: PLR2004


def _time(seconds: float) -> str:
    return f"{1e6 * seconds:.3g} µs" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"  # noqa: PLR2004
