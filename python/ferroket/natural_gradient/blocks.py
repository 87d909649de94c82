"""How the rows of a system that several devices share are cut into blocks."""

import itertools
import math
from dataclasses import dataclass

_STEPS = 16
"""How many panels there are at least, if they are wide enough: few make for little work on small pieces, but each
device factors the diagonal part of each."""

_SHARE = 1 / 32
"""What the diagonal parts may take of a device's operations, at most: with K panels they are R/K² of them."""

_ROWS = 16
"""How many rows a block has at least: products of fewer aren't efficient, and each panel takes two messages."""

_MULTIPLE = 8
"""Of how many rows those of a panel are a multiple: whole blocks of vector instructions."""

_WIDTH = 256
"""A panel of so many rows is wide enough, however few each of many devices has in it."""

_STAGES = 16
"""How many times the program of a step is written, at most, for the shapes shrink and grow. The rest are loops."""


@dataclass(frozen=True)
class Blocks:
    """How the rows of each device are cut.

    There are as many panels as the diagonal parts need to stay within :data:`_SHARE`, and no fewer than :data:`_STEPS`,
    unless blocks would have less than :data:`_ROWS` rows, and panels less than :data:`_WIDTH`.
    """

    n_devices: int
    """R."""
    n_rows: int
    """b."""
    n_steps: int
    """K."""

    @classmethod
    def of(cls, n_rows: int, n_devices: int) -> "Blocks":
        """For n rows on each of R devices."""
        n_steps = max(_STEPS, math.ceil(math.sqrt(n_devices / _SHARE)))
        least = max(1, min(_ROWS, _WIDTH // n_devices))
        length = -(-n_rows // max(1, min(n_steps, n_rows // least)))
        multiple = _MULTIPLE // math.gcd(_MULTIPLE, n_devices)
        length = -(-length // multiple) * multiple
        return cls(n_devices, length, -(-n_rows // length))

    @property
    def width(self) -> int:
        """Of a panel: w."""
        return self.n_devices * self.n_rows

    @property
    def height(self) -> int:
        """Of the blocks of a device together, which is at least n."""
        return self.n_steps * self.n_rows

    def stages(self) -> list[tuple[int, int]]:
        """The first step of each stage, and the first of the next."""
        n_stages = min(self.n_steps, _STAGES)
        ends = [self.n_steps * stage // n_stages for stage in range(n_stages + 1)]
        return list(itertools.pairwise(ends))
