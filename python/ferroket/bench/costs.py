"""What the parts of a step of VMC cost a rank: time, work and messages."""

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass, replace
from functools import partial, wraps
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ferroket import _lib
from ferroket._compat.netket import LOCAL_ESTIMATORS, SAMPLE, UPDATES
from ferroket.bench.updates import wrapped

PARTS = ("sampling", "local energy", "update", "rest")
"""What a step consists of."""


@dataclass(frozen=True)
class Cost:
    """What something costs a rank."""

    seconds: float
    """By the clock."""
    cpu: float
    """Seconds of cores, those included in which a rank waits for others and no other process wants its core."""
    sent: float
    """Bytes that it sends over MPI at least, as :func:`sent` counts them."""
    collectives: float
    """Collectives over MPI."""

    def since(self, before: "Cost") -> "Cost":
        """What was added after ``before``."""
        return Cost(*np.subtract(astuple(self), astuple(before)).tolist())


def now() -> Cost:
    """What this process has cost so far; of which differences matter."""
    totals = _lib.mpi_traffic()
    return Cost(
        time.perf_counter(),
        time.process_time(),
        sum(sent(function, ranks or jax.process_count(), n_bytes) for function, ranks, _, n_bytes in totals),
        sum(calls for _, _, calls, _ in totals),
    )


def sent(function: str, ranks: int, n_bytes: int) -> float:
    """How many bytes a rank sends at least, on average.

    Args:
        function: of MPI.
        ranks: how many take part.
        n_bytes: what it hands to MPI: its part of what is gathered or left, its values of what is reduced.

    Returns:
        For a ring of ranks, in which all parts of an array go round once, and those of a sum twice: no algorithm sends
        less (Chan, Heimlich, Purkayastha and van de Geijn, Concurrency and Computation 19, 1749 (2007)).
    """
    return {
        "MPI_Allreduce": 2 * (ranks - 1) / ranks * n_bytes,
        "MPI_Allgather": (ranks - 1) * n_bytes,
        "MPI_Reduce_scatter": (ranks - 1) * n_bytes,
    }.get(function, n_bytes)


class Costs:
    """Adds up what functions cost that are called again and again, by name."""

    def __init__(self) -> None:
        self._totals: dict[str, Cost] = defaultdict(lambda: Cost(0, 0, 0, 0))

    def of(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The same function, whose results are waited for, and whose cost is added to ``name``'s."""

        @wraps(function)
        def counted(*arguments: Any, **options: Any) -> Any:
            before = now()
            result = jax.block_until_ready(function(*arguments, **options))
            self._totals[name] = Cost(*np.add(astuple(self._totals[name]), astuple(now().since(before))).tolist())
            return result

        return counted

    @contextmanager
    def of_parts(self) -> Iterator[None]:
        """Within it, the cost of sampling, of local energies, and of updates of ``VMC_SR`` is added up."""
        parts = {"sampling": [SAMPLE], "local energy": [LOCAL_ESTIMATORS], "update": [*UPDATES.values()]}
        with ExitStack() as stack:
            for part, functions in parts.items():
                stack.enter_context(wrapped(partial(self.of, name=part), functions))
            yield

    def totals(self) -> dict[str, Cost]:
        """What each part has cost so far, and all together as ``step``."""
        parts = {part: self._totals[part] for part in ("sampling", "local energy", "update")}
        return {**parts, "step": now()}


def of_steps(totals: list[dict[str, Cost]]) -> dict[str, Cost]:
    """The medians of what a step costs and each of its parts.

    Args:
        totals: as they were before the first step and after each.
    """
    found: dict[str, list[Cost]] = defaultdict(list)
    for before, after in itertools.pairwise(totals):
        cost = {part: after[part].since(before[part]) for part in after}
        # Samples are drawn when they are first needed, which is for the local energies.
        cost["rest"] = cost["step"].since(cost["local energy"]).since(cost["update"])
        cost["local energy"] = cost["local energy"].since(cost["sampling"])
        for part, of_part in cost.items():
            found[part].append(of_part)
    return {part: median(costs) for part, costs in found.items()}


def repeated(call: Callable[[], Any], times: Callable[[float], int], *, warmup: int = 1) -> Cost:
    """The cost of a function alone.

    Args:
        call: returns when its work is done.
        times: how many calls are to be measured, given the seconds of one; at least 1.
        warmup: calls before anything is counted, at least one besides.

    Returns:
        The median of several calls.
    """
    for _ in range(warmup):
        call()
    return median([_cost(call) for _ in range(times(_cost(call).seconds))])


def _cost(call: Callable[[], Any]) -> Cost:
    before = now()
    call()
    return now().since(before)


def median(costs: Iterable[Cost]) -> Cost:
    """The median of each of their numbers."""
    return Cost(*map(statistics.median, zip(*map(astuple, costs), strict=True)))


def over_ranks(cost: Cost) -> Cost:
    """The longest time, the work of all ranks together, and the most messages of one. All ranks must call it."""
    own = np.array(astuple(cost))
    ranks = np.asarray(multihost_utils.process_allgather(own)).reshape(-1, len(own))
    return replace(Cost(*ranks.max(axis=0).tolist()), cpu=float(ranks[:, 1].sum()))
