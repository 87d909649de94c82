"""Samples are the same to the bit for any number of threads, devices and ranks, and no rank waits for another."""

import json

import pytest

from support.mpi import FULL, Finished, run_alone, run_ranks

START = """
import ferroket as fk
info = fk.initialize()
import hashlib
import json
import os
import warnings
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from ferroket.sampler import chains

graph = nk.graph.Chain(8)
free, sector = nk.hilbert.Spin(0.5, 8), nk.hilbert.Spin(0.5, 8, total_sz=0)
heisenberg = fk.operator.Heisenberg(sector, graph)
samplers = {
    "local": fk.sampler.MetropolisLocal(free, n_chains=16),
    "exchange": fk.sampler.MetropolisExchange(sector, graph=graph, n_chains=16),
    "Hamiltonian": fk.sampler.MetropolisHamiltonian(sector, heisenberg, n_chains=16),
}
models = {
    "RBM": nk.models.RBM(alpha=2, param_dtype=complex),
    "Jastrow": nk.models.Jastrow(),
    "MLP": nk.models.MLP(hidden_dims=(5, 3), param_dtype=float),
    "lanes": nk.models.MLP(hidden_dims=(5, 3), hidden_activations=jnp.sin, param_dtype=float),
    "network": nk.models.MLP(hidden_dims=(5, 3), hidden_activations=jax.lax.erf, param_dtype=float),
}
found = {"devices": jax.device_count()}
for name in os.environ["RULES"].split():
    sampler = samplers[name]
    for kind, model in models.items():
        if (name, kind) in (("Hamiltonian", "Jastrow"), ("Hamiltonian", "lanes"), ("exchange", "lanes")):
            continue
        state = nk.vqs.MCState(sampler, model, n_samples=160, seed=1, sampler_seed=2)
        in_xla = kind == "network"
        around = " around the network" if in_xla else ""
        assert fk.sampler.explain(state).path == "chains in Rust" + around
        samples = np.asarray(nk.jax.sharding.gather(state.samples))
        assert samples.shape == (16, 10, 8)
        accepted = int(state.sampler_state.n_accepted)
        found[f"{name}, {kind}"] = [hashlib.sha256(samples.tobytes()).hexdigest(), accepted]
# Determinants, with a Jastrow factor or a network.
fermions = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(2, 2))
hops = fk.sampler.MetropolisFermionHop(fermions, graph=nk.graph.Chain(4), n_chains=16)
slater = nk.models.Slater2nd(fermions, param_dtype=complex)
for model in (fk.models.SlaterJastrow(fermions), fk.models.Product((slater, models["network"]))):
    state = nk.vqs.MCState(hops, model, n_samples=160, seed=1, sampler_seed=2)
    samples = np.asarray(nk.jax.sharding.gather(state.samples))
    accepted = int(state.sampler_state.n_accepted)
    found[f"hops, {type(model).__name__}"] = [hashlib.sha256(samples.tobytes()).hexdigest(), accepted]
# Exchanges of sites beside hops, within limits.
no_pairs = fk.hilbert.SiteOccupations(4, maximum=[1, 1, 1, 2])
limited = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(2, 2), constraint=no_pairs)
exchanges = fk.sampler.MetropolisSiteExchange(limited, graph=nk.graph.Chain(4), n_chains=16)
for model in (fk.models.SlaterJastrow(limited), models["network"]):
    state = nk.vqs.MCState(exchanges, model, n_samples=160, seed=1, sampler_seed=2)
    samples = np.asarray(nk.jax.sharding.gather(state.samples))
    accepted = int(state.sampler_state.n_accepted)
    found[f"exchanges, {type(model).__name__}"] = [hashlib.sha256(samples.tobytes()).hexdigest(), accepted]
# Chains that reject most moves search for how many proposals are fastest at once, together on all ranks.
state = nk.vqs.MCState(samplers["local"], models["network"], n_samples=160, seed=1, sampler_seed=2)
state.parameters = jax.tree.map(lambda leaf: 1.5 * leaf, state.parameters)
for _ in range(7):
    samples = np.asarray(nk.jax.sharding.gather(state.sample()))
assert 0 < state.sampler_state.acceptance < 0.5, state.sampler_state.acceptance
assert chains.search_of("local", state.sampler, state._model, state.chain_length)._before < np.inf
found["search, network"] = [hashlib.sha256(samples.tobytes()).hexdigest(), int(state.sampler_state.n_accepted)]
"""
END = """
if info.rank == 0:
    print("FOUND", json.dumps(found))
"""
COLLECTIVES = """
from ferroket.distributed.programs import is_marker
model = state._model
plan = chains.plan(sampler, model, state.variables)
numbers = np.arange(16, dtype=np.uint32)
arguments = (sampler.replace(rule=plan.moves), model, state.variables, state.sampler_state, numbers, 3, False, 1, True)
program = chains._any.lower(*arguments).compile().as_text()
assert "ferroket_chains_network" in program
names = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
lines = [line for line in program.splitlines() if not is_marker(line)]
found["collectives"] = [name for name in names if any(f" {name}(" in line for line in lines)]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    found["chains"] = fk.sampler.MetropolisLocal(free, n_chains=10).n_chains
found["warned"] = any("Using" in str(warning.message) for warning in caught)
"""

# Most of the time goes into compilation, for few samples.
ENVIRONMENT = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "RULES": "local exchange Hamiltonian"}
FEW_RULES = ENVIRONMENT if FULL else ENVIRONMENT | {"RULES": "exchange"}


def found(job: Finished) -> dict[str, object]:
    assert job.returncode == 0, job.stdout + job.stderr
    line = next(line for line in job.stdout.splitlines() if line.startswith("FOUND"))
    numbers: dict[str, object] = json.loads(line.removeprefix("FOUND"))
    return numbers


def in_one_process(script: str, before: str = "", **env: str) -> dict[str, object]:
    return found(run_alone(before + script + END, timeout=500, **ENVIRONMENT, **env))


@pytest.fixture(scope="module")
def alone() -> dict[str, object]:
    return in_one_process(START)


def samples(numbers: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in numbers.items() if "," in name}


@pytest.mark.thorough
def test_one_thread(alone: dict[str, object]) -> None:
    one = "import os\nos.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])\n"
    assert samples(in_one_process(START, one)) == samples(alone)


@pytest.mark.thorough
def test_four_devices(alone: dict[str, object]) -> None:
    numbers = in_one_process(START + COLLECTIVES, JAX_NUM_CPU_DEVICES="4")
    assert numbers["devices"] == 4
    assert numbers["collectives"] == []
    assert samples(numbers) == samples(alone)
    # As NetKet: chains that devices can't share are more, with a warning.
    assert (numbers["chains"], numbers["warned"]) == (12, True)


@pytest.mark.mpi
@pytest.mark.parametrize("n", [2, 4, 8] if FULL else [2, 8])
def test_ranks(alone: dict[str, object], n: int) -> None:
    numbers = found(run_ranks(START + COLLECTIVES + END, n, timeout=500, **FEW_RULES))
    assert numbers["devices"] == n
    assert numbers["collectives"] == []
    assert samples(numbers)
    assert samples(numbers).items() <= samples(alone).items()
