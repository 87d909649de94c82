#!/bin/bash -l
# GPU nodes under SLURM, one rank for each GPU. The collectives are NCCL's, so no MPI is needed.
# In the folder of your run.py (a copy of examples/ising_vmc.py will do), with `pip install 'jax[cuda12]'` done:
#
#     sbatch slurm-gpu.sh
#
# Two nodes of 4 GPUs and 64 cores. GPUs are asked for by the node, not by the task: GPUs that don't see each other may
# not be able to exchange data directly.
#SBATCH --job-name=ising
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
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

source "$HOME/venv/bin/activate"

# Each rank of a node takes one of the GPUs that it sees. What SLURM shows to a rank in CUDA_VISIBLE_DEVICES is
# respected, so leave it alone here. It is for one process on a node without SLURM, which computes on all that it sees:
#
#     CUDA_VISIBLE_DEVICES=0,2 python run.py
srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" python run.py
