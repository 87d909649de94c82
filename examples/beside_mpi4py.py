"""mpi4py beside JAX, in one script: they use one MPI library.

mpirun -n 4 python examples/beside_mpi4py.py
"""

import ferroket as fk

info = fk.initialize()  # before jax is imported

import jax
import jax.numpy as jnp
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
assert (world.rank, world.size) == (jax.process_index(), jax.process_count()), "mpi4py needs a job over MPI"

# JAX computes on the array of all ranks, and mpi4py hands round what isn't an array.
array = fk.distributed.from_process_local(np.arange(4.0) + 10 * world.rank)
of_jax = float(jax.jit(jnp.sum)(array))
of_mpi = world.allreduce(float(np.sum(np.arange(4.0) + 10 * world.rank)))
names = world.gather(f"rank {world.rank}", root=0)
fk.distributed.print_once(f"JAX {of_jax:g}, MPI {of_mpi:g}: {names}")
