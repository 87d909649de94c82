#!/bin/bash -l
# CPU nodes under SLURM, the ranks started by mpirun: the way to begin with, since it works with every MPI.
# In the folder of your run.py (a copy of examples/ising_vmc.py will do):
#
#     sbatch slurm-mpirun.sh
#
# Two nodes of 64 cores, one rank a core. For 8 ranks of 8 cores on each: --ntasks-per-node=8 --cpus-per-task=8.
#SBATCH --job-name=ising
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=64
#SBATCH --cpus-per-task=1
#SBATCH --hint=nomultithread
#SBATCH --time=02:00:00
# Many clusters ask for an account and a partition, and for memory: take one # away.
##SBATCH --account=your-project
##SBATCH --partition=compute
##SBATCH --mem-per-cpu=2G
#SBATCH --output=%x-%j.out
# A job that is requeued, after its time or a node failed, goes on writing there; its script has to go on, too
# (examples/checkpoint.py).
#SBATCH --open-mode=append

set -e # a job without its environment should end here

# The cluster's MPI, as `module avail` calls it. Drop this line if pip has installed an MPI (`pip install '.[mpich]'`).
module load mpich
# Below the modules, which may have a Python of their own.
source "$HOME/venv/bin/activate"

# mpirun starts one process on each node by srun, and that one the ranks. It must not be bound to a core, as a single
# task would be, or all ranks share that core; nor must it look for MPI's own ways to start.
export SLURM_CPU_BIND=none SLURM_MPI_TYPE=none

# mpirun takes the nodes and the number of ranks from SLURM.
mpirun python run.py
