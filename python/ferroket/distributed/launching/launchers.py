"""The command that starts a job's ranks: each MPI's launcher, and the flags that it needs.

This is the only place that knows them. Ferroket binds the ranks to cores by itself, so a launcher that would do it
is told not to: Open MPI gives each of two ranks a single core, however many the node has.
"""

import os
import re
import shlex
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ferroket import _lib
from ferroket.distributed import affinity
from ferroket.distributed.library import find_mpirun

Binding = Literal["ferroket", "core", "none", "default"]


@dataclass(frozen=True)
class Command:
    """A command line, and the variables that it needs beside those of the environment."""

    arguments: list[str]
    variables: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """As a shell takes it."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return " ".join([*assignments, shlex.join(self.arguments)])


def mpirun(library: _lib.MpiLibrary, ranks: int, program: Sequence[str], *, binding: Binding = "ferroket") -> Command:
    """The command that runs a program on a number of ranks of this node.

    Args:
        library: the MPI library that the program will use.
        ranks: their number; more than cores are allowed.
        program: its command line.
        binding: who binds ranks to cores: "ferroket", where FERROKET_BIND allows it; the launcher, to one "core" each;
            "none"; or whoever does so by "default".

    Raises:
        FileNotFoundError: no launcher belongs to the library.
    """
    if binding == "ferroket":
        binding = "default" if os.environ.get("FERROKET_BIND") == "none" else "none"
    flags: list[str] = []
    variables: dict[str, str] = {}
    if library.family == "Open MPI":
        if ranks > _physical_cores():
            flags.append("--oversubscribe")
        if binding != "default":
            flags += ["--bind-to", binding]
        if os.geteuid() == 0:
            variables |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    elif "Intel" in library.version:
        if binding != "default":
            variables["I_MPI_PIN"] = "0" if binding == "none" else "1"
    elif binding == "core":  # hydra binds nothing unless it is told to
        flags += ["-bind-to", "core"]
    return Command([str(find_mpirun(library)), *flags, "-n", str(ranks), *program], variables)


def exit_code(code: int, said: str, ranks: int) -> int:
    """What the rank that failed ended with, as a shell has it: 128 + the number of the signal that killed it.

    Open MPI's launcher says so itself. MPICH's ends with the bare number of the signal, and Intel's with 255.

    Args:
        code: of the launcher, negative if a signal killed it.
        said: what it wrote to stdout.
        ranks: the number of ranks.
    """
    if code < 0:
        return 128 - code
    killed = [int(number) for number in re.findall(r"^YOUR APPLICATION .* EXIT STRING: .*\(signal (\d+)\)", said, re.M)]
    if code in killed:
        return 128 + code
    killed = [int(number) for number in re.findall(r"^= +KILLED BY SIGNAL: (\d+)", said, re.M)]
    others = [number for number in killed if number != signal.SIGKILL]
    if others:
        return 128 + others[0]
    # Intel's launcher kills the other ranks with SIGKILL: if that was the end of all, it was that of the first too.
    return 128 + signal.SIGKILL if len(killed) == ranks else code


def _physical_cores() -> int:
    """What Open MPI counts as the slots of a node."""
    return len({affinity.physical_core(cpu) for cpu in affinity.allowed()})
