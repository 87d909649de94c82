"""The doctor's visit: facts first, then a trial, then the diagnosis. It ends where a run would hang or crash."""

import contextlib
import sys
import time
from dataclasses import asdict
from pathlib import Path

import psutil

from ferroket.distributed.doctor import present, trial
from ferroket.distributed.doctor.diagnosis import diagnose
from ferroket.distributed.doctor.examination import Examination, Severity, is_gloo
from ferroket.distributed.doctor.facts import Facts, Library, collect, find_library, launching_ancestors
from ferroket.distributed.doctor.neighbours import Neighbours, wait
from ferroket.distributed.doctor.trial import Outcome
from ferroket.usage import check_writable

# Seconds: for a launcher to forward what rank 0 has printed, before an exit code ends the job; for rank 0 of the same
# node to start, and to print; for rank 0 of another node to notice.
_FORWARDING = 0.2
_STARTING = 2.0
_PRINTING = 30.0
_FAR_AWAY = 5.0


def examine(*, as_json: bool = False, file: Path | None = None, own_trial: bool = True) -> int:
    """Examines what a run in this place would meet, and prints it once for the whole job.

    Args:
        as_json: prints JSON in place of tables.
        file: where to, None for stdout.
        own_trial: without a launcher, start a job of two ranks and see what comes of it.

    Returns:
        The exit code: 1 if a run would fail.

    Raises:
        UsageError: the file can't be written.
    """
    if file:
        check_writable(file, "FILE")
    facts = collect()
    if facts.rank > 0:
        return _assist(facts)
    if facts.is_orphan and (spokesman := _spokesman()):
        with contextlib.suppress(psutil.Error):
            spokesman.wait(_PRINTING)  # the first exit code may end the job
        return 1
    library, library_error = _find_library()
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(file.open("w")) if file else sys.stdout
        page = None if as_json else present.Page(out, terminal=out.isatty() and not facts.launcher)
        if page:  # now: a run may end in a way that takes the doctor along
            page.static(facts, library, library_error)
            out.flush()
        outcome: Outcome | None = None
        node = [facts]
        if facts.launcher:
            neighbours = stack.enter_context(Neighbours(facts.rank))
            neighbours.tell("facts", asdict(facts))
            outcome = trial.as_rank(facts, neighbours)
            node = [Facts(**other) for other in neighbours.received("facts").values()] or node
        elif own_trial and not facts.is_orphan and (is_gloo(facts) or (library and library.mpirun)):
            outcome = trial.own_job(facts)
        examination = Examination(
            facts=facts, neighbours=node, library=library, library_error=library_error, outcome=outcome
        )
        problems = diagnose(examination)
        if page:
            page.running(examination)
            page.problems(examination, problems)
        else:
            print(present.as_json(examination, problems), file=out)
        out.flush()
        if facts.started_by or facts.launcher:
            time.sleep(_FORWARDING)
    return int(any(problem.severity is Severity.ERROR for problem in problems))


def _assist(facts: Facts) -> int:
    """A rank other than 0 takes part in the trial, and leaves the talking, and the first exit, to rank 0."""
    with Neighbours(facts.rank) as neighbours:
        neighbours.tell("facts", asdict(facts))
        failures = trial.as_rank(facts, neighbours).failures
        if not failures:
            return 0
        if wait(lambda: 0 in neighbours.ranks("facts"), _STARTING):
            wait(lambda: 0 not in neighbours.ranks("facts"), _PRINTING)
        else:
            for failure in failures:
                if failure.rank == facts.rank:
                    print(f"ferroket doctor: {failure}", file=sys.stderr, flush=True)
            time.sleep(_FAR_AWAY)
    return 1


def _find_library() -> tuple[Library | None, str | None]:
    try:
        return find_library(), None
    except RuntimeError as error:
        return None, str(error)


def _spokesman() -> psutil.Process | None:
    """Who speaks for processes that a launcher started without telling them who is who: the first, None if it is this.

    Where a launcher starts ranks through a shell, it is the shell.
    """
    with contextlib.suppress(psutil.Error, IndexError, ValueError):  # the launcher has ended
        first = min(launching_ancestors()[0][0].children(), key=lambda child: child.pid)
        own = psutil.Process()
        if first not in (own, *own.parents()):
            return first
    return None
