"""What connected elements take beside their results."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak of the memory is read from /proc")

SCRIPT = """
import json
import sys
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)

import ferroket as fk
from ferroket.bench import hamiltonians


def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


found = {}
for name in ("heisenberg", "random_local"):
    operator = fk.accelerate(getattr(hamiltonians, name)())
    x = operator.hilbert.random_state(jax.random.key(0), 1024).astype("float64")
    for form, call in {
        "padded": lambda: jax.block_until_ready(operator.get_conn_padded(x)),
        "compact": lambda: operator._form.flattened(x)[:2],
    }.items():
        call()
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
        result = call()
        found[f"{name}, {form}"] = status("VmHWM") - before - sum(array.nbytes for array in result)
        del result
print(json.dumps(found))
"""


def test_peak_is_the_results_and_16_mib():
    finished = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    beside = json.loads(finished.stdout.splitlines()[-1])
    assert len(beside) == 4
    for name, size in beside.items():
        assert size <= 16 << 20, f"{name}: {size / 2**20:.1f} MiB beside the results"
