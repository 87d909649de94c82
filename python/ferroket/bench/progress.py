"""What is shown while a benchmark runs: each row when it is measured, and on a terminal what is measured now."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.live import Live
from rich.text import Text


class _Display:
    """Rows as lines, and below them a line that is written anew."""

    def __init__(self, console: Console) -> None:
        self.console = console
        # Nothing is drawn but when something happens: a thread that draws would take time from what is measured.
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self.what = ""

    def now(self, text: str) -> None:
        if self.console.is_terminal:
            self.live.update(Text(f"measuring {text}", style="dim", overflow="ellipsis", no_wrap=True), refresh=True)


_display: ContextVar[_Display | None] = ContextVar("display", default=None)


@contextmanager
def shown(console: Console | None = None) -> Iterator[None]:
    """Within it, benchmarks show how far they are.

    Args:
        console: Where; by default stdout.
    """
    display = _Display(console or Console())
    token = _display.set(display)
    try:
        if not display.console.is_terminal:
            yield
            return
        with display.live:
            yield
    finally:
        _display.reset(token)


def measuring(what: str) -> None:
    """Says what is measured from now on, if anybody wants to see it."""
    if display := _display.get():
        display.what = what
        display.now(what)


def starting(job: str) -> None:
    """Says which job of several ranks runs, beside what is measured."""
    if display := _display.get():
        display.now(": ".join(filter(None, [display.what, job])))


def measured(row: str) -> None:
    """Shows a row that has been measured."""
    if display := _display.get():
        display.console.print(row, highlight=False, markup=False, soft_wrap=True)
        display.console.file.flush()
