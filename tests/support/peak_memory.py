"""The peak of the resident memory of calls, in a process of their own."""

import json
import subprocess
import sys

import pytest

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is read from /proc")

START = """
import ctypes
import json
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def peak(call):
    '''Bytes beside the results of a call of something compiled.'''
    ctypes.CDLL(None).malloc_trim(0)  # what earlier calls have left is no room for this one
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    result = jax.block_until_ready(call())
    return status("VmHWM") - before - sum(array.nbytes for array in jax.tree.leaves(result))


found = {}
"""
END = """
print(json.dumps(found))
"""


def peaks(script: str, timeout: float = 120) -> dict[str, int]:
    """Runs a script that sets items of ``found`` to what ``peak`` gives, in bytes; returns them."""
    command = [sys.executable, "-c", START + script + END]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert finished.returncode == 0, finished.stderr
    found: dict[str, int] = json.loads(finished.stdout.splitlines()[-1])
    return found
