"""The benchmark of scaling: what it counts, what it predicts, and what it writes."""

import dataclasses
import io
import json

import numpy as np
import pytest
from rich.console import Console

from ferroket._compat import netket as compat
from ferroket.bench import costs, prediction, scaling
from ferroket.bench.costs import Cost, Costs
from ferroket.bench.prediction import Interconnect, Work


@pytest.mark.parametrize(
    ("function", "ranks", "n_bytes", "expected"),
    [
        ("MPI_Allreduce", 1, 800, 0),
        ("MPI_Allreduce", 2, 800, 800),
        ("MPI_Allreduce", 4, 800, 1200),  # a quarter three times, twice
        ("MPI_Allgather", 4, 800, 2400),
        ("MPI_Reduce_scatter", 4, 200, 600),
        ("MPI_Sendrecv", 4, 800, 800),
    ],
)
def test_bytes_that_a_rank_sends(function: str, ranks: int, n_bytes: int, expected: float) -> None:
    assert costs.sent(function, ranks, n_bytes) == expected


def test_costs_of_steps_are_medians_of_each_number() -> None:
    def total(step: float) -> dict[str, Cost]:
        # Local energies have sampling in them; the third step takes longer.
        extra = 30 * (step == 3)
        return {
            "sampling": Cost(2 * step, 1 * step, 0, 0),
            "local energy": Cost(5 * step, 3 * step, 10 * step, 1 * step),
            "update": Cost(7 * step, 8 * step, 100 * step, 4 * step),
            "step": Cost(13 * step + extra, 12 * step, 111 * step, 6 * step),
        }

    assert costs.of_steps([total(step) for step in range(4)]) == {
        "sampling": Cost(2, 1, 0, 0),
        "local energy": Cost(3, 2, 10, 1),
        "update": Cost(7, 8, 100, 4),
        "step": Cost(13, 12, 111, 6),
        "rest": Cost(1, 1, 1, 1),
    }


def test_costs_of_a_function_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(costs, "now", lambda: Cost(clock[0], 2 * clock[0], 0, clock[0]))

    def work(seconds: float) -> float:
        clock[0] += seconds
        return seconds

    counted = Costs()
    assert [counted.of(work, "update")(seconds) for seconds in (1.0, 2.0)] == [1, 2]
    assert counted.totals()["update"] == Cost(3, 6, 0, 3)
    assert counted.totals()["sampling"] == Cost(0, 0, 0, 0)
    # One call to warm up, one to see how long it takes, and three that count.
    taken = iter([9.0, 2.0, 1.0, 5.0, 3.0])
    assert costs.repeated(lambda: work(next(taken)), lambda one: round(one) + 1) == Cost(3, 6, 0, 3)


WORK = Work(
    1024, sampling=1.0, local_energy=0.5, derivatives=0.25, solve=0.125, rest=0.01, gathered=1.5e9, collectives=10
)


def test_the_model_is_what_was_measured_on_one_rank() -> None:
    parts = prediction.seconds(WORK, 1, 1024, Interconnect())
    assert parts == {"sampling": 1, "local energy": 0.5, "update": 0.375, "rest": 0.01, "messages": 0}


def test_the_model_on_many_ranks_with_more_samples() -> None:
    interconnect = Interconnect(latency=1e-6, rate=1e9)
    parts = prediction.seconds(WORK, 8, 4096, interconnect)
    assert parts["sampling"] == 4 / 8
    assert parts["local energy"] == 4 * 0.5 / 8
    # Of 512 rows, each of 16 panels has 32; each rank factors the diagonal part of each panel.
    assert parts["update"] == pytest.approx(16 * 0.25 / 8 + 64 * 0.125 * (1 / 8 + 1 / 16**2))
    assert parts["rest"] == 0.01
    assert parts["messages"] == pytest.approx((10 + 3 * 16) * 3 * 1e-6 + (4 * 1.5e9 + 8 * 4096**2 / 2) / 1e9)


def test_the_ranks_must_have_one_among_them() -> None:
    with pytest.raises(ValueError, match="ranks are 2, 4: 1 has to be among them"):
        scaling.run(ranks=(2, 4))
    with pytest.raises(ValueError, match="ranks are 0, 1"):
        scaling.run(ranks=(0, 1))


@pytest.mark.mpi
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_step_on_one_rank_and_on_two(tmp_path) -> None:
    report = scaling.run(cases="Ising chain 20, RBM α=1", ranks=(1, 2), batch=64)
    of = {(row.kind, row.ranks, row.part): row for row in report.rows}
    assert len(of) == len(report.rows) == 2 * 2 * len(scaling.ALL)
    assert {(kind, ranks): row.samples for (kind, ranks, _), row in of.items()} == {
        ("strong", 1): 64,
        ("strong", 2): 64,
        ("weak", 1): 32,
        ("weak", 2): 64,
    }
    for contender in (scaling.OURS, scaling.NETKET):
        for part in scaling.ALL:
            one, two = (of["strong", ranks, part].costs[contender] for ranks in (1, 2))
            assert one["seconds"] > 0
            assert (one["sent"], one["collectives"]) == (0, 0)
            assert two["cpu"] > 0
        step, update = (of["strong", 2, part].costs[contender] for part in ("step", "update"))
        assert step["collectives"] > update["collectives"] > 0
        assert step["memory"] > 2**27
    # NetKet gathers its matrix, a rank half of it; of ours what is sent of the solve is two gathers and their shares.
    assert of["strong", 2, "solve"].costs[scaling.NETKET]["sent"] >= 8 * 64**2 / 2
    assert all(list(row.costs) == [scaling.OURS] for row in report.rows if row.kind == "weak")
    console = Console(file=io.StringIO(), width=100)
    report.print(console)
    text = console.file.getvalue()
    assert text.count("2 ranks, 64 samples") == 3
    assert "weak scaling: 32 of each rank" in text
    parts = report.predicted([1, 1024])
    assert sum(parts[0].values()) == pytest.approx(of["strong", 1, "step"].costs[scaling.OURS]["cpu"], rel=0.5)
    assert parts[1]["sampling"] < parts[0]["sampling"] / 1000
    report.write_json(tmp_path / "scaling.json")
    row = json.loads((tmp_path / "scaling.json").read_text())["rows"][0]
    assert row["costs"][scaling.OURS].keys() == {*(field.name for field in dataclasses.fields(Cost)), "memory"}
    report.plot(tmp_path / "scaling.png")
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_netket_has_the_methods_that_are_measured() -> None:
    for method in (compat.SAMPLE, compat.LOCAL_ESTIMATORS):
        assert method.find() is method.current


def test_medians_of_jobs() -> None:
    jobs = [{"step": {"seconds": seconds, "cpu": 2 * seconds}} for seconds in (1.0, 4.0, 2.0)]
    assert scaling._median(jobs) == {"step": {"seconds": 2, "cpu": 4}}
    assert np.isfinite(scaling._median(jobs)["step"]["cpu"])
