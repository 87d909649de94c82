"""Measures what the linear system of an update costs by itself.

Arguments: "ferroket" or "netket"; how many unknowns; how many calls.
"""

import sys
from dataclasses import asdict

import psutil

import ferroket as fk
from ferroket.bench.jobs import report

# A measurement ends after so many seconds, but not before so many calls.
LONG, LEAST = 4.0, 2


def main() -> None:
    """Measures, and reports ``{"solve": costs over all ranks, "memory": bytes}``, those of a rank.

    The matrix is one of 64-bit numbers, sharded along its rows as drivers have it. The memory is what a rank has of the
    matrix, and by how much its peak grows when the system is solved, compilation included.
    """
    info = fk.initialize()
    import jax
    import netket as nk
    import numpy as np
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    from ferroket.bench.costs import over_ranks, repeated
    from ferroket.bench.updates import calls_within
    from ferroket.bench.workers.memory import peak

    library, n_unknowns, most = sys.argv[1], *map(int, sys.argv[2:])
    solver = {"ferroket": fk.optimizer.solver.cholesky, "netket": nk.optimizer.solver.cholesky}[library]
    mesh = Mesh(np.array(jax.devices()), ("S",))

    def rows(index: tuple[slice, ...]) -> np.ndarray:
        """Of a positive definite matrix, by Gershgorin: the others of a row add up to less than 2."""
        distance = abs(np.arange(n_unknowns)[index[0], None] - np.arange(n_unknowns)[index[1]])
        return np.exp2(-np.minimum(distance, 60)) + 2 * (distance == 0)

    matrix = jax.make_array_from_callback((n_unknowns, n_unknowns), NamedSharding(mesh, P("S")), rows)
    right = jax.make_array_from_callback(
        (n_unknowns,), NamedSharding(mesh, P()), np.arange(float(n_unknowns)).__getitem__
    )
    # What it took to make the matrix is free, but may be less than what it takes to solve the system.
    before = resident()

    def call() -> object:
        return jax.block_until_ready(solver(matrix, right))

    cost = over_ranks(repeated(call, lambda one: calls_within(LONG, one, least=LEAST, most=most)))
    own = sum(shard.data.nbytes for shard in matrix.addressable_shards)
    taken = int(np.max(multihost_utils.process_allgather(np.array(own + peak() - before))))
    if info.rank == 0:
        report({"solve": asdict(cost), "memory": taken})


def resident() -> int:
    """The memory that the process has now, in bytes."""
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    main()
