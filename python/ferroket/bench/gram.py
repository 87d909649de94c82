"""``ferroket bench gram``: the Gram matrix of an update and its linear system, beside the Jacobian's and the peak."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket.bench.cases import Chosen
from ferroket.bench.cases import run as run_cases
from ferroket.bench.report import Report, Row
from ferroket.bench.timing import paired, peak_rate
from ferroket.distributed import affinity
from ferroket.natural_gradient.gram import gram
from ferroket.natural_gradient.log_derivatives import LogDerivatives, log_derivatives
from ferroket.natural_gradient.ntk import ShiftedKernel, shifted
from ferroket.natural_gradient.structure import read

OURS, JACOBIAN, _PEAK = "Ferroket", "Jacobian", "FMA peak"
N_SITES = 100
CASES = (("RBM α=1", 1024), ("RBM α=1", 4096), ("complex RBM α=4", 1024))
_SHIFT = 0.01
_MACHINES: dict[str, tuple[Any, str]] = {
    "RBM α=1": (nk.models.RBM(alpha=1, param_dtype=float), "real"),
    "complex RBM α=4": (nk.models.RBM(alpha=4, param_dtype=complex), "complex"),
}


def run(*, cases: Chosen = None, rounds: int = 5) -> Report:
    """Gram matrices of the log-derivatives of random samples, on one device, with all of its cores, and their systems.

    Ours is made of the factors of the log-derivatives, the peer of the Jacobian, as NetKet's update does. The peak is
    the time that the products and sums of half of the matrix would take at the rate of
    :func:`ferroket._lib.fma_rate` on each core: those of the factors, which are far fewer than those of the Jacobian.
    A row "solved" is that matrix with a shift and without its means, and the solution of the system, as an update
    needs them. There ours writes no matrix, and the peak counts the factorisation, too.

    Args:
        cases: a part of the name of those to run, or several; all by default.
        rounds: how many turns each contender has.

    Raises:
        ValueError: no case has such a name.
        AssertionError: the matrices differ.
    """
    found: dict[str, Callable[[str], Iterator[Row]]] = {
        f"{name}, {n_samples} samples": partial(_case, n_samples, *_MACHINES[name], rounds) for name, n_samples in CASES
    }
    rows = run_cases(found, cases=cases, batch=None)
    return Report("the Gram matrix of an update", OURS, rows, {"cases": cases, "rounds": rounds})


def _case(n_samples: int, model: Any, mode: str, rounds: int, name: str) -> Iterator[Row]:
    samples = nk.hilbert.Spin(0.5, N_SITES).random_state(jax.random.key(0), n_samples, dtype=jnp.int8)
    parameters = model.init(jax.random.key(1), samples[:1])["params"]
    network = read(model.apply, parameters, {}, samples[0])
    derivatives = jax.jit(partial(log_derivatives, network, mode, None))(jax.tree.leaves(parameters), {}, samples)
    jacobian = jax.jit(_jacobian)(derivatives)

    def of(function: Callable[..., jax.Array], *arguments: Any) -> Callable[[], jax.Array]:
        compiled = jax.jit(function)
        return lambda: jax.block_until_ready(compiled(*arguments))

    def by_jacobian(rows: jax.Array, right: jax.Array) -> jax.Array:
        rows = rows - rows.mean(axis=0)
        matrix = rows @ rows.conj().T / n_samples
        return nk.optimizer.solver.cholesky(shifted(matrix, _SHIFT, None, n_samples), right)[0]

    calls = {
        OURS: of(gram, derivatives, derivatives),
        JACOBIAN: of(lambda rows: rows @ rows.conj().T, jacobian),
    }
    ours, theirs = (_centred(call().reshape(n_samples, n_samples)) for call in calls.values())
    np.testing.assert_allclose(ours, theirs, atol=1e-10 * np.abs(theirs).max())
    rate = peak_rate(rounds) * len(affinity.allowed())
    operations = _operations(derivatives)
    yield Row(name, paired(calls, rounds=rounds), {_PEAK: operations / rate})
    right = jnp.asarray(np.random.default_rng(2).normal(size=n_samples), jacobian.dtype)
    right -= right.mean()
    calls = {
        OURS: of(ShiftedKernel.solve, ShiftedKernel(derivatives, _SHIFT), right),
        JACOBIAN: of(by_jacobian, jacobian, right),
    }
    found, expected = (call() for call in calls.values())
    np.testing.assert_allclose(found, expected - expected.mean(), atol=1e-9 * np.abs(expected).max())
    operations += (4 if jnp.iscomplexobj(right) else 1) * n_samples**3 // 3
    yield Row(f"{name}, solved", paired(calls, rounds=rounds), {_PEAK: operations / rate})


def _jacobian(derivatives: LogDerivatives) -> jax.Array:
    """One row of each sample."""
    return jnp.concatenate([rows.reshape(len(rows), -1) for rows in derivatives.dense()], axis=1)


def _centred(matrix: jax.Array) -> np.ndarray:
    found = np.asarray(matrix)
    found = found - found.mean(axis=0)
    return found - found.mean(axis=1, keepdims=True)


def _operations(derivatives: LogDerivatives) -> int:
    """Products and sums of half of the matrix, of factors at one position."""
    arrays = [side for factors in derivatives.factors.values() for side in (factors.x, factors.delta)]
    sizes = [array[0].size * (4 if jnp.iscomplexobj(array) else 1) for array in (*arrays, *derivatives.rows.values())]
    return len(arrays[0]) ** 2 * sum(sizes)
