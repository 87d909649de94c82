#!/bin/bash -l
# CPU nodes under SLURM, the ranks started by srun: SLURM then accounts for each rank, and binds it to its cores.
# In the folder of your run.py (a copy of examples/ising_vmc.py will do):
#
#     sbatch slurm-srun.sh
#
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

# The ranks find each other by PMI, of which each MPI has its own:
#
#     --mpi=pmi2           MPICH, Intel MPI, MVAPICH
#     --mpi=pmix           Open MPI
#     --mpi=cray_shasta    Cray MPICH
#
# Intel MPI has to be told SLURM's library for it, too: export I_MPI_PMI_LIBRARY=/usr/lib64/libpmi2.so, or where it is.
#
# `srun --mpi=list` shows what this cluster has. Where none fits, use mpirun, or no MPI at all, which is slower:
# `export FERROKET_COLLECTIVES=gloo` and --mpi=none.
#
# More than one core for each rank has to be said once more here: --cpus-per-task="$SLURM_CPUS_PER_TASK".
srun --mpi=pmi2 --kill-on-bad-exit=1 python run.py
