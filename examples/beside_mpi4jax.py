"""mpi4jax beside JAX's own collectives, in one script and on one MPI library.

    pip install --no-cache-dir mpi4jax    # compiles, with the mpicc of the MPI that the job will use
    mpirun -n 4 python examples/beside_mpi4jax.py

mpi4jax has MPI calls inside of compiled programs, each rank with arrays of its own; JAX's collectives are for arrays
that span all ranks. A script may move from the one to the other step by step.
"""

import ferroket as fk

fk.initialize()  # before jax is imported

import jax
import jax.numpy as jnp
import mpi4jax
import numpy as np
from mpi4py import MPI

rank, n = jax.process_index(), jax.process_count()
mine = jnp.arange(4.0) + 10 * rank

# With mpi4jax: an array of each rank, and a communication that the program says.
by_mpi4jax = jax.jit(lambda x: mpi4jax.allreduce(x.sum(), op=MPI.SUM, comm=MPI.COMM_WORLD))(mine)

# With JAX: one array of all ranks, and a communication that XLA finds.
by_jax = jax.jit(jnp.sum)(fk.distributed.from_process_local(np.asarray(mine)))
fk.distributed.print_once(f"mpi4jax {float(by_mpi4jax):g}, JAX {float(by_jax):g}")
