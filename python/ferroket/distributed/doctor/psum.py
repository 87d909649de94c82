"""How fast JAX's psum is, and whether it is right."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Message sizes in bytes, and the seconds that may be spent on each.
_PLAN = ((4, 0.4), (1 << 24, 0.6))
_FIRST_CALLS = 3
_VALUES = 7


@dataclass(frozen=True, kw_only=True)
class Psum:
    """A psum of a float32 array over all ranks.

    Attributes:
        bytes: the size of a rank's array.
        seconds: the median time of a call, on the slowest rank.
        mean: the mean time, which is far above the median where ranks wait for a core.
        calls: how many.
        wrong: for each rank with a wrong result, what it got.
    """

    bytes: int
    seconds: float
    mean: float
    calls: int
    wrong: list[str]


def measure(rank: int, size: int, exchange: Callable[[Any], list[Any]]) -> list[Psum]:
    """Measures for about a second. Collective over all ranks.

    Args:
        rank: this rank.
        size: the number of ranks.
        exchange: gathers an object of each rank on all of them.
    """
    import jax
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = jax.make_mesh((size,), ("ranks",))
    psum = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "ranks"), mesh=mesh, in_specs=P("ranks"), out_specs=P()))
    results = []
    for size_in_bytes, budget in _PLAN:
        pattern = np.arange(size_in_bytes // 4, dtype=np.float32) % _VALUES
        x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("ranks")), pattern + rank)
        got = np.asarray(psum(x).addressable_data(0))
        times = _repeat(lambda x=x: psum(x).block_until_ready(), budget, exchange)  # type: ignore[misc]
        outcomes = exchange(
            (statistics.median(times), statistics.mean(times), _difference(got, size * pattern + sum(range(size))))
        )
        medians, means, differences = zip(*outcomes, strict=True)
        results.append(
            Psum(
                bytes=size_in_bytes,
                seconds=max(medians),
                mean=max(means),
                calls=len(times),
                wrong=[f"rank {place} got {text}" for place, text in enumerate(differences) if text],
            )
        )
    return results


def _repeat(call: Callable[[], Any], budget: float, exchange: Callable[[Any], list[Any]]) -> list[float]:
    """The seconds of each of many calls, equally many on all ranks, within a budget of seconds."""
    times: list[float] = []
    calls = _FIRST_CALLS
    spent = 0.0
    while True:
        start = time.perf_counter()
        for _ in range(calls):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        took = max(exchange(time.perf_counter() - start))
        spent += took
        if spent + 2 * took > budget:
            return times
        calls *= 2


def _difference(got: Any, expected: Any) -> str:
    """The first element that is wrong, if any."""
    bad = (got != expected).nonzero()[0]
    return f"{got[bad[0]]:g} in place of {expected[bad[0]]:g} at element {bad[0]}" if bad.size else ""
