"""``ferroket bench network``, on a few configurations."""

import pytest

from ferroket.bench import network


@pytest.mark.parametrize("which", ["float32", "log-derivatives"])
def test_beside_xla(which):
    (row,) = network.run(cases=f"ViT, 16 features, {which}", batch=16, rounds=1).rows
    assert row.case == f"ViT, 16 features, {which}"
    assert set(row.seconds) == {"Ferroket", "XLA"}
    (limit,) = row.limits.values()
    assert 0 < limit < row.seconds["Ferroket"]
    assert row.notes["configurations at once in XLA"] == "16"
    kinds = [share.split()[0] for share in row.notes["time by operation"].split(", ")]
    assert {"contract", "map", "pair", "reduce"} == set(kinds)


def test_a_projection_is_beside_its_summands():
    (row,) = network.run(cases="projected", batch=16, rounds=1).rows
    assert set(row.seconds) == {"Ferroket", network.SUMMANDS}
    assert row.bars == {network.SUMMANDS: 1.0}
