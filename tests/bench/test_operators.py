"""The benchmark of operators: that it compares, and what it writes. Its numbers are for a quiet machine."""

import json

import pytest

from ferroket.bench import operators


def test_report(tmp_path):
    report = operators.run(sites=8, batch=16, rounds=2)
    assert len(report.rows) == len(operators.SAMPLE_DTYPES)
    for row in report.rows:
        assert list(row.seconds) == ["Ferroket", "NetKet JAX", "NetKet numba"]
        assert all(seconds > 0 for seconds in [*row.seconds.values(), *row.limits.values()])
        assert row.bars == {"NetKet JAX": 3.0, "NetKet numba": 1.0}
    path = tmp_path / "operators.json"
    report.write_json(path)
    written = json.loads(path.read_text())
    assert written["settings"] == {"sites": 8, "batch": 16, "rounds": 2}
    first = written["rows"][0]
    assert first["ratios"]["NetKet JAX"] == pytest.approx(first["seconds"]["NetKet JAX"] / first["seconds"]["Ferroket"])


def test_wrong_numbers_are_not_timed(monkeypatch):
    monkeypatch.setattr(operators, "accelerate", lambda operator: 2 * operator)
    with pytest.raises(AssertionError):
        operators.run(sites=4, batch=2, rounds=1)


@pytest.mark.parametrize("arguments", [{"sites": 1}, {"batch": 0}])
def test_bad_arguments(arguments):
    with pytest.raises(ValueError, match="a chain has at least 2 sites, a batch 1 sample"):
        operators.run(**arguments)
