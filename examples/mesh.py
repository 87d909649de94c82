"""An array that spans all processes, on a mesh of two dimensions.

    python examples/mesh.py
    mpirun -n 4 python examples/mesh.py

Every process runs the same program on the same global array, and holds a part of it: its addressable shards.
"""

import ferroket as fk

fk.initialize()  # before jax is imported

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

n = jax.device_count()
rows = 2 if n % 2 == 0 else 1
# On CPUs any order of the devices will do; on GPUs take `jax.make_mesh`, which knows their links.
mesh = Mesh(np.array(jax.devices()).reshape(rows, n // rows), ("x", "y"))
sharding = NamedSharding(mesh, P("x", "y"))

# 4 × 3 numbers for each device, of which each process makes those that it holds.
values = np.arange(12.0 * n).reshape(4 * rows, 3 * (n // rows))
array = jax.make_array_from_callback(values.shape, sharding, values.__getitem__)
shards = [(shard.index, shard.data.shape) for shard in array.addressable_shards]
assert sum(np.prod(shape) for _, shape in shards) == values.size // jax.process_count()
fk.distributed.print_once(f"{n} devices as {rows} × {n // rows}; rank 0 holds {shards[0][1]} of {array.shape}")

# What is computed of it is computed where its parts are; XLA adds the communication.
total = jax.jit(jnp.sum)(array)
of_rows = jax.jit(lambda a: a.sum(axis=1), out_shardings=NamedSharding(mesh, P("x")))(array)
product = jax.jit(lambda a: a @ a.T)(array)
fk.distributed.print_once(f"sum {float(total):g}, of the rows {fk.distributed.gather(of_rows).astype(int).tolist()}")
fk.distributed.print_once(f"trace of the product {fk.distributed.gather(product).trace():g}")
