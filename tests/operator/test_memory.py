"""What connected elements take beside their results."""

import pytest

from support.peak_memory import linux_only, peaks

pytestmark = linux_only

SCRIPT = """
import ferroket as fk
from ferroket.bench import hamiltonians

for name in ("heisenberg", "random_local"):
    operator = fk.accelerate(getattr(hamiltonians, name)())
    x = operator.hilbert.random_state(jax.random.key(0), 1024).astype("float64")
    for form, call in {
        "padded": lambda: operator.get_conn_padded(x),
        "compact": lambda: operator._form.flattened(x)[:2],
    }.items():
        jax.block_until_ready(call())
        found[f"{name}, {form}"] = peak(call)
"""


@pytest.mark.thorough
def test_peak_is_the_results_and_16_mib():
    beside = peaks(SCRIPT)
    assert len(beside) == 4
    for name, size in beside.items():
        assert size <= 16 << 20, f"{name}: {size / 2**20:.1f} MiB beside the results"
