"""``ferroket bench gram``, of few samples."""

import pytest

from ferroket.bench import gram


@pytest.mark.parametrize("which", ["RBM α=1", "complex RBM α=4"])
def test_beside_the_jacobian(which, monkeypatch):
    monkeypatch.setattr(gram, "CASES", ((which, 20),))
    matrix, system = gram.run(rounds=1).rows
    assert matrix.case.endswith("20 samples")
    assert system.case == f"{matrix.case}, solved"
    limits = []
    for row in (matrix, system):
        assert set(row.seconds) == {"Ferroket", "Jacobian"}
        limits += row.limits.values()
        assert 0 < limits[-1] < row.seconds["Ferroket"]
    assert limits[0] < limits[1]


def test_bad_arguments():
    with pytest.raises(ValueError, match="no case has 'ViT' in its name: there are RBM α=1, 1024 samples, "):
        gram.run(cases="ViT")
