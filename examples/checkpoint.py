"""Arrays that are written once, and read on another number of ranks.

    mpirun -n 4 python examples/checkpoint.py /tmp/state.mpack
    mpirun -n 2 python examples/checkpoint.py /tmp/state.mpack     # goes on where the four have stopped

A random walk of 8 walkers, a multiple of the number of ranks, each of 10 steps a run.
"""

import sys
from pathlib import Path

import ferroket as fk

fk.initialize()  # before jax is imported

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

path = Path(sys.argv[1])
WALKERS = 8
by_walker = NamedSharding(Mesh(jax.devices(), ("walkers",)), P("walkers"))
state = {
    "step": fk.distributed.replicate(0),
    "x": jax.jit(lambda: jnp.zeros(WALKERS, int), out_shardings=by_walker)(),
}
# All ranks have to go the same way, whatever they see of the file system: rank 0 says whether there is a file.
if fk.distributed.broadcast(path.exists()):
    state = fk.distributed.load(path, like=state)


@jax.jit
def walk(state: dict[str, jax.Array]) -> dict[str, jax.Array]:
    for _ in range(10):
        # One key a step, from which all walkers draw, so that the walk doesn't depend on the number of ranks.
        bits = jax.random.bernoulli(jax.random.fold_in(jax.random.key(0), state["step"]), shape=(WALKERS,))
        state = {"step": state["step"] + 1, "x": state["x"] + 2 * bits - 1}
    return state


state = walk(state)
fk.distributed.save(path, state)
fk.distributed.print_once(f"step {int(state['step'])}: {fk.distributed.gather(state['x']).tolist()}")
