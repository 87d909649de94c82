"""The numbers of configurations in a Hilbert space, for matrices."""

from typing import Any

import numpy as np

from ferroket.operator.compiled.local_states import local_states

# So many rows at a time stay in a processor's cache.
_BLOCK = 1 << 14
# Up to so many configurations, constraints disregarded, a table of all of them is faster than a search.
_TABLE = 1 << 24
# Whole numbers up to this are exact in float64.
_EXACT = 1 << 53


def states_to_numbers(hilbert: Any, configurations: np.ndarray) -> np.ndarray:
    """The numbers of configurations of a Hilbert space, as its method of this name gives, but faster for many.

    Args:
        hilbert: An indexable Hilbert space.
        configurations: Of shape ``(n, N)``.

    Returns:
        An integer array of shape ``(n,)``.

    Raises:
        ValueError: If a configuration isn't of the space.
    """
    sites = local_states(hilbert)
    radices = sites.sizes_of_sites
    weights = np.array([np.prod(radices[site + 1 :], dtype=object) for site in range(sites.n_sites)], dtype=object)
    n_keys = int(np.prod(radices, dtype=object))
    if n_keys > _EXACT:
        return np.asarray(hilbert.states_to_numbers(configurations))
    kind = np.asarray(sites.kind) if len(sites.kind) else np.zeros(sites.n_sites, int)
    starts, slopes = np.array(sites.starts)[kind], weights.astype(float) / np.array(sites.steps)[kind]

    def keys(x: np.ndarray) -> np.ndarray:
        """The local indices as the digits of a number; a sum of exact floating-point numbers, and so exact."""
        found = np.empty(len(x), np.int64)
        for start in range(0, len(x), _BLOCK):
            block = x[start : start + _BLOCK].astype(float)
            found[start : start + _BLOCK] = np.rint((block - starts) @ slopes)
        return found

    known, wanted = keys(np.asarray(hilbert.all_states())), keys(configurations)
    if n_keys <= _TABLE:
        table = np.full(n_keys, -1, np.int32)
        table[known] = np.arange(len(known), dtype=np.int32)
        numbers = table[wanted]
        missing = numbers < 0
    else:
        order = np.argsort(known)
        places = np.searchsorted(known, wanted, sorter=order).clip(max=len(known) - 1)
        numbers = order[places].astype(np.int32)
        missing = known[numbers] != wanted
    if missing.any():
        outside = configurations[np.argmax(missing)]
        raise ValueError(f"the configuration {outside.tolist()} isn't one of {hilbert!r}")
    return numbers
