"""A computation on some of the ranks, and an array handed on from rank to rank.

    mpirun -n 2 python examples/subset.py
    mpirun -n 4 python examples/subset.py

A mesh may hold some of the devices only. The ranks that have none of them go past, with an array of no parts.
"""

import ferroket as fk

fk.initialize()  # before jax is imported

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

n = jax.device_count()
half = Mesh(jax.devices()[: (n + 1) // 2], ("i",))
x = jax.device_put(np.arange(8.0 * half.size), NamedSharding(half, P("i")))
total = jax.jit(jnp.sum)(x)
parts = fk.distributed.gather(fk.distributed.from_process_local(np.array([len(x.addressable_shards)])))
fk.distributed.print_once(f"parts of the ranks {parts.tolist()}")
if total.addressable_shards:  # rank 0 is one of those that know
    fk.distributed.print_once(f"sum {float(total):g}")

# Between processes `jax.device_put` moves arrays on GPUs and TPUs, but not on CPUs. A collective does: here each device
# hands its part on to the next one, as the stages of a pipeline do.
ring = Mesh(jax.devices(), ("stage",))


def hand_on(part: jax.Array) -> jax.Array:
    return jax.lax.ppermute(part, "stage", [(i, (i + 1) % n) for i in range(n)])


stages = jax.device_put(np.arange(float(n)), NamedSharding(ring, P("stage")))
handed = jax.jit(jax.shard_map(hand_on, mesh=ring, in_specs=P("stage"), out_specs=P("stage")))(stages)
fk.distributed.print_once(f"handed on: {fk.distributed.gather(handed).astype(int).tolist()}")
