"""``ferroket launch -n 8 SCRIPT ARGS``: starts a job on this node, shows what its ranks write, and ends it as a whole.

Over MPI the ranks are started by the launcher that belongs to the MPI library in use. Over gloo no MPI is needed, and
they are processes of this one. Either way each runs ``ferroket run SCRIPT``.
"""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from ferroket import _lib
from ferroket.distributed.coordinator import Coordinator
from ferroket.distributed.launching import launchers
from ferroket.distributed.launching.jobs import Job, JobProcesses, LocalJob, MpiJob, caught_signals, supervise
from ferroket.distributed.launching.launchers import Command
from ferroket.distributed.launching.output import Relay
from ferroket.distributed.library import search_prefixes
from ferroket.distributed.node import this_node
from ferroket.distributed.scripts import PYTHON, unreadable
from ferroket.usage import UsageError

Collectives = Literal["mpi", "gloo"]


def launch(
    script: str,
    arguments: Sequence[str],
    *,
    ranks: int,
    module: bool = False,
    accelerate: bool = True,
    collectives: Collectives = "mpi",
    label: bool = False,
    only: int | None = None,
    log_dir: Path | None = None,
    dry_run: bool = False,
) -> int:
    """Runs a script on a number of ranks of this node.

    SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on, and end the job within 5 s, as the death of any rank does. No
    process is left behind. The output is shown as the ranks write it, stdout and stderr apart; if the job fails, the
    last lines on stderr of ranks that aren't shown are shown too.

    Args:
        script: the script's file, or with ``module`` a module's name.
        arguments: the script's.
        ranks: the number of processes, at least 1.
        module: whether to run a module, as ``python -m`` does.
        accelerate: whether NetKet's own operators, samplers and drivers are to be accelerated.
        collectives: "mpi", or "gloo" for JAX's own over TCP, without MPI.
        label: whether each line begins with the rank that wrote it.
        only: the one rank whose output is shown; None shows all.
        log_dir: a folder for the files ``rank-R.log`` with the output of each rank.
        dry_run: whether to print the command, one for each rank where there is no mpirun, and start nothing.

    Returns:
        The exit code: 0, that of the rank that failed where the launcher tells it, or 128 + the number of the signal
        that ended the job.

    Raises:
        UsageError: no such rank or script, a folder that can't be written, no MPI library or no launcher of it.
    """
    if ranks < 1:
        raise UsageError(f"-n is {ranks}, but a job has at least one rank")
    if only is not None and not 0 <= only < ranks:
        raise UsageError(f"--rank is {only}, but the ranks of -n {ranks} are 0 to {ranks - 1}")
    problem = None if module else unreadable(script)
    if problem:
        raise UsageError(problem)
    options = [*(["-m"] if module else []), *([] if accelerate else ["--no-accelerate"])]
    # -P: nothing of Ferroket's own is imported from the current folder.
    run = [*PYTHON, "-m", "ferroket", "run", *([] if sys.flags.safe_path else ["--prepend-path"])]
    program = [*run, *options, script, *arguments]
    with ExitStack() as stack:
        commands = _over_mpi(ranks, program) if collectives == "mpi" else _over_gloo(ranks, program, stack)
        if dry_run:
            print("\n".join(map(str, commands)))
            return 0
        received = stack.enter_context(caught_signals())
        try:
            relay = stack.enter_context(Relay(ranks, label, only, log_dir))
        except OSError as error:
            raise UsageError(f"--log-dir {str(log_dir)!r}: {error.strerror} ({error.filename})") from error
        oom_kills = _lib.oom_kills()
        processes = JobProcesses()
        job: Job = (
            MpiJob(commands[0], ranks, processes, relay)
            if collectives == "mpi"
            else LocalJob(commands, processes, relay)
        )
        relay.start()
        ending = supervise(job, processes, relay, received)
    code = job.exit_code() if ending is None else 128 + ending
    if code and ending is None:
        relay.show_hidden()
        if code == 128 + signal.SIGKILL and not relay.rank_told:
            # It was killed before `fk.initialize()` had the ranks watched, or those who watch them were, too.
            print(f"ferroket launch: a rank was killed (SIGKILL), {_lib.who_killed(oom_kills)}", file=sys.stderr)
    if relay.error is not None and not isinstance(relay.error, BrokenPipeError):
        print(f"ferroket launch: the output can't be written, so the job was ended: {relay.error}", file=sys.stderr)
    return code


def _over_mpi(ranks: int, program: list[str]) -> list[Command]:
    try:
        library = _lib.find_mpi(search_prefixes())
        command = launchers.mpirun(library, ranks, program)
    except (RuntimeError, FileNotFoundError) as error:
        raise UsageError(f"{error}\nWithout any MPI: ferroket launch --collectives gloo") from error
    if os.environ.get("FERROKET_COLLECTIVES", "mpi") != "mpi":
        command.variables["FERROKET_COLLECTIVES"] = "mpi"
    return [command]


def _over_gloo(ranks: int, program: list[str], stack: ExitStack) -> list[Command]:
    """A command for each rank; the port of their coordinator is kept free until the stack is left."""
    try:
        coordinator = stack.enter_context(Coordinator([this_node()]))
    except RuntimeError as error:
        raise UsageError(str(error)) from error
    return [
        Command(
            program,
            {
                "FERROKET_COLLECTIVES": "gloo",
                "FERROKET_COORDINATOR": coordinator.address,
                "FERROKET_RANK": str(rank),
                "FERROKET_SIZE": str(ranks),
            },
        )
        for rank in range(ranks)
    ]
