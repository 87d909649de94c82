"""``ferroket bench solve``: the linear system of an update, beside LAPACK's solution and the processor's peak."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

import ferroket as fk
from ferroket.bench.cases import Chosen
from ferroket.bench.cases import run as run_cases
from ferroket.bench.report import Report, Row
from ferroket.bench.timing import paired, peak_rate
from ferroket.distributed import affinity

OURS, LAPACK, _PEAK = "Ferroket", "LAPACK", "FMA peak"
UNKNOWNS = (128, 512, 1024, 2048, 4096)
SMOOTH = "smooth inverse, "
UNKNOWNS_OF_SMOOTH = (512, 1024, 2048)
_TYPES = {"real": float, "complex": complex}


def run(*, cases: Chosen = None, rounds: int = 5) -> Report:
    """Positive definite systems on one device, with all of its cores.

    Ours is ``fk.optimizer.solver.cholesky``, the peer NetKet's ``cholesky``, which JAX leaves to LAPACK. The peak is
    the time that N³/3 products and sums, four times as many for complex numbers, would take at the rate of
    :func:`ferroket._lib.fma_rate` on each core. A smooth inverse is ``fk.optimizer.solver.pinv_smooth``, which factors
    twice, and NetKet's ``pinv_smooth``, which decomposes into eigenvectors.

    Args:
        cases: a part of the name of those to run, or several; all by default.
        rounds: how many turns each contender has.

    Raises:
        ValueError: no case has such a name.
        AssertionError: the solutions differ.
    """
    found: dict[str, Callable[[str], Iterator[Row]]] = {
        f"{name}, {n_unknowns} unknowns": partial(_case, n_unknowns, dtype, rounds)
        for name, dtype in _TYPES.items()
        for n_unknowns in UNKNOWNS
    }
    found |= {
        f"{SMOOTH}{name}, {n_unknowns} unknowns": partial(_case, n_unknowns, dtype, rounds)
        for name, dtype in _TYPES.items()
        for n_unknowns in UNKNOWNS_OF_SMOOTH
    }
    rows = run_cases(found, cases=cases, batch=None)
    return Report("the linear system of an update", OURS, rows, {"cases": cases, "rounds": rounds})


def _case(n_unknowns: int, dtype: Any, rounds: int, name: str) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(n_unknowns, n_unknowns)).astype(dtype)
    if dtype is complex:
        factor += 1j * rng.normal(size=factor.shape)
    matrix = jnp.asarray(factor @ factor.conj().T + n_unknowns * np.eye(n_unknowns))
    right = matrix[0]

    def of(solver: Callable[..., Any]) -> Callable[[], jax.Array]:
        solve = jax.jit(lambda matrix, right: solver(matrix, right)[0])
        return lambda: jax.block_until_ready(solve(matrix, right))

    ours, netkets, n_factorisations = fk.optimizer.solver.cholesky, nk.optimizer.solver.cholesky, 1
    if name.startswith(SMOOTH):
        ours, netkets, n_factorisations = fk.optimizer.solver.pinv_smooth, nk.optimizer.solver.pinv_smooth, 2
    calls = {OURS: of(ours), LAPACK: of(netkets)}
    np.testing.assert_allclose(calls[OURS](), calls[LAPACK](), atol=1e-12)
    operations = n_factorisations * (4 if dtype is complex else 1) * n_unknowns**3 / 3
    rate = peak_rate(rounds) * len(affinity.allowed())
    yield Row(name, paired(calls, rounds=rounds), {_PEAK: operations / rate})
