"""``ferroket bench operators``: connected elements, beside those of NetKet's JAX and numba operators."""

from collections.abc import Callable
from typing import Any

import jax
import netket as nk
import numpy as np

from ferroket.bench.report import Report, Row
from ferroket.bench.timing import paired
from ferroket.operator import accelerate

OURS, JAX, NUMBA = "Ferroket", "NetKet JAX", "NetKet numba"

# What NetKet's samplers give, and the widest, where it all is a matter of memory.
SAMPLE_DTYPES = ("int8", "float64")
_BARS = {JAX: 3.0, NUMBA: 1.0}


def run(*, sites: int = 128, batch: int = 1024, rounds: int = 9) -> Report:
    """Padded connected elements of the transverse-field Ising chain.

    JAX sizes its pool of threads by the cores that the process may use when it starts. NetKet's numba operators
    use one thread, and so does memset, which fills as many new bytes as the results have.

    Args:
        sites: the length of the chain.
        batch: the number of samples.
        rounds: how many times each contender is measured.

    Raises:
        ValueError: the chain has less than two sites, or the batch no sample.
    """
    if sites < 2 or batch < 1:  # noqa: PLR2004
        raise ValueError(f"sites is {sites} and batch is {batch}: a chain has at least 2 sites, a batch 1 sample")
    graph = nk.graph.Chain(sites)
    hilbert = nk.hilbert.Spin(0.5, sites)
    reference = nk.operator.IsingJax(hilbert, graph, h=1.0, J=0.5)
    rows = []
    for dtype in SAMPLE_DTYPES:
        x = hilbert.random_state(jax.random.key(0), batch).astype(dtype)
        rows.append(_row(f"Ising chain {sites}, {dtype} samples", reference, x, rounds))
    return Report(
        f"connected elements of {batch} samples",
        OURS,
        rows,
        {"sites": sites, "batch": batch, "rounds": rounds},
    )


def _row(case: str, reference: Any, x: jax.Array, rounds: int) -> Row:
    """Times one operator of NetKet and what replaces it, after a look whether they agree."""
    ours = accelerate(reference)
    expected, found = _padded(reference, x)(), _padded(ours, x)()
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    n_bytes = sum(array.nbytes for array in found)
    del expected, found

    contenders = {OURS: _padded(ours, x), JAX: _padded(reference, x)}
    if jax.device_count() == 1:  # NetKet's numba operators refuse to run on more
        numba_operator, numba_x = reference.to_numba_operator(), np.asarray(x)
        contenders[NUMBA] = lambda: numba_operator.get_conn_padded(numba_x)
    times = paired({**contenders, "memset": lambda: np.full(n_bytes, 1, np.int8)}, rounds=rounds)
    return Row(
        case,
        {name: times[name] for name in contenders},
        limits={"memset": times["memset"]},
        bars={name: bar for name, bar in _BARS.items() if name in contenders},
    )


def _padded(operator: Any, x: jax.Array) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(operator.get_conn_padded(x))
