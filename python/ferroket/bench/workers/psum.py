"""Times psum through JAX, MPI's own allreduce and a jitted call; arguments: message sizes in bytes."""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import ferroket as fk
from ferroket import _lib
from ferroket.bench.jobs import report
from ferroket.distributed.library import search_prefixes


def main() -> None:
    """Measures, and reports seconds a call: {"psum": {bytes: s}, "allreduce": {bytes: s}, "jit": s, "overhead": s}."""
    info = fk.initialize()
    import jax
    import numpy as np
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    mesh = jax.make_mesh((info.size,), ("S",))
    psum = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "S"), mesh=mesh, in_specs=P("S"), out_specs=P()))
    step = jax.jit(lambda x: x + 1)

    def median(call: Callable[[], Any], repeats: int) -> float:
        for _ in range(max(3, repeats // 10)):
            call()
        times = []
        for _ in range(repeats):
            world.Barrier()
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    result: dict[str, Any] = {"psum": {}, "allreduce": {}}
    for size in map(int, sys.argv[1:]):
        block = np.ones(size // 4, np.float32)
        x = jax.make_array_from_process_local_data(NamedSharding(mesh, P("S")), block)
        total = np.empty_like(block)
        repeats = max(20, min(400, 2**24 // size))
        result["psum"][size] = median(lambda x=x: psum(x).block_until_ready(), repeats)  # type: ignore[misc]
        result["allreduce"][size] = median(
            lambda block=block, total=total: world.Allreduce(block, total),  # type: ignore[misc]
            repeats,
        )
    one = jax.numpy.ones(())
    result["jit"] = median(lambda: step(one).block_until_ready(), 400)
    wrapped, direct = _lib.attach_mpi(search_prefixes()).overhead()
    result["overhead"] = wrapped - direct
    if info.rank == 0:
        report(result)


if __name__ == "__main__":
    main()
