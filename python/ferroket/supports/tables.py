"""The tables."""

from collections.abc import Callable
from dataclasses import dataclass

from ferroket.supports.systems import netkets_classes


@dataclass(frozen=True)
class Table:
    """Rows whose cells are found when they are asked for."""

    title: str
    headings: list[str]
    rows: list["Row"]


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Attributes:
        name: The first cell, in code: a class, a function or a call.
        find: gives the other cells.
        is_code: whether the first cell is that, and not words.
    """

    name: str
    find: Callable[[], list[str]]
    is_code: bool = True

    @property
    def short_name(self) -> str:
        """The name without its package, arguments and remarks."""
        return self.name.split("(")[0].split(",")[0].rpartition(".")[2]

    @property
    def key(self) -> str:
        """What it is asked for by."""
        return self.short_name.casefold()

    def cells(self) -> list[str]:
        """The other cells."""
        with netkets_classes():
            return self.find()
