"""The benchmark of operators: that it compares, and what it writes. Its numbers are for a quiet machine."""

import io
import json

import pytest
from rich.console import Console

from ferroket.bench import hamiltonians, operators
from ferroket.bench.report import Report, Row

PEERS = ["NetKet JAX", "NetKet numba"]


@pytest.fixture
def small(monkeypatch):
    """One small case, and one that NetKet has for integers only."""
    cases = {
        "chain": (lambda: hamiltonians.ising(8), 2.0, 3.0),
        "fermions": (lambda: hamiltonians.fermi_hubbard((2, 2)), 4.0, 5.0),
    }
    monkeypatch.setattr(operators, "CASES", cases)


@pytest.mark.usefixtures("small")
def test_report(tmp_path):
    report = operators.run(cases="chain", batch=16, rounds=2)
    forms = ["int8, padded", "int8, compact", "float64, padded", "float64, compact"]
    assert [row.case for row in report.rows] == [f"chain, {form}" for form in forms]
    for row, bar in zip(report.rows, [2.0, 3.0, 2.0, 3.0], strict=True):
        assert list(row.seconds) == ["Ferroket", *PEERS]
        assert all(seconds > 0 for seconds in [*row.seconds.values(), *row.limits.values()])
        assert row.bars == dict.fromkeys(PEERS, bar)
    path = tmp_path / "operators.json"
    report.write_json(path)
    written = json.loads(path.read_text())
    assert written["settings"] == {"cases": "chain", "batch": 16, "rounds": 2}
    first = written["rows"][0]
    assert first["ratios"]["NetKet JAX"] == pytest.approx(first["seconds"]["NetKet JAX"] / first["seconds"]["Ferroket"])


@pytest.mark.thorough
@pytest.mark.usefixtures("small")
def test_netkets_conserving_operators_are_timed_on_integers():
    report = operators.run(cases="fermions", batch=4, rounds=1)
    assert [row.case for row in report.rows] == ["fermions, int8, padded", "fermions, int8, compact"]


def test_rows_with_a_peer_in_common_are_one_table(tmp_path):
    rows = [
        Row("a", {"ours": 1.0, "theirs": 2.0}),
        Row("b", {"ours": 3.0, "theirs": 9.0, "others": 6.0}, limits={"memset": 1.5}),
        Row("c", {"ours": 4.0, "yours": 2.0}),
    ]
    report = Report("both", "ours", rows)
    printed = io.StringIO()
    report.print(Console(file=printed, width=100))
    (a,), (b,), (c,) = ([line for line in printed.getvalue().splitlines() if f"│ {case} " in line] for case in "abc")
    assert [cell.strip() for cell in a.split("│")[1:-1]] == ["a", "1 s", "2 s", "", "", "2.00", ""]
    assert [cell.strip() for cell in b.split("│")[1:-1]] == ["b", "3 s", "9 s", "6 s", "1.5 s", "3.00", "2.00"]
    assert [cell.strip() for cell in c.split("│")[1:-1]] == ["c", "4 s", "2 s", "0.50"]
    report.plot(tmp_path / "both.png")
    assert (tmp_path / "both.png").stat().st_size > 0


def test_wrong_numbers_are_not_timed(small, monkeypatch):
    monkeypatch.setattr(operators, "accelerate", lambda operator: 2 * operator)
    with pytest.raises(AssertionError):
        operators.run(cases="chain", batch=2, rounds=1)


def test_every_case_has_its_bars():
    for name, (_, padded, compact) in hamiltonians.CASES.items():
        assert 1 < padded <= compact, name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch is 0: a batch has at least 1 sample"),
        ({"cases": "no such"}, "no case has 'no such' in its name: there are Ising chain 128, Heisenberg 10×10, "),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        operators.run(**arguments)
