"""A slow Pfaffian."""

from typing import Any

import numpy as np


def pfaffian(a: np.ndarray) -> Any:
    """By expansion along the first row, of a matrix with few rows."""
    if not len(a):
        return 1.0
    others = [np.delete(np.arange(1, len(a)), place) for place in range(len(a) - 1)]
    return sum((-1) ** place * a[0, 1 + place] * pfaffian(a[np.ix_(rest, rest)]) for place, rest in enumerate(others))
