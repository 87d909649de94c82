"""Parts of documents that a command writes, between two marks."""

from dataclasses import dataclass
from pathlib import Path

from ferroket.usage import UsageError, check_writable


@dataclass(frozen=True)
class MadePart:
    """The part of a page that a command makes.

    Attributes:
        command: The command, as the mark names it: ``ferroket reproduce --page``.
    """

    command: str

    @property
    def start(self) -> str:
        """The line before it."""
        return f"<!-- made by `{self.command}`: -->"

    @property
    def end(self) -> str:
        """The line behind it."""
        return "<!-- end of what is made -->"

    def read(self, page: Path) -> str:
        """What a page has there.

        Raises:
            UsageError: The page has no such marks.
        """
        return self._split(page)[1].strip()

    def check(self, page: Path) -> None:
        """Checks that a text can be put there, before it is made.

        Raises:
            UsageError: The page isn't there, can't be written, or has no such marks.
        """
        check_writable(page, "--page")
        if not page.is_file():
            raise UsageError(
                f"--page {str(page)!r}: there is no such file. Name the page whose tables are to be written"
            )
        self._split(page)

    def write(self, page: Path, made: str) -> None:
        """Puts a text there.

        Raises:
            UsageError: The page has no such marks.
        """
        before, _, after = self._split(page)
        page.write_text(f"{before}{self.start}\n\n{made.strip()}\n\n{self.end}{after}", encoding="utf-8")

    def _split(self, page: Path) -> tuple[str, str, str]:
        before, mark, rest = page.read_text(encoding="utf-8").partition(self.start)
        made, end, after = rest.partition(self.end)
        if not mark or not end:
            raise UsageError(f"{page} must have the lines {self.start!r} and {self.end!r}, with what is made between")
        return before, made, after


def table(headings: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    line = "|" + "---|" * len(headings)
    return "\n".join([_row(headings), line, *(_row(cells) for cells in rows)])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', _BAR) for cell in cells)} |"


_BAR = r"\|"
"""Of a cell, and not between two."""
