"""``ferroket bench sampler``: Metropolis sampling, beside NetKet's."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax

import ferroket as fk
from ferroket.bench import jobs
from ferroket.bench.beside import all_cores, two_ranks
from ferroket.bench.cases import Chosen
from ferroket.bench.cases import run as run_cases
from ferroket.bench.report import Report, Row
from ferroket.bench.states import CASES, CHAINS, DETERMINANTS, MORE, Case
from ferroket.bench.timing import paired
from ferroket.distributed import affinity

OURS, NETKET = "Ferroket", "NetKet"
_RANKS_BAR = 1.8
_ON_RANKS = ("Heisenberg 10×10, RBM α=1", "Heisenberg 10×10, MLP (100, 200, 200)")
# The acceptances of two samplers may differ by this much by chance.
_CHANCE = 0.03
_TIMEOUT = 1800


def run(*, cases: Chosen = None, batch: int = 1024, rounds: int = 5) -> Report:
    """The time of ``MCState.sample()``, with the samples that it discards first.

    NetKet's samplers evaluate the network on all chains at once, which is their fastest setting. Ours is compared
    with itself for Heisenberg 10×10 with an RBM of α=1, on two ranks also with an MLP.

    Args:
        cases: a part of the name of those to run, or several; all by default.
        batch: the number of samples.
        rounds: how many times each contender is measured.

    Raises:
        ValueError: no case has such a name; the batch has no sample.
        AssertionError: NetKet accepts more moves, or fewer.
    """
    found: dict[str, Callable[[str], Iterator[Row]]] = {
        name: partial(_case, case, batch, rounds) for name, case in (CASES | MORE).items()
    }
    found |= {name: partial(_determinants, case, batch, rounds) for name, (case, _) in DETERMINANTS.items()}
    if affinity.can_bind() and len(affinity.allowed()) > 1:
        found["all cores beside one"] = partial(_cores, batch, rounds)
        for name in _ON_RANKS:
            found[f"two ranks beside one, each with one core, {name}"] = partial(_ranks, name, batch, rounds)
    rows = run_cases(found, cases=cases, batch=batch)
    title = f"sampling {batch} configurations, {CHAINS} chains a device"
    return Report(title, OURS, rows, {"cases": cases, "batch": batch, "rounds": rounds})


def _call(state: Any) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(state.sample())


def _case(case: Case, batch: int, rounds: int, name: str) -> Iterator[Row]:
    yield _row(name, times_of(case, batch, rounds), case)


def _determinants(case: Case, batch: int, rounds: int, name: str) -> Iterator[Row]:
    times = jobs.run("determinants", 1, "sampler", name, str(batch), str(rounds), env=jobs.THREADS, timeout=_TIMEOUT)
    yield _row(name, times, case)


def _row(name: str, times: dict[str, float], case: Case) -> Row:
    return Row(name, times, bars={} if case.sampling_bar is None else {NETKET: case.sampling_bar})


def times_of(case: Case, batch: int, rounds: int) -> dict[str, float]:
    """The seconds that so many samples take, ours and NetKet's.

    Raises:
        AssertionError: NetKet accepts more moves, or fewer.
    """
    ours, theirs = (case.state(library, batch)[0] for library in ("ferroket", "netket"))
    assert fk.sampler.explain(ours).path.startswith("chains in Rust")
    calls = {OURS: _call(ours), NETKET: _call(theirs)}
    for call in calls.values():
        call()
    compare(float(ours.sampler_state.acceptance), float(theirs.sampler_state.acceptance))
    return paired(calls, rounds=rounds, warmup=2)


def compare(ours: float, theirs: float) -> None:
    """Raises an :class:`AssertionError` if two acceptances differ by more than chance."""
    assert abs(ours - theirs) < _CHANCE, f"the acceptance is {ours:.3f}, and NetKet's is {theirs:.3f}"


def _cores(batch: int, rounds: int, name: str) -> Iterator[Row]:
    """All cores that the process may use, compared with one core."""
    call = _call(CASES["Heisenberg 10×10, RBM α=1"].state("ferroket", batch)[0])
    yield all_cores(name, OURS, call, rounds=rounds)


def _ranks(case: str, batch: int, rounds: int, name: str) -> Iterator[Row]:
    """The chains spread over two ranks, compared with one rank that has them all."""
    yield two_ranks(name, OURS, "sampler", str(batch), case, rounds=rounds, bar=_RANKS_BAR)
