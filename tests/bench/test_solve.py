"""``ferroket bench solve``, of small systems."""

import pytest

from ferroket.bench import solve


@pytest.mark.parametrize("which", ["real", "complex"])
def test_beside_lapack(which, monkeypatch):
    monkeypatch.setattr(solve, "UNKNOWNS", (30,))
    monkeypatch.setattr(solve, "UNKNOWNS_OF_SMOOTH", (30,))
    rows = solve.run(cases=f"{which}, 30", rounds=1).rows
    assert [row.case for row in rows] == [f"{which}, 30 unknowns", f"smooth inverse, {which}, 30 unknowns"]
    for row in rows:
        assert set(row.seconds) == {"Ferroket", "LAPACK"}
        (limit,) = row.limits.values()
        assert 0 < limit < row.seconds["Ferroket"]


def test_bad_arguments():
    with pytest.raises(ValueError, match="no case has 'quaternions' in its name: there are real, 128 unknowns, "):
        solve.run(cases="quaternions")
