"""A stand-in for SLURM's ``srun``: starts tasks with the variables that it sets, with PMI or without.

    python srun_stand_in.py --mpi=none -n 4 COMMAND ARGS
    python srun_stand_in.py --mpi=pmi2 -n 4 COMMAND ARGS

The variables are those of a step of SLURM 22.05. ``--mpi=pmi2`` takes its PMI from MPICH's mpirun, and hides what only
mpirun sets. ``--on NAME=PROGRAM``, once for each node, starts that node's tasks with PROGRAM in front of the command.
As with ``srun --kill-on-bad-exit`` one task that fails ends the others. It is run by its path, and stands alone.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# What mpirun tells its ranks, and srun doesn't.
_OF_MPIRUN = ("MPI_LOCALNRANKS", "MPI_LOCALRANKID", "HYDI_CONTROL_FD", "PMI_HOSTNAME")


def _variables(rank: int, size: int, nodes: Sequence[str]) -> dict[str, str]:
    """What the task of this rank is told; ranks are spread over the nodes in blocks."""
    tasks = [len(range(size)[node :: len(nodes)]) for node in range(len(nodes))]
    node = next(node for node in range(len(nodes)) if rank < sum(tasks[: node + 1]))
    return {
        "SLURM_JOB_ID": str(os.getppid()),
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank - sum(tasks[:node])),
        "SLURM_NODEID": str(node),
        "SLURM_NTASKS": str(size),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_NUM_NODES": str(len(nodes)),
        "SLURM_STEP_NODELIST": ",".join(nodes),
        "SLURM_STEP_TASKS_PER_NODE": ",".join(map(str, tasks)),
        "SLURM_DISTRIBUTION": "block",
    }


def _main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mpi", choices=["none", "pmi2"], required=True)
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("--on", action="append", default=[], type=lambda text: text.split("=", 1))
    parser.add_argument("--become", action="store_true", help="be a task whose rank PMI has said")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    nodes = dict(options.on) or {"node1": None}
    if options.become:
        told = {name: value for name, value in os.environ.items() if name not in _OF_MPIRUN}
        told |= _variables(int(os.environ["PMI_RANK"]), options.n, list(nodes))
        os.execvpe(options.command[0], options.command, told)
    if options.mpi == "pmi2":
        again = [sys.executable, __file__, "--mpi=pmi2", "-n", str(options.n), "--become", *options.command]
        os.execv(Path(sys.prefix) / "bin" / "mpirun", ["mpirun", "-n", str(options.n), *again])
    tasks = []
    for rank in range(options.n):
        told = _variables(rank, options.n, list(nodes))
        enter = list(nodes.values())[int(told["SLURM_NODEID"])]
        command = [enter, *options.command] if enter else options.command
        tasks.append(subprocess.Popen(command, env=os.environ | told))
    return _wait(tasks)


def _wait(tasks: list[subprocess.Popen[bytes]]) -> int:
    """Waits for all tasks; ends the others if one fails. Returns the first failure's code."""
    while True:
        codes = [task.poll() for task in tasks]
        failed = next((code for code in codes if code), 0)
        if failed:
            time.sleep(1)
            for task in tasks:
                task.send_signal(signal.SIGKILL)
        if None not in codes:
            return failed & 0xFF
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(_main())
