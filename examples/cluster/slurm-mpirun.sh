#!/bin/bash
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

set -e # a job without its environment should end here

# The cluster's MPI, as `module avail` calls it. After `pip install 'ferroket[mpich]'` drop this line.
module load mpich
# Below the modules, which may have a Python of their own.
source "$HOME/venv/bin/activate"

# mpirun takes the nodes and the number of ranks from SLURM.
mpirun python run.py
