"""``ferroket bench operators``: connected elements, beside those of NetKet's JAX and numba operators."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import netket as nk
import netket.experimental as nkx
import numpy as np

from ferroket.bench.cases import Chosen
from ferroket.bench.cases import run as run_cases
from ferroket.bench.hamiltonians import CASES, heisenberg
from ferroket.bench.report import Report, Row
from ferroket.bench.timing import on_cores, paired
from ferroket.distributed import affinity
from ferroket.operator import accelerate

OURS, JAX, NUMBA = "Ferroket", "NetKet JAX", "NetKet numba"

# The dtype of the samples of NetKet's samplers, and the widest one, where memory bandwidth decides.
SAMPLE_DTYPES = ("int8", "float64")
_ONE_CORE = "one core"
_SPARSE_BAR = 3.0
_CORES_BAR = 1.7
# NetKet's operators that don't take floating-point samples.
_INTEGERS_ONLY = nkx.operator.ParticleNumberAndSpinConservingFermioperator2nd


def run(*, cases: Chosen = None, batch: int = 1024, rounds: int = 5) -> Report:
    """Connected elements in both forms, padded and compact (``get_conn_flattened``).

    JAX sizes its pool of threads by the cores that the process may use when it starts. NetKet's numba operators
    use one thread, and so does memset, which fills as many new bytes as the results have.

    Args:
        cases: a part of the name of those to run, or several; all by default.
        batch: the number of samples.
        rounds: how many times each contender is measured.

    Raises:
        ValueError: no case has such a name; the batch has no sample.
    """
    found: dict[str, Callable[[str], Iterator[Row]]] = {name: partial(_rows, batch, rounds) for name in CASES}
    found[_SPARSE] = partial(_sparse, rounds)
    if affinity.can_bind() and len(affinity.allowed()) > 1:
        found[_CORES] = partial(_cores, batch, rounds)
    rows = run_cases(found, cases=cases, batch=batch)
    title = f"connected elements of {batch} samples"
    return Report(title, OURS, rows, {"cases": cases, "batch": batch, "rounds": rounds})


def _rows(batch: int, rounds: int, name: str) -> Iterator[Row]:
    """Times one operator of NetKet and ours, once both agree."""
    build, padded_bar, compact_bar = CASES[name]
    reference = build()
    ours = accelerate(reference)
    peers = {JAX: reference}
    if jax.device_count() == 1:  # NetKet's numba operators refuse to run on more
        peers[NUMBA] = _numba(reference)
    for dtype in SAMPLE_DTYPES:
        if dtype == "float64" and isinstance(reference, _INTEGERS_ONLY):
            continue
        x = reference.hilbert.random_state(jax.random.key(0), batch).astype(dtype)
        _compare(ours, reference, x[:32])
        for form, function, bar in (("padded", _padded, padded_bar), ("compact", _compact, compact_bar)):
            call = function(ours, x)
            n_bytes = sum(np.asarray(array).nbytes for array in call())
            contenders = {OURS: call, **{peer: function(operator, x) for peer, operator in peers.items()}}
            times = paired({**contenders, "memset": lambda n=n_bytes: np.full(n, 1, np.int8)}, rounds=rounds)  # type: ignore[misc]
            yield Row(
                f"{name}, {dtype}, {form}",
                {contender: times[contender] for contender in contenders},
                limits={"memset": times["memset"]},
                bars=dict.fromkeys(peers, bar),
            )


def _numba(operator: Any) -> Any:
    """NetKet's numba operator that equals one of its JAX operators."""
    # NetKet can't convert operators that conserve particle numbers. Ours can.
    return (operator if hasattr(operator, "to_numba_operator") else accelerate(operator)).to_numba_operator()


_SPARSE = "to_sparse of Heisenberg 4×5, total_sz = 0"


def _sparse(rounds: int, name: str) -> Iterator[Row]:
    """The sparse matrix in a sector."""
    reference = heisenberg((4, 5), total_sz=0)
    ours = accelerate(reference)
    contenders = {OURS: ours.to_sparse, JAX: reference.to_sparse, NUMBA: reference.to_numba_operator().to_sparse}
    assert abs(ours.to_sparse() - reference.to_sparse()).max() == 0
    yield Row(name, paired(contenders, rounds=rounds, warmup=1), bars=dict.fromkeys((JAX, NUMBA), _SPARSE_BAR))


_CORES = "Heisenberg 10×10, int8, padded, 50 calls"
_CALLS = 50


def _cores(batch: int, rounds: int, name: str) -> Iterator[Row]:
    """All cores that the process may use, compared with one core; the bar is for two."""
    ours = accelerate(heisenberg())
    x = ours.hilbert.random_state(jax.random.key(0), batch).astype("int8")
    call = _padded(ours, x)

    def calls() -> None:
        for _ in range(_CALLS):
            call()

    times = paired({OURS: calls, _ONE_CORE: partial(on_cores, calls, 1)}, rounds=rounds)
    yield Row(name, times, bars={_ONE_CORE: _CORES_BAR})


def _compare(ours: Any, reference: Any, x: jax.Array) -> None:
    """Whether two operators have the same matrix elements between the samples and all that is connected to them.

    They may order, and split, them as they like: so the sums of the elements over a random function of the connected
    configurations are compared.
    """
    weights = np.random.default_rng(1).normal(size=(2, x.shape[-1]))

    def sums(operator: Any) -> Any:
        xp, mels = (np.asarray(array) for array in operator.get_conn_padded(x))
        return (mels[..., None] * np.cos(xp @ weights.T)).sum(axis=-2)

    np.testing.assert_allclose(sums(ours), sums(reference), rtol=1e-9, atol=1e-9)


def _padded(operator: Any, x: jax.Array) -> Callable[[], Any]:
    samples = _samples(operator, x)
    return lambda: jax.block_until_ready(operator.get_conn_padded(samples))


def _compact(operator: Any, x: jax.Array) -> Callable[[], Any]:
    samples, sections = _samples(operator, x), np.empty(len(x), int)
    return lambda: jax.block_until_ready(operator.get_conn_flattened(samples, sections))


def _samples(operator: Any, x: jax.Array) -> Any:
    """The samples as an operator takes them without a copy: NetKet's numba operators take NumPy arrays."""
    return x if isinstance(operator, nk.operator.DiscreteJaxOperator) else np.asarray(x)
