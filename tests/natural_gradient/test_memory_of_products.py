"""What updates and the quantum geometric tensor take beside their results: rows of some samples, and no kernel."""

from support.peak_memory import linux_only, peaks

pytestmark = linux_only

MASKED = """
import jax.numpy as jnp
import netket as nk

import ferroket as fk
from ferroket.natural_gradient import update_by_ntk

hilbert = nk.hilbert.Spin(0.5, 32)
model = nk.models.ARNNDense(hilbert=hilbert, layers=3, features=16)
samples = hilbert.random_state(jax.random.key(1), 1024)
state = model.init(jax.random.key(2), samples[:1])
parameters = state.pop("params")
energies = jax.random.normal(jax.random.key(3), (len(samples),))
settings = dict(diag_shift=0.01, solver_fn=fk.optimizer.solver.cholesky, mode="real")


def update():
    return update_by_ntk(model.apply, energies, parameters, state, samples, **settings)[0]


update()  # compiles
found["update"] = peak(update)
found["Jacobian"] = len(samples) * 8 * nk.jax.tree_size(parameters)
"""

PRODUCT = """
import os

import netket as nk

import ferroket as fk

os.environ["FERROKET_MEMORY"] = "64MiB"
hilbert = nk.hilbert.Spin(0.5, 60)
model = nk.models.RBM(alpha=8, param_dtype=float)
samples = hilbert.random_state(jax.random.key(1), 1 << 16)
state = nk.vqs.MCState(nk.sampler.MetropolisLocal(hilbert), model, n_samples=len(samples), seed=1, chunk_size=1024)
state._samples = samples[None]


def product():
    return fk.optimizer.qgt.quantum_geometric_tensor(state, diag_shift=0.01) @ state.parameters


product()  # compiles
found["product"] = peak(product)
found["factors"] = len(samples) * 8 * (60 + 1 + 480 + 60)
"""

MATRIX = """
import jax
import netket as nk

import ferroket as fk

hilbert = nk.hilbert.Spin(0.5, 20)
model = nk.models.MLP(hidden_dims=(40,), param_dtype=float)
samples = hilbert.random_state(jax.random.key(1), 1 << 16)
state = nk.vqs.MCState(nk.sampler.MetropolisLocal(hilbert), model, n_samples=len(samples), seed=1)
state._samples = samples[None]


def matrix():
    return fk.optimizer.qgt.quantum_geometric_tensor(state).to_dense()


matrix()  # compiles
found["matrix"] = peak(matrix)
found["Jacobian"] = len(samples) * 8 * nk.jax.tree_size(state.parameters)
"""


KERNEL = """
import jax.numpy as jnp
import netket as nk

import ferroket as fk
from ferroket.natural_gradient import update_by_ntk

hilbert = nk.hilbert.Spin(0.5, 60)
model = nk.models.RBM(alpha=2, param_dtype=float)
samples = hilbert.random_state(jax.random.key(1), 8192)
parameters = model.init(jax.random.key(2), samples[:1])["params"]
energies = jax.random.normal(jax.random.key(3), (len(samples),))
settings = dict(diag_shift=0.01, solver_fn=fk.optimizer.solver.cholesky, mode="real")


def update():
    return update_by_ntk(model.apply, energies, parameters, {}, samples, **settings)[0]


update()  # compiles
found["update"] = peak(update)
found["kernel"] = 8 * len(samples) ** 2
"""


def test_an_update_writes_no_kernel() -> None:
    """Half of it, and copies of what is factored; formed, it would be there beside its half."""
    found = peaks(KERNEL)
    print({name: f"{size / 2**20:.0f} MiB" for name, size in found.items()})
    assert 0.4 * found["kernel"] < found["update"] < 1.2 * found["kernel"]


def test_masked_kernels_have_factors() -> None:
    """NetKet's update on the fly takes 350 MiB here, and sometimes several GiB."""
    found = peaks(MASKED)
    print({name: f"{size / 2**20:.0f} MiB" for name, size in found.items()})
    assert found["Jacobian"] > 2400 << 20
    assert found["update"] < 200 << 20


def test_peak_is_that_of_a_chunk() -> None:
    """Where FERROKET_MEMORY is less than all factors take."""
    found = peaks(PRODUCT)
    print({name: f"{size / 2**20:.0f} MiB" for name, size in found.items()})
    assert found["factors"] > 290 << 20
    assert found["product"] < 100 << 20


def test_the_matrix_needs_no_jacobian() -> None:
    """Of 450 MiB: the factors of a dense layer take 40 MiB, and rows are formed in parts."""
    found = peaks(MATRIX)
    print({name: f"{size / 2**20:.0f} MiB" for name, size in found.items()})
    assert found["Jacobian"] > 400 << 20
    assert found["matrix"] < 250 << 20
