"""Local energies on several ranks are those of one process."""

import json

import numpy as np
import pytest

from support.mpi import FULL, Finished, run_alone, run_ranks

pytestmark = pytest.mark.mpi

SCRIPT = """
import ferroket as fk
info = fk.initialize()
import json
import os
import jax
import netket as nk
import numpy as np

nk.config.update("netket_experimental", True)  # for gradients that aren't those of the covariance
graph = nk.graph.Chain(8)
hilbert = nk.hilbert.Spin(0.5, 8, total_sz=0)
heisenberg = fk.operator.Heisenberg(hilbert, graph)
found = {}
for name, model in {
    "RBM": nk.models.RBM(alpha=2, param_dtype=complex),
    "RBMModPhase": nk.models.RBMModPhase(),
    "Jastrow": nk.models.Jastrow(),
    "MLP": nk.models.MLP(hidden_dims=(5,), param_dtype=complex),
}.items():
    if name not in os.environ["MODELS"].split():
        continue
    sampler = nk.sampler.MetropolisExchange(hilbert, graph=graph, n_chains=16)
    state = nk.vqs.MCState(sampler, model, n_samples=64, seed=1, sampler_seed=2)
    assert (fk.explain(state, heisenberg).path == "any network") == (name == "MLP")
    energy, gradient = state.expect_and_grad(heisenberg)
    squared = state.expect(nk.operator.Squared(heisenberg))
    forward = state.expect_and_grad(heisenberg, use_covariance=False)[1] if name in ("RBM", "MLP") else gradient
    leaves = [np.abs(np.asarray(leaf)).sum() for leaf in jax.tree.leaves((gradient, forward))]
    found[name] = [float(np.real(number)) for number in (energy.mean, energy.variance, squared.mean, *leaves)]
if info.rank == 0:
    print("FOUND", json.dumps(found))
"""


NAMES = ["RBM", "RBMModPhase", "Jastrow", "MLP"] if FULL else ["RBM", "MLP"]

# Most of the time goes into compilation, for few samples.
ENVIRONMENT = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def found(job: Finished) -> dict[str, list[float]]:
    assert job.returncode == 0, job.stdout + job.stderr
    line = next(line for line in job.stdout.splitlines() if line.startswith("FOUND"))
    numbers: dict[str, list[float]] = json.loads(line.removeprefix("FOUND"))
    return numbers


@pytest.fixture(scope="module")
def alone() -> dict[str, list[float]]:
    return found(run_alone(SCRIPT, timeout=240, MODELS=" ".join(NAMES), **ENVIRONMENT))


@pytest.mark.parametrize(
    ("n", "names"), [(2, NAMES if FULL else ["MLP"]), (4, NAMES if FULL else ["RBM"])], ids=["2", "4"]
)
def test_local_energies(alone: dict[str, list[float]], n: int, names: list[str]) -> None:
    ranks = found(run_ranks(SCRIPT, n, timeout=240, MODELS=" ".join(names), **ENVIRONMENT))
    assert list(ranks) == names
    for name in names:
        np.testing.assert_allclose(ranks[name], alone[name], rtol=1e-9, err_msg=name)
