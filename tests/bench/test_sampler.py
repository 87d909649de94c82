"""The benchmark of sampling: what it compares, and what it writes."""

from functools import partial

import jax
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.bench import hamiltonians, sampler, states
from ferroket.distributed import affinity
from ferroket.sampler import chains
from support.variational_states import random_like


@pytest.fixture
def small(monkeypatch):
    """One small case."""
    chain = partial(hamiltonians.ising, 8)
    case = states.Case(chain, states._local, lambda: nk.models.RBM(alpha=1), 2.0, 3.0)
    monkeypatch.setattr(sampler, "CASES", {"chain": case, "Heisenberg 10×10, RBM α=1": case})
    monkeypatch.setattr(sampler, "MORE", {})


@pytest.mark.usefixtures("small")
def test_beside_netket():
    (row,) = sampler.run(cases="chain", batch=64, rounds=1).rows
    assert row.case == "chain"
    assert list(row.seconds) == [sampler.OURS, sampler.NETKET]
    assert all(seconds > 0 for seconds in row.seconds.values())
    assert row.bars == {sampler.NETKET: 2.0}


@pytest.mark.thorough
@pytest.mark.skipif(len(affinity.allowed()) < 2, reason="one core is never beside another one")
@pytest.mark.usefixtures("small")
def test_beside_itself():
    rows = {row.case: row for row in sampler.run(cases="beside", batch=32, rounds=1).rows}
    cores, *ranks = rows
    assert cores == "all cores beside one"
    assert list(rows[cores].seconds) == [sampler.OURS, "one core"]
    assert [name.split(", ")[-1] for name in ranks] == ["RBM α=1", "200)"]
    assert all(rows[name].bars == {"one rank": 1.8} for name in ranks)


def test_another_acceptance_is_not_timed():
    sampler.compare(0.51, 0.5)
    with pytest.raises(AssertionError, match=r"the acceptance is 0.550, and NetKet's is 0.500"):
        sampler.compare(0.55, 0.5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", states.CASES | states.MORE | states.DETERMINANTS)
def test_every_case_has_chains_in_rust(name):
    case = (states.CASES | states.MORE | {name: case for name, (case, _) in states.DETERMINANTS.items()})[name]
    found = case.sampler(fk.sampler, fk.accelerate(case.hamiltonian()))
    sample = jax.ShapeDtypeStruct((1, found.hilbert.size), np.int8)
    variables = random_like(jax.eval_shape(case.model().init, jax.random.key(0), sample), 0.1)
    assert chains.plan(found, case.model(), variables).path.startswith("chains in Rust")


def test_bad_arguments():
    with pytest.raises(ValueError, match="batch is 0: a batch has at least 1 sample"):
        sampler.run(batch=0)
    with pytest.raises(ValueError, match="no case has 'no such' in its name: there are Ising chain 64, RBM α=1"):
        sampler.run(cases="no such")
