"""Runs an example in one of the three ways to start it."""

import re
import sys
from functools import cache
from pathlib import Path

from support.mpi import FULL, environment, mpirun, run_command, run_ranks

EXAMPLES = Path(__file__).parents[2] / "examples"
RANKS = [1, 2, 4, 8] if FULL else [1, 2]
# For those that compute for a while.
FEW_RANKS = [1, 2, 4] if FULL else [2]
TIMEOUT = 200


def lines(name: str, n: int, *arguments: str, **env: str) -> list[str]:
    """What an example prints: in one process, by ``ferroket launch`` on four ranks, by mpirun on other numbers."""
    script = EXAMPLES / f"{name}.py"
    if n == 1:
        job = run_command([sys.executable, script, *arguments], environment(**env), TIMEOUT)
    elif n == 4:
        mpirun()  # or skip
        launch: list[str | Path] = [sys.executable, "-m", "ferroket", "launch", "-n", "4", script, *arguments]
        job = run_command(launch, environment(**env), TIMEOUT)
    else:
        job = run_ranks(script, n, *arguments, timeout=TIMEOUT, **env)
    assert job.returncode == 0, job.stdout + job.stderr
    return job.stdout.splitlines()


@cache
def numbers(name: str, n: int, **env: str) -> list[float]:
    """The numbers in the last line that an example prints."""
    return [float(number) for number in re.findall(r"[-+]?\d+\.\d+(?:e[-+]\d+)?", lines(name, n, **env)[-1])]
