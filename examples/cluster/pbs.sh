#!/bin/bash -l
# CPU nodes under PBS Pro or OpenPBS, the ranks started by mpirun.
# In the folder of your run.py (a copy of examples/ising_vmc.py will do):
#
#     qsub pbs.sh
#
# Two nodes of 64 cores, one rank a core. For 8 ranks of 8 cores on each: ncpus=64:mpiprocs=8.
#PBS -N ising
# Many clusters ask for an account and a queue, and for memory (:mem=128gb after mpiprocs): take one # away.
##PBS -A your-project
##PBS -q compute
#PBS -l select=2:ncpus=64:mpiprocs=64:ompthreads=1
#PBS -l place=scatter:excl
#PBS -l walltime=02:00:00
#PBS -j oe

set -e # a job without its environment should end here

# The cluster's MPI, as `module avail` calls it. Drop this line if pip has installed an MPI (`pip install '.[mpich]'`).
module load mpich
# Below the modules, which may have a Python of their own.
source "$HOME/venv/bin/activate"

# PBS starts jobs in the home directory.
cd "$PBS_O_WORKDIR"

# A cluster's mpirun takes the nodes and the number of ranks from PBS, and starts processes by it. One that doesn't know
# PBS, as pip's MPICH, is told the nodes, and reaches the others by ssh without a password:
#
#     mpirun -launcher ssh -f "$PBS_NODEFILE" -n "$(wc -l < "$PBS_NODEFILE")" python run.py
#
# Where ssh between nodes isn't allowed, PBS has a stand-in for it: -launcher-exec "$(command -v pbs_tmrsh)".
mpirun python run.py
