"""Measures what the linear system of an update costs by itself.

Arguments: "ferroket" or "netket"; how many unknowns; how many calls.
"""

import sys

import ferroket as fk
from ferroket.bench.jobs import report

# A measurement ends after so many seconds, but not before so many calls.
LONG, LEAST = 4.0, 2


def main() -> None:
    """Measures, and reports ``{"solve": costs over all ranks, "memory": bytes}``, by which the peak of a rank grows.

    The matrix is one of 64-bit numbers, sharded along its rows as drivers have it. Its memory and that of compiling are
    in that of the rank; what XLA needs for its first program isn't, for a small system is solved before.
    """
    info = fk.initialize()
    import jax
    import jax.numpy as jnp
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
    rows = NamedSharding(Mesh(np.array(jax.devices()), ("S",)), P("S"))

    def system(side: int) -> tuple[jax.Array, jax.Array]:
        @jax.jit
        def made() -> tuple[jax.Array, jax.Array]:
            # Positive definite, by Gershgorin: the others of a row add up to less than 3.
            distance = abs(jnp.arange(side)[:, None] - jnp.arange(side)).astype(float)
            matrix = jnp.exp2(-distance) + 3 * (distance == 0)
            return jax.lax.with_sharding_constraint(matrix, rows), jnp.arange(float(side))

        return made()

    jax.block_until_ready(solver(*system(128 * jax.device_count())))
    before = peak()
    matrix, right = jax.block_until_ready(system(n_unknowns))

    def call() -> object:
        return jax.block_until_ready(solver(matrix, right))

    cost = over_ranks(repeated(call, lambda one: calls_within(LONG, one, least=LEAST, most=most)))
    grown = int(np.max(multihost_utils.process_allgather(np.array(peak() - before))))
    if info.rank == 0:
        report({"solve": cost._asdict(), "memory": grown})


if __name__ == "__main__":
    main()
