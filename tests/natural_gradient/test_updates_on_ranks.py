"""Updates on several ranks are those of one process."""

import json

import numpy as np
import pytest

from support.mpi import FAST_COMPILATION, Finished, run_alone, run_ranks

pytestmark = pytest.mark.mpi

SCRIPT = """
import ferroket as fk
info = fk.initialize()
import json
import os
import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket._compat.netket import STEP_METHOD

class Convolutions(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(3, (3,), padding="CIRCULAR", param_dtype=complex)(x[..., None])
        return nn.Dense(2, param_dtype=complex)(nk.nn.log_cosh(x)).sum(axis=(-1, -2))

hilbert = nk.hilbert.Spin(0.5, 6)
ising = fk.operator.Ising(hilbert, nk.graph.Chain(6), h=1.0)
found = {}
for name, model in {
    "holomorphic": nk.models.RBM(alpha=2, param_dtype=complex),
    "not holomorphic": nk.models.RBMModPhase(alpha=1),
    "convolutions": Convolutions(),
    "Jastrow": nk.models.Jastrow(),
}.items():
    for use_ntk in (True, False) if name in os.environ["MODELS"].split(",") else ():
        sampler = nk.sampler.MetropolisLocal(hilbert, n_chains=16)
        state = nk.vqs.MCState(sampler, model, n_samples=64, seed=1, sampler_seed=2)
        optimizer = nk.optimizer.Sgd(0.05)
        options = {"diag_shift": 0.1, "use_ntk": use_ntk, "momentum": 0.8, "mode": "complex", "trust_region": 0.01}
        if not use_ntk:
            options |= {"machine_pow": 1.5, "diag_scale": 0.1}
        driver = fk.driver.VMC_SR(ising, optimizer, variational_state=state, **options)
        for _ in range(2):
            getattr(driver, STEP_METHOD)()
        numbers = [(leaf.real.sum(), abs(leaf).max()) for leaf in jax.tree.leaves(driver._dp)]
        found[f"{name}, {use_ntk}"] = np.ravel(numbers).tolist()
if info.rank == 0:
    print("FOUND", json.dumps(found))
"""


def found(job: Finished) -> dict[str, list[float]]:
    assert job.returncode == 0, job.stdout + job.stderr
    line = next(line for line in job.stdout.splitlines() if line.startswith("FOUND"))
    numbers: dict[str, list[float]] = json.loads(line.removeprefix("FOUND"))
    return numbers


MODELS = ["holomorphic", "not holomorphic", "convolutions", "Jastrow"]


@pytest.mark.parametrize(
    ("n", "models", "memory"),
    [(2, MODELS[:1], "1GB"), (4, MODELS[1:], "1GB"), (2, MODELS[1:2], "6kB")],
    ids=["2", "4", "2, in chunks"],
)
def test_updates(n: int, models: list[str], memory: str) -> None:
    """In chunks: of the samples, on the ranks, whose log-derivatives take more than there is."""
    environment = {"XLA_FLAGS": FAST_COMPILATION, "MODELS": ",".join(models)}
    alone = found(run_alone(SCRIPT, timeout=500, **environment))
    ranks = found(run_ranks(SCRIPT, n, timeout=500, **environment, FERROKET_MEMORY=memory))
    assert list(ranks) == list(alone)
    assert len(alone) == 2 * len(models)
    for name, numbers in alone.items():
        np.testing.assert_allclose(ranks[name], numbers, rtol=1e-11, atol=1e-12, err_msg=name)
