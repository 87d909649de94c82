"""``ferroket bench determinants``, of a few matrices."""

import pytest

from ferroket.bench import determinants


@pytest.mark.parametrize("which", ["determinants, real", "Pfaffians, complex"])
def test_beside_jax(which, monkeypatch):
    monkeypatch.setattr(determinants, "SIZES", (6,))
    monkeypatch.setattr(determinants, "_LARGE", 32)
    (row,) = determinants.run(cases=which, batch=20, rounds=1).rows
    assert row.case == f"{which}, 6 rows"
    assert set(row.seconds) == {"Ferroket", "JAX"}
    assert row.bars == ({"JAX": 5.0} if "real" in which else {})
    (limit,) = row.limits.values()
    assert limit > 0


def test_bad_arguments():
    with pytest.raises(
        ValueError, match="no case has 'quaternions' in its name: there are determinants, real, 16 rows, "
    ):
        determinants.run(cases="quaternions")
