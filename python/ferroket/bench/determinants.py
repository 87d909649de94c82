"""``ferroket bench determinants``: determinants and Pfaffians of many small matrices, beside JAX's."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket  # noqa: F401 - with it come numbers of 64 bits
import numpy as np

import ferroket as fk
from ferroket.bench.cases import Chosen
from ferroket.bench.cases import run as run_cases
from ferroket.bench.report import Report, Row
from ferroket.bench.timing import paired
from ferroket.distributed import affinity

OURS, JAX, _LAPACK = "Ferroket", "JAX", "LAPACK's rate"
SIZES = (16, 28, 56)
_TYPES = {"real": float, "complex": complex}
_LARGE = 512
_BAR = 5.0


def run(*, cases: Chosen = None, batch: int = 4096, rounds: int = 5) -> Report:
    """Logarithms of determinants and of Pfaffians of a batch of matrices, with all cores.

    Ours are ``fk.linalg.slogdet`` and ``fk.linalg.slogpfaffian``, the peer ``jnp.linalg.slogdet``, also of Pfaffians,
    since JAX has none: it gives their squares. LAPACK's rate is the time that as many products and sums would take if
    they were those of a matrix of 512 rows, one on each core.

    Args:
        cases: a part of the name of those to run, or several; all by default.
        batch: the number of matrices.
        rounds: how many turns each contender has.

    Raises:
        ValueError: no case has such a name; the batch has no matrix.
        AssertionError: the logarithms differ.
    """
    found: dict[str, Callable[[str], Iterator[Row]]] = {
        f"{what}, {name}, {n} rows": partial(_case, function, n, dtype, batch, rounds)
        for what, function in {"determinants": fk.linalg.slogdet, "Pfaffians": fk.linalg.slogpfaffian}.items()
        for name, dtype in _TYPES.items()
        for n in SIZES
    }
    rows = run_cases(found, cases=cases, batch=batch)
    return Report(f"{batch} small matrices", OURS, rows, {"cases": cases, "batch": batch, "rounds": rounds})


def _case(function: Any, n: int, dtype: Any, batch: int, rounds: int, name: str) -> Iterator[Row]:
    matrices = _random(batch, n, dtype)
    is_pfaffian = function is fk.linalg.slogpfaffian
    if is_pfaffian:
        matrices = matrices - matrices.swapaxes(1, 2)
    ours, theirs = (jax.jit(one) for one in (function, jnp.linalg.slogdet))
    power = 2 if is_pfaffian else 1
    np.testing.assert_allclose(power * ours(matrices)[1], theirs(matrices)[1], rtol=1e-8, atol=1e-8)
    calls = {
        OURS: lambda: jax.block_until_ready(ours(matrices)),
        JAX: lambda: jax.block_until_ready(theirs(matrices)),
    }
    # A Pfaffian takes half of a determinant's products.
    share = batch * (n / _LARGE) ** 3 / power / len(affinity.allowed())
    bars = {JAX: _BAR} if dtype is float and not is_pfaffian else {}
    yield Row(name, paired(calls, rounds=rounds), {_LAPACK: share * _seconds_of_lapack(dtype, rounds)}, bars)


def _random(batch: int, n: int, dtype: Any) -> jax.Array:
    rng = np.random.default_rng(n)
    matrices = rng.normal(size=(batch, n, n)).astype(dtype)
    return jnp.asarray(matrices + 1j * rng.normal(size=matrices.shape) if dtype is complex else matrices)


def _seconds_of_lapack(dtype: Any, rounds: int) -> float:
    """The time that a large matrix takes."""
    matrix = _random(1, _LARGE, dtype)
    factors = jax.jit(jax.lax.linalg.lu)
    times = paired({_LAPACK: lambda: jax.block_until_ready(factors(matrix))}, rounds=rounds)
    return times[_LAPACK]
