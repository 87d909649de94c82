"""Finds vector instructions that compiled code calls as functions, since they weren't inlined.

Code that isn't compiled for the processor's vectors can't contain their instructions: it calls a function for each, and
its numbers go through memory.
"""

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

LONGEST = 8
"""Functions of more instructions than so many do something of their own."""

_ENDS = ("ret", "jmp", "int3", "ud2", "nop", "xchg %ax,%ax", "data16", "cs")


def can_disassemble() -> bool:
    """Whether there is objdump, of the binutils."""
    return shutil.which("objdump") is not None


def disassembled(library: Path) -> list[str]:
    """The instructions of a library, one a line."""
    command = ["objdump", "--disassemble", "--no-show-raw-insn", str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def outlined(lines: Iterable[str]) -> Counter[str]:
    """The functions of a few instructions on vectors of 256 or 512 bits: how often they are called, by instructions."""
    calls: Counter[str] = Counter()
    functions: dict[str, str] = {}
    start, body, has_vectors = "", list[str](), False
    for line in lines:
        address, is_instruction, instruction = line.partition(":\t")
        if not is_instruction:
            continue
        name, *operands = instruction.split(maxsplit=1)
        if name.startswith("call") and operands:
            calls[operands[0].split()[0]] += 1
        if not body:
            start = address.strip()
        body.append(name)
        has_vectors |= "%ymm" in instruction or "%zmm" in instruction
        if instruction.startswith(_ENDS):
            if name.startswith("ret") and has_vectors and len(body) <= LONGEST:
                functions[start] = " ".join(body)
            body, has_vectors = [], False
    found: Counter[str] = Counter()
    for start, instructions in functions.items():
        found[instructions] += calls[start]
    return +found
