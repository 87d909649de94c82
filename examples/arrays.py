"""Three ways to make an array of all processes, and a data loader whose last batch is short.

python examples/arrays.py
mpirun -n 2 python examples/arrays.py
"""

import ferroket as fk

fk.initialize()  # before jax is imported

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

n, rank = jax.process_count(), jax.process_index()
sharding = NamedSharding(Mesh(jax.devices(), ("i",)), P("i"))
total = jax.jit(jnp.sum)
print_once = fk.distributed.print_once

# All processes have all of it, and each device is given its part.
whole = np.arange(4.0 * jax.device_count())
print_once("device_put:", float(total(jax.device_put(whole, sharding))))

# Each process has a part: that of its rank.
mine = whole.reshape(n, -1)[rank]
print_once("make_array_from_process_local_data:", float(total(jax.make_array_from_process_local_data(sharding, mine))))

# Each device has an array of its own already.
pieces = [
    jax.device_put(piece, device)
    for piece, device in zip(np.split(mine, jax.local_device_count()), jax.local_devices(), strict=True)
]
array = jax.make_array_from_single_device_arrays(whole.shape, sharding, pieces)
print_once("make_array_from_single_device_arrays:", float(total(array)))

# 20 numbers, of which the ranks read every n-th, four a batch. The last batch is short on some ranks or on all: each
# fills its own up, and says how many count. Whoever has no batch left would leave the others waiting, so all go through
# as many batches as the one with the most.
numbers = np.arange(20.0)
own = numbers[rank::n]
batches = -(-len(numbers[0::n]) // 4)


@jax.jit
def add(sum_and_count: jax.Array, batch: jax.Array, counts: jax.Array) -> jax.Array:
    return sum_and_count + jnp.stack([jnp.where(counts, batch, 0).sum(), counts.sum()])


sum_and_count = jnp.zeros(2)
per_rank = 4 * jax.local_device_count()
for start in range(0, 4 * batches, 4):
    batch = own[start : start + 4]
    padded = np.pad(batch, (0, per_rank - len(batch)))
    counts = np.arange(per_rank) < len(batch)
    sum_and_count = add(
        sum_and_count, fk.distributed.from_process_local(padded), fk.distributed.from_process_local(counts)
    )
numbers_total, count = map(float, sum_and_count)
print_once(f"mean of {count:g} numbers: {numbers_total / count}")
