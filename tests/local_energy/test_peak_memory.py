"""What local energies take beside their results, however many connected configurations there are."""

import pytest

from support.peak_memory import linux_only, peaks

pytestmark = linux_only

SCRIPT = """
import netket as nk

import ferroket as fk
from ferroket.bench import hamiltonians

operator = fk.accelerate(hamiltonians.heisenberg())
x = operator.hilbert.random_state(jax.random.key(0), 65536)
sampler = nk.sampler.MetropolisLocal(operator.hilbert)
network = nk.models.MLP(hidden_dims=(8,), hidden_activations=jax.nn.relu, param_dtype="float32")
for model in (network, nk.models.RBM(alpha=1)):
    for chunk_size in (None, 4096, operator.max_conn_size // 2):
        state = nk.vqs.MCState(sampler, model, n_samples=16, chunk_size=chunk_size)
        kernel = nk.vqs.get_local_kernel(state, operator, *([] if chunk_size is None else [chunk_size]))
        options = {} if chunk_size is None else {"chunk_size": chunk_size}
        call = jax.jit(lambda variables, x: kernel(state._apply_fun, variables, x, operator, **options))
        compiled = call.lower(state.variables, x).compile()
        path = fk.explain(state, operator).path
        found[f"{path}, chunks of {chunk_size}"] = peak(lambda: compiled(state.variables, x))
"""


@pytest.mark.thorough
def test_peak_is_that_of_a_chunk():
    """Those samples have 6.5 million connected configurations, of 100 bytes each at least."""
    beside = peaks(SCRIPT, timeout=280)
    assert len(beside) == 6
    for name, size in beside.items():
        print(f"{name}: {size / 2**20:.1f} MiB")
        assert size < 400 << 20, f"{name}: {size / 2**20:.1f} MiB beside the results"
