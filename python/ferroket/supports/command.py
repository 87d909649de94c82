"""What ``ferroket supports`` does."""

from collections.abc import Iterable
from pathlib import Path

from ferroket import pages
from ferroket.pages import MadePart
from ferroket.supports.drivers import DRIVERS
from ferroket.supports.models import MODELS
from ferroket.supports.operators import OPERATORS
from ferroket.supports.rules import RULES
from ferroket.supports.spaces import SPACES
from ferroket.supports.tables import Row, Table
from ferroket.usage import UsageError

TABLES = [MODELS, RULES, OPERATORS, DRIVERS, SPACES]
MADE = MadePart("ferroket supports --page")


def supports(model: str | None, page: Path | None) -> None:
    """Prints all tables, or the rows of one model, or writes the tables of a page.

    Args:
        model: The name of a model, in capital letters or not.
        page: The page.

    Raises:
        UsageError: There is no such model, or the page isn't there or has no marks.
    """
    if page is not None:
        MADE.check(page)
        MADE.write(page, in_markdown())
    elif model is None:
        for table in TABLES:
            print(f"{table.title}\n")
            _print(table, table.rows)
    else:
        rows = [row for row in MODELS.rows if row.key == model.casefold()]
        if not rows:
            names = ", ".join(dict.fromkeys(row.short_name for row in MODELS.rows))
            raise UsageError(f"there is no model {model!r}; there are {names}")
        _print(MODELS, rows)


def _print(table: Table, rows: Iterable[Row]) -> None:
    """Prints rows one after the other, as soon as they are found."""
    for row in rows:
        cells = zip(table.headings[1:], row.cells(), strict=True)
        print(
            row.name, *(f"  {heading}: {cell.strip('`')}" for heading, cell in cells if cell), "", sep="\n", flush=True
        )


def in_markdown() -> str:
    """The tables, as a page has them."""
    return "\n\n".join(f"## {table.title}\n\n{table_in_markdown(table)}" for table in TABLES)


def table_in_markdown(table: Table) -> str:
    """A table, as a page has it."""
    names = [f"`{row.name}`" if row.is_code else row.name for row in table.rows]
    return pages.table(table.headings, [[name, *row.cells()] for name, row in zip(names, table.rows, strict=True)])
