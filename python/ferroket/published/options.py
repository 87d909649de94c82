"""The options of the scripts of published results, which are read before anything large is imported."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path


def read(
    names: Sequence[str], arguments: Sequence[str] | None = None, *, program: str | None = None
) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Reads the options of a script.

    Args:
        names: The results that the script finds. The first argument may choose one; by default it is the first.
        arguments: Those of the command line; by default the process's.
        program: What usage messages call it; by default the script's file.

    Returns:
        The parser, for further errors, and the options: ``name``, ``short``, ``folder`` and ``minutes``.

    Raises:
        SystemExit: An option can't be used; then a usage message is printed, and the exit code is 2.
    """
    parser = argparse.ArgumentParser(program, description="Reproduces a published result.")
    parser.add_argument("name", nargs="?", choices=names, default=names[0], help="which one")
    parser.add_argument("--short", action="store_true", help="a short run with a looser bound")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the checkpoint and the log are kept")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after these, and go on later")
    return parser, parser.parse_args(arguments)
