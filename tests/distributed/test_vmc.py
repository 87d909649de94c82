"""A VMC over ranks is the VMC of one process: the same energies for any number of ranks, MPI or gloo."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from support.mpi import FAST_COMPILATION, FULL, PREFIXES, Finished, run_alone, run_ranks

pytestmark = pytest.mark.mpi

SCRIPT = """
import ferroket as fk
info = fk.initialize()
import json
import netket as nk
import numpy as np

hilbert = nk.hilbert.Spin(s=1 / 2, N=10)
ising = fk.operator.Ising(hilbert, nk.graph.Chain(10), h=1.0, J=-1.0)
state = nk.vqs.MCState(
    nk.sampler.MetropolisLocal(hilbert, n_chains=16), nk.models.RBM(alpha=1, param_dtype=float),
    n_samples=256, seed=1, sampler_seed=2,
)
driver = fk.driver.VMC_SR(ising, nk.optimizer.Sgd(0.05), variational_state=state, diag_shift=1e-3)
log = nk.logging.RuntimeLog()
driver.run(20, out=log, show_progress=False)
if info.rank == 0:
    print("ENERGIES", json.dumps(np.real(log.data["Energy"]["Mean"]).tolist()))
"""

# Seconds: NetKet compiles for half a minute, on a busy machine for longer.
LONG = 240


def energies(job: Finished) -> np.ndarray:
    assert job.returncode == 0, job.stdout + job.stderr
    line = next(line for line in job.stdout.splitlines() if line.startswith("ENERGIES"))
    return np.array(json.loads(line.removeprefix("ENERGIES")))


@pytest.fixture(scope="module")
def alone() -> np.ndarray:
    return energies(run_alone(SCRIPT, timeout=LONG, XLA_FLAGS=FAST_COMPILATION))


def test_the_energy_falls(alone: np.ndarray) -> None:
    exact = -2 / np.sin(np.pi / 20)
    assert alone.shape == (20,)
    assert exact - 0.2 < alone[-1] < alone[0] - 1


@pytest.fixture(scope="module")
def two_ranks() -> np.ndarray:
    return energies(run_ranks(SCRIPT, 2, timeout=LONG, XLA_FLAGS=FAST_COMPILATION))


@pytest.mark.quick
def test_two_ranks_agree_with_one_process(alone: np.ndarray, two_ranks: np.ndarray) -> None:
    np.testing.assert_allclose(two_ranks, alone, rtol=0, atol=1e-8)


def test_four_ranks_agree_with_one_process(alone: np.ndarray) -> None:
    np.testing.assert_allclose(
        energies(run_ranks(SCRIPT, 4, timeout=LONG, XLA_FLAGS=FAST_COMPILATION)), alone, rtol=0, atol=1e-8
    )


@pytest.mark.skipif(not FULL, reason="minutes, where ranks have no cores of their own: FERROKET_TEST_FULL=1")
@pytest.mark.timeout(1500)
def test_thirty_two_ranks_agree_with_one_process(tmp_path: Path) -> None:
    """Each rank has a chain; compiled programs are kept, as users have it: one rank compiles each."""
    script = SCRIPT.replace("n_chains=16", "n_chains=32")
    ours = energies(
        run_ranks(script, 32, timeout=1200, XLA_FLAGS=FAST_COMPILATION, FERROKET_CACHE=str(tmp_path / "cache"))
    )
    expected = energies(run_alone(script, timeout=LONG, XLA_FLAGS=FAST_COMPILATION))
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-8)


def test_gloo_agrees_with_mpi(two_ranks: np.ndarray) -> None:
    gloo = energies(run_ranks(SCRIPT, 2, FERROKET_COLLECTIVES="gloo", timeout=LONG, XLA_FLAGS=FAST_COMPILATION))
    np.testing.assert_allclose(gloo, two_ranks, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mpi", [mpi for mpi in PREFIXES if mpi != "mpich"])
def test_every_mpi_agrees(alone: np.ndarray, mpi: str) -> None:
    np.testing.assert_allclose(
        energies(run_ranks(SCRIPT, 2, mpi=mpi, timeout=LONG, XLA_FLAGS=FAST_COMPILATION)), alone, rtol=0, atol=1e-8
    )


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_kernels_run_in_each_rank() -> None:
    """The operator's samples stay sharded: each rank sees its own half."""
    script = """
import ferroket as fk
info = fk.initialize()
import jax, netket as nk, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
hilbert = nk.hilbert.Spin(s=1 / 2, N=6)
ising = fk.operator.Ising(hilbert, nk.graph.Chain(6), h=0.5)
every = np.asarray(hilbert.all_states())
mesh = jax.make_mesh((info.size,), ("S",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.make_array_from_callback(every.shape, NamedSharding(mesh, P("S")), lambda i: every[i])
xp, mels = jax.jit(lambda op, x: op.get_conn_padded(x))(ising, x)
assert xp.sharding.spec[0] == "S" and len(xp.addressable_shards) == 1
expected = nk.operator.IsingJax(hilbert, nk.graph.Chain(6), h=0.5).get_conn_padded(every)
for got, want in zip((xp, mels), expected):
    shard = got.addressable_shards[0]
    np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(want)[shard.index])
"""
    run_ranks(script, 2, XLA_FLAGS=FAST_COMPILATION).ok()
