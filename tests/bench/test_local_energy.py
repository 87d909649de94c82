"""The benchmark of local energies: that it compares, and what it writes. Its numbers are for a quiet machine."""

import re
from functools import partial

import netket as nk
import numpy as np
import pytest

from ferroket.bench import hamiltonians, jobs, local_energy, models, sampler, states
from ferroket.distributed import affinity

PEERS = [local_energy.DEFAULT]
if local_energy.local_value_kernel_jax_packed is not None:
    PEERS.append(local_energy.PACKED)


@pytest.fixture
def small(monkeypatch):
    """A small model whose ratios are known, a small network, and few chunk sizes to try."""
    chain = partial(hamiltonians.ising, 8)
    monkeypatch.setattr(local_energy, "KNOWN", {"chain": (chain, lambda: nk.models.RBM(alpha=1), 2.0)})
    monkeypatch.setattr(local_energy, "LATTICES", {"lattice": (partial(hamiltonians.heisenberg, (2, 2)), (2, 2), 1)})
    monkeypatch.setattr(models, "networks", lambda *_: {"network": nk.models.MLP(hidden_dims=(4,))})
    monkeypatch.setattr(local_energy, "_CHUNK_SIZES", (None, 8))


@pytest.mark.usefixtures("small")
def test_a_model_whose_ratios_are_known():
    report = local_energy.run(cases="chain", batch=16, rounds=1)
    (row,) = report.rows
    assert row.case == "chain"
    assert list(row.seconds) == [local_energy.OURS, *PEERS]
    assert all(seconds > 0 for seconds in row.seconds.values())
    assert row.bars == dict.fromkeys(PEERS, 2.0)


@pytest.mark.thorough
@pytest.mark.mpi
@pytest.mark.parametrize("benchmark", [local_energy, sampler])
def test_determinants_are_measured_apart(benchmark):
    """In a job of their own, with more threads."""
    (row,) = benchmark.run(cases="H6", batch=16, rounds=1).rows
    assert row.case == "H6 in STO-3G, generalised Slater2nd"
    assert {benchmark.OURS, benchmark.NETKET if benchmark is sampler else benchmark.DEFAULT} <= set(row.seconds)
    assert all(seconds > 0 for seconds in row.seconds.values())


def test_bars_of_determinants():
    bars = {name: (bar, case.sampling_bar, case.step_bar) for name, (case, bar) in states.DETERMINANTS.items()}
    assert bars.pop("H6 in STO-3G, generalised Slater2nd") == (None, None, None)
    assert bars.pop("Fermi-Hubbard 6×6, Slater2nd") == (50, 15, 15)
    assert bars.pop("Fermi-Hubbard 8×8, Slater2nd") == (100, 30, 15)
    networks = [bars.pop(name) for name in list(bars) if name.endswith(("backflow MLP", "hidden fermions"))]
    assert len(networks) == 8
    assert set(networks) == {(15, 5, None), (None, None, None)}
    assert [bars.pop(name) for name in list(bars) if "pairs" in name] == [(None, None, None)] * 12
    assert len(bars) == 5
    assert set(bars.values()) == {(30, 10, 15)}


@pytest.mark.thorough
@pytest.mark.usefixtures("small")
def test_a_network_is_beside_itself_alone():
    (row,) = local_energy.run(cases="lattice", batch=16, rounds=1).rows
    assert row.case == "lattice, network"
    assert list(row.seconds) == [local_energy.OURS, *PEERS, local_energy.BARE]
    assert row.bars == {**dict.fromkeys(PEERS, 1.0), local_energy.BARE: pytest.approx(1 / 1.15)}


@pytest.mark.thorough
def test_the_bare_network_sees_what_matters_alone():
    """The samples, and for each the configurations in which two neighbours that differ have changed places."""
    setup = local_energy._Setup(hamiltonians.heisenberg((3, 3)), nk.models.RBM(), 5)
    x = np.asarray(setup.x)
    edges = setup.reference.hilbert.size * 2
    neighbours = [
        (3 * i + j, other) for i in range(3) for j in range(3) for other in (3 * ((i + 1) % 3) + j, 3 * i + (j + 1) % 3)
    ]
    assert len(neighbours) == edges
    expected = []
    for sample in x:
        for a, b in neighbours:
            if sample[a] != sample[b]:
                swapped = sample.copy()
                swapped[[a, b]] = sample[[b, a]]
                expected.append(swapped.tolist())
    found = np.asarray(setup.connected()).tolist()
    assert found[: len(x)] == x.tolist()
    assert sorted(found[len(x) :]) == sorted(expected)


@pytest.mark.thorough
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", ["chain", "lattice"])
def test_wrong_numbers_are_not_timed(monkeypatch, case):
    accelerate = local_energy.accelerate
    monkeypatch.setattr(local_energy, "accelerate", lambda operator: 2 * accelerate(operator))
    with pytest.raises(AssertionError):
        local_energy.run(cases=case, batch=4, rounds=1)


@pytest.mark.thorough
@pytest.mark.usefixtures("small")
def test_beside_itself():
    rows = {row.case: row for row in local_energy.run(cases="beside", batch=4, rounds=1).rows}
    assert rows["float32 beside float64"].bars == {"float64": 1.6}
    if len(affinity.allowed()) > 1:
        assert rows["all cores beside one"].bars == {"one core": 1.7}
        for model in ("RBM", "MLP"):
            two = rows[f"two ranks beside one, each with one core, {model}"]
            assert two.bars == {"one rank": 1.8}
            assert all(seconds > 0 for seconds in two.seconds.values())
    (limit,) = rows["one core beside its FMA peak"].limits.values()
    assert 0 < limit < rows["one core beside its FMA peak"].seconds["Ferroket"]


def test_a_worker_that_fails_says_why():
    with pytest.raises(RuntimeError, match=re.escape("invalid literal for int() with base 10: 'many'")):
        jobs.run("local_energy", 1, "many", "RBM", timeout=120)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch is 0: a batch has at least 1 sample"),
        ({"cases": "no such"}, "no case has 'no such' in its name: there are Ising chain 64, RBM α=1, "),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        local_energy.run(**arguments)
