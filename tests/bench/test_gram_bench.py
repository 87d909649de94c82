"""``ferroket bench gram``, of few samples."""

import pytest

from ferroket.bench import gram


@pytest.mark.parametrize("which", ["RBM α=1", "complex RBM α=4"])
def test_beside_the_jacobian(which, monkeypatch):
    monkeypatch.setattr(gram, "CASES", ((which, 20),))
    (row,) = gram.run(rounds=1).rows
    assert row.case.endswith("20 samples")
    assert set(row.seconds) == {"Ferroket", "Jacobian"}
    (limit,) = row.limits.values()
    assert 0 < limit < row.seconds["Ferroket"]


def test_bad_arguments():
    with pytest.raises(ValueError, match="no case has 'ViT' in its name: there are RBM α=1, 1024 samples, "):
        gram.run(cases="ViT")
