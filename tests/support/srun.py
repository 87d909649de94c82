"""Runs scripts under a stand-in for SLURM's ``srun``."""

import sys
from collections.abc import Sequence
from pathlib import Path

from support.hosts import Host
from support.mpi import Finished, environment, mpirun, run_command

STAND_IN = Path(__file__).with_name("srun_stand_in.py")


def run_srun(
    script: str,
    n: int,
    *options: str,
    mpi: str = "none",
    hosts: Sequence[Host] = (),
    timeout: float = 90,
    **env: str,
) -> Finished:
    """Runs a script on n tasks of one node, or of these hosts."""
    on = [f"--on={host.name}={host.enter}" for host in hosts]
    command = [sys.executable, str(STAND_IN), f"--mpi={mpi}", "-n", str(n), *on, *options, sys.executable, "-c", script]
    if mpi != "none":
        mpirun()  # or skip
    return run_command(command, environment(**env), timeout)
