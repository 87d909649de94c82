"""What products with the quantum geometric tensor take beside their results: rows of a chunk, not of all samples."""

from memory import linux_only, peaks

pytestmark = linux_only

SCRIPT = """
import netket as nk

import ferroket as fk

hilbert = nk.hilbert.Spin(0.5, 20)
model = nk.models.ARNNDense(hilbert=hilbert, layers=2, features=12)
samples = hilbert.random_state(jax.random.key(1), 4096)
fk.enable()
state = nk.vqs.MCState(nk.sampler.ARDirectSampler(hilbert), model, n_samples=len(samples), seed=1, chunk_size=32)
state._samples = samples[None]


def product():
    return nk.optimizer.qgt.QGTOnTheFly(state, diag_shift=0.01) @ state.parameters


product()  # compiles
found["product"] = peak(product)
found["Jacobian"] = len(samples) * 8 * nk.jax.tree_size(state.parameters)
"""


def test_peak_is_that_of_a_chunk() -> None:
    """Masked kernels are no factors; their rows for all samples are a Jacobian of 460 MiB."""
    found = peaks(SCRIPT)
    print({name: f"{size / 2**20:.0f} MiB" for name, size in found.items()})
    assert found["Jacobian"] > 400 << 20
    assert found["product"] < 200 << 20
