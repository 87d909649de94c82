"""Many devices: no communication, results sharded as the samples are, the numbers of one device.

All of it runs in one fresh process with four devices; each function of `sharding_checks.py` is a test here.
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.mpi import path_to

CHECKS = Path(__file__).with_name("sharding_checks.py")
NAMES = [
    node.name
    for node in ast.parse(CHECKS.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")
]


@pytest.fixture(scope="module")
def outcomes():
    flags = "--xla_force_host_platform_device_count=4"
    process = subprocess.run(
        [sys.executable, CHECKS],
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path_to()},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    ended = dict(line.split(": ", 1) for line in process.stdout.splitlines() if line.startswith("check_"))
    return ended, process.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_four_devices(name, outcomes):
    ended, stderr = outcomes
    assert ended.get(name) == "passed", stderr[-8000:]
