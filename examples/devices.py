"""Which devices a process sees, and a sum over all processes.

    python examples/devices.py
    mpirun -n 4 python examples/devices.py
    JAX_NUM_CPU_DEVICES=4 python examples/devices.py

Each process has devices of its own, its local ones; the global ones are those of all processes. One process may have
several, but over MPI a process has one: XLA's collectives over MPI tell devices apart by the rank of their process.
"""

import ferroket as fk

fk.initialize()  # before jax is imported

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

fk.distributed.print_once(
    f"{jax.process_count()} processes, {jax.device_count()} devices, {jax.local_device_count()} of each process"
)
assert jax.device_count() == jax.process_count() * jax.local_device_count()
assert all(device.process_index == jax.process_index() for device in jax.local_devices())

# A program that each device runs on its own part of the data, with a sum over all of them.
mesh = Mesh(jax.devices(), ("i",))
numbers = jnp.arange(1.0, jax.device_count() + 1)
part = jax.device_put(numbers, NamedSharding(mesh, P("i")))
share = jax.jit(jax.shard_map(lambda x: x / jax.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P("i")))
shares = fk.distributed.gather(share(part))
fk.distributed.print_once(f"shares {shares.round(3).tolist()}, together {shares.sum():.3f}")

# The same with pmap, to which each process gives the parts of its own devices.
local = jnp.arange(1.0, jax.local_device_count() + 1) + jax.process_index() * jax.local_device_count()
total = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(local)
fk.distributed.print_once(f"by pmap the numbers are {float(total[0]):g} together")
