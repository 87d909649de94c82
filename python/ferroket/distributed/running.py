"""``ferroket run SCRIPT ARGS``: an unchanged script as one rank of a job.

The script sees what plain python would show it, and ends as under plain python; only that JAX runs already, over MPI
and on the rank's own cores.
"""

import atexit
import builtins
import functools
import inspect
import os
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from pkgutil import get_importer
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from ferroket import _lib, distributed
from ferroket._compat.jax import replace_distributed_initialize
from ferroket.distributed.failure import abort_job
from ferroket.distributed.info import RuntimeInfo
from ferroket.distributed.launching import pipes
from ferroket.distributed.scripts import HASH_SEED, unreadable

# What python exits with if it can't open its script.
_NO_SCRIPT = 2


def run(script: str, arguments: Sequence[str], *, module: bool = False, prepends_path: bool = False) -> NoReturn:
    """Calls ``fk.initialize()``, runs a script as python would, and ends the process as python would.

    Started by a launcher, the rank takes the others with it if it fails: an uncaught exception, or an exit code other
    than 0, aborts the job.

    Args:
        script: the script's file, a folder or archive with a ``__main__.py``, or with ``module`` a module's name.
        arguments: the script's, ``sys.argv[1:]``.
        module: whether to run a module, as ``python -m`` does.
        prepends_path: whether python prepends to ``sys.path`` for the script, though this process runs with ``-P``.

    Raises:
        SystemExit: always, with python's exit code.
    """
    launcher = _lib.detect_launcher()
    if launcher:
        _share_hash_seed()
        pipes.redirect(launcher.rank)
        _write_whole_lines()
    problem = None if module else unreadable(script)
    if problem:
        print(f"ferroket: {problem}", file=sys.stderr)
        sys.exit(_NO_SCRIPT)
    interrupts: list[KeyboardInterrupt] = []
    atexit.register(_end_by_signal, interrupts)  # before all others are registered, so it is called after them
    sys.excepthook = sys.__excepthook__  # without the command line's own
    code = 0
    try:
        _prepare(script, arguments, module, prepends_path)
        _accept_what_runs(distributed.initialize())
        _execute(script, module)
    except SystemExit as end:
        if launcher and _is_failure(end.code):
            _abort(end.code)
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            interrupts.append(error)
        error.__traceback__ = _without_our_frames(error)
        vars(sys)["excepthook"](type(error), error, error.__traceback__)  # the script's own, in ours
        code = 1
    sys.exit(code)


def _share_hash_seed() -> None:
    """Starts python again with the hash seed of all ranks, if each has its own: then sets have one order on all."""
    if HASH_SEED not in os.environ and sys.flags.hash_randomization:
        os.environ[HASH_SEED] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _write_whole_lines() -> None:
    """Writes each line at once, and in one piece: launchers merge the pieces of all ranks.

    Python would keep the lines for a while, or under PYTHONUNBUFFERED break them into pieces.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]  # still python's own


def _prepare(script: str, arguments: Sequence[str], module: bool, prepends_path: bool) -> None:
    """``sys.argv`` and ``sys.path`` as python sets them before it runs a script."""
    sys.argv = ["-m" if module else script, *arguments]
    if sys.flags.safe_path:  # python -P prepends nothing
        if not prepends_path:
            return
        sys.path.insert(0, "")
    if module:
        sys.path[0] = str(Path.cwd())
    elif _is_importable(script):
        sys.path[0] = str(Path(script).absolute())
    else:
        sys.path[0] = str(Path(script).resolve().parent)


def _is_importable(script: str) -> bool:
    """Whether a script is a folder or an archive, whose ``__main__`` is to be imported from it."""
    return get_importer(script) is not None


def _execute(script: str, module: bool) -> None:
    """Runs the script in a ``__main__`` of its own, which stays: threads and exit handlers may need it."""
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    if module or _is_importable(script):
        # What python itself calls for -m, and for a folder; run_module and run_path take `__main__` away afterwards.
        runpy._run_module_as_main(script if module else "__main__", alter_argv=module)  # type: ignore[attr-defined]
        return
    path = str(Path(script).absolute())
    vars(main).update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), main.__dict__)


def _accept_what_runs(info: RuntimeInfo) -> None:
    """Turns the calls that would start what runs already into checks of what the script asks for."""
    if info.launcher is None:  # JAX hasn't been started
        distributed.initialize = _checked("fk.initialize", distributed.initialize, {}, "", info)
        return
    distributed.initialize = _checked(
        "fk.initialize",
        distributed.initialize,
        {"collectives": info.collectives},
        f"its collectives are {info.collectives}, and FERROKET_COLLECTIVES chooses them",
        info,
    )
    replace_distributed_initialize(
        lambda initialize: _checked(
            "jax.distributed.initialize",
            initialize,
            {"num_processes": info.size, "process_id": info.rank},
            f"{info.launcher} started {info.size} processes, and this is process {info.rank}",
            None,
        )
    )


def _checked(
    name: str, start: Callable[..., Any], running: dict[str, Any], what_runs: str, result: Any
) -> Callable[..., Any]:
    """A function with the parameters of ``start`` that only returns ``result``.

    Args:
        name: the function's, as scripts call it.
        start: the function that would start what runs.
        running: arguments that a script may give, with the only values that fit.
        what_runs: what to say of others.
        result: what it returns.
    """
    signature = inspect.signature(start)

    @functools.wraps(start)
    def check(*positional: Any, **keywords: Any) -> Any:
        given = signature.bind(*positional, **keywords).arguments
        for argument, value in running.items():
            if given.get(argument) not in (None, value):
                raise ValueError(
                    f"{name}({argument}={given[argument]!r}) contradicts the job that `ferroket run` has started for "
                    f"this script: {what_runs}. Leave {argument} out, or start the job to match it"
                )
        return result

    return check


def _is_failure(code: object) -> bool:
    return code is not None and (not isinstance(code, int) or code & 0xFF != 0)


def _abort(code: object) -> NoReturn:
    """Aborts the job after a ``SystemExit`` with this code, which the interpreter would print if it isn't a number."""
    if isinstance(code, int):
        abort_job(code & 0xFF, f"sys.exit({code})")
    print(code, file=sys.stderr)
    abort_job(1, f"sys.exit({code!r})")


def _without_our_frames(error: BaseException) -> TracebackType | None:
    """An error's traceback from the script on: empty for a syntax error in it, whole for an error of this module."""
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    return inner if inner or isinstance(error, SyntaxError) else error.__traceback__


def _end_by_signal(interrupts: list[KeyboardInterrupt]) -> None:
    """Ends as python does after an uncaught KeyboardInterrupt: the shell sees the signal, and leaves its loop."""
    if interrupts:
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
