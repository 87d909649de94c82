"""The cases that are followed over commits are cases of the benchmarks."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from ferroket.bench import local_energy, operators, sampler, vmc
from ferroket.bench.report import Report, Row

FILE = Path(__file__).parents[2] / "ci" / "history" / "benchmarks" / "cases.py"
_spec = importlib.util.spec_from_file_location("history_cases", FILE)
assert _spec
assert _spec.loader
history = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(history)

BENCHMARKS = {"local_energy": local_energy, "operators": operators, "sampler": sampler, "vmc": vmc}


@pytest.mark.parametrize(("benchmark", "case"), history.CASES)
def test_each_is_one_case(benchmark: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def measured(found: dict[str, Any], **_: Any) -> list[Row]:
        names.extend(found)
        return []

    monkeypatch.setattr(BENCHMARKS[benchmark], "run_cases", measured)
    BENCHMARKS[benchmark].run(cases=case, rounds=1)
    assert case in names


def test_times_of_ours_and_of_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"Ferroket": 1.0, "NetKet": 3.0, "bare network": 2.0}
    for module in BENCHMARKS.values():
        monkeypatch.setattr(module, "run", lambda **_: Report("", "Ferroket", [Row("a", seconds), Row("b", {})]))
    cases = history.Cases()
    found = cases.setup_cache()
    names, whose = cases.params
    assert {(name, who): cases.track_seconds(found, name, who) for name in names for who in whose} == {
        **{(name, "Ferroket"): 1.0 for name in names},
        **{(name, "peer"): 3.0 for name in names},
    }
