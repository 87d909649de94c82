"""Runs that reproduce published results: they go on where they stopped, and their logs become a page."""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import netket as nk
import netket.experimental as nkx
import numpy as np
import pytest

import ferroket as fk
from ferroket.published import page
from ferroket.published.command import SCRIPTS
from ferroket.published.log import Log, Segment
from ferroket.published.results import RESULTS
from ferroket.published.run import Run
from support.mpi import environment, mpirun, path_to, run_command, run_ranks

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "published"
NAME = "ising-chain-32"


def driver() -> fk.driver.VMC_SR:
    chain = nk.graph.Chain(8)
    hilbert = nk.hilbert.Spin(0.5, 8)
    hamiltonian = fk.operator.Ising(hilbert, chain, h=1.0, J=-1.0)
    sampler = fk.sampler.MetropolisLocal(hilbert, n_chains=16)
    state = nk.vqs.MCState(sampler, nk.models.RBM(param_dtype=float), n_samples=256, seed=1, sampler_seed=2)
    return fk.driver.VMC_SR(
        hamiltonian, nk.optimizer.Adam(0.01), variational_state=state, diag_shift=lambda step: 0.1 / (1 + step)
    )


def test_a_run_that_stops_and_goes_on_makes_the_steps_of_one_that_does_not(tmp_path: Path) -> None:
    whole = driver()
    whole.run(12, show_progress=False)
    first, second = driver(), driver()
    Run(NAME, arguments=["--folder", str(tmp_path)]).optimise(first, 5, save_every=2)
    run = Run(NAME, arguments=["--folder", str(tmp_path)])
    second = run.optimise(second, 12, save_every=3)
    assert second.step_count == 12
    for found, expected in zip(
        jax.tree.leaves(second.state.parameters), jax.tree.leaves(whole.state.parameters), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    run.conclude_energy(second.state, second._ham, n_samples=512)
    log = json.loads((tmp_path / f"{NAME}.json").read_text())
    assert log["steps"] == list(range(1, 13))
    assert [segment["steps"] for segment in log["segments"]] == [5, 7]
    assert log["final"]["parameters"] == second.state.n_parameters
    assert log["final"]["value"] == float(second.state.expect(second._ham).mean.real)


def test_dynamics_go_on_where_they_stopped(tmp_path: Path) -> None:
    """Steps of a hundredth, whose times aren't exact: as many as are wanted, and no more."""
    hilbert = nk.hilbert.Spin(0.5, 6)
    hamiltonian = fk.operator.Ising(hilbert, nk.graph.Chain(6), h=1.0, J=-1.0)

    def tdvp(state: nk.vqs.MCState, made: int) -> nkx.driver.TDVP:
        tensor = fk.optimizer.qgt.quantum_geometric_tensor(holomorphic=True, diag_shift=1e-3)
        solver = nkx.dynamics.Heun(dt=0.01)
        return nkx.driver.TDVP(hamiltonian, variational_state=state, ode_solver=solver, t0=0.01 * made, qgt=tensor)

    def evolve(folder: str, steps: int, save_every: int) -> Any:
        sampler = fk.sampler.MetropolisLocal(hilbert, n_chains=16)
        state = nk.vqs.MCState(sampler, nk.models.RBM(param_dtype=complex), n_samples=128, seed=1, sampler_seed=2)
        return Run(NAME, arguments=["--folder", str(tmp_path / folder)]).evolve(
            state, tdvp, steps, save_every=save_every
        )

    whole = evolve("whole", 12, 12)
    evolve("parts", 5, 1)
    parts = evolve("parts", 12, 4)
    for found, expected in zip(jax.tree.leaves(parts.parameters), jax.tree.leaves(whole.parameters), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    log = json.loads((tmp_path / "parts" / f"{NAME}.json").read_text())
    assert [segment["steps"] for segment in log["segments"]] == [5, 7]
    assert log["values"] == []


GO_ON = """
import sys
import ferroket as fk
fk.initialize()
import jax
import numpy as np
from test_published import NAME, driver
from ferroket.published.run import Run
found = Run(NAME, arguments=["--folder", sys.argv[1]]).optimise(driver(), int(sys.argv[2]), save_every=3)
fk.distributed.print_once(*np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found.state.parameters)]))
"""


@pytest.mark.mpi
def test_a_run_goes_on_on_another_number_of_ranks(tmp_path: Path) -> None:
    lines = []
    for folder, steps, ranks in (("whole", 12, 1), ("parts", 5, 1), ("parts", 9, 2), ("parts", 12, 1)):
        done = run_ranks(GO_ON, ranks, str(tmp_path / folder), str(steps), timeout=180, PYTHONPATH=path_to(__file__))
        assert done.returncode == 0, done.stderr
        lines.append(done.stdout.strip().splitlines()[-1])
    whole, *_, parts = (np.array(line.split(), float) for line in lines)
    np.testing.assert_allclose(parts, whole, rtol=1e-8, atol=1e-10)
    log = json.loads((tmp_path / "parts" / f"{NAME}.json").read_text())
    assert [(segment["ranks"], segment["steps"]) for segment in log["segments"]] == [(1, 5), (2, 4), (1, 3)]


def test_minutes_stop_a_run_and_keep_what_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(NAME, arguments=["--folder", str(tmp_path), "--minutes", "0"])
    with pytest.raises(SystemExit) as end:
        run.optimise(driver(), 4)
    assert end.value.code is None
    assert "stopped after 0 steps" in capsys.readouterr().out


def test_log_counts_cores_of_each_start_and_keeps_means_of_many_steps() -> None:
    log = Log(segments=[Segment(2, 4, "a processor", {})])
    log.add({"Mean": np.arange(100) + 1j, "Sigma": np.full(100, 0.5)}, 1800)
    log.segments.append(Segment(1, 1, "another", {}))
    log.add({"Mean": np.arange(100, 1000), "Sigma": np.full(900, 0.5)}, 3600)
    log = Log.from_json(log.to_json())
    assert log.total_core_hours == pytest.approx(4 * 0.5 + 1)
    assert log.core_hours[99] == pytest.approx(2)
    assert log.core_hours[-1] == pytest.approx(3)
    shown = log.for_page(0.1)
    assert shown["steps"] == list(range(5, 1001, 5))
    assert shown["values"] == pytest.approx(0.1 * (np.arange(200) * 5 + 2))
    assert shown["errors"] == pytest.approx(np.full(200, 0.1 * 0.5 / np.sqrt(5)))


def test_each_result_has_its_script() -> None:
    """In the package, of which the examples' folder has the same files."""
    scripts = {f"{result.script}.py" for result in RESULTS.values()}
    assert scripts == {path.name for path in EXAMPLES.glob("*.py")} == {path.name for path in SCRIPTS.glob("*.py")}
    for name in scripts:
        assert (EXAMPLES / name).read_text() == (SCRIPTS / name).read_text()


def test_the_page_is_made_of_the_logs() -> None:
    logs = page.read_logs(EXAMPLES / "logs")
    assert logs.keys() == RESULTS.keys()
    assert page.MADE.read(ROOT / "docs" / "published.md") == page.tables(logs).strip()


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(-0.503812, 0.0000123, "−0.503812(12)"), (-40.76, 0.0, "−40.76"), (17.5, 0.34, "17.50(34)")],
)
def test_numbers_with_errors(value: float, error: float, text: str) -> None:
    assert page.with_error(value, error) == text


def test_exact_energies_of_the_list() -> None:
    """Free fermions, and Bethe's equations for the ground state of the chain, by Newton's method."""
    assert RESULTS["ising-chain-32"].references[0].value == pytest.approx(-2 / np.sin(np.pi / 64), rel=1e-12)
    assert bethe(4) == pytest.approx(-0.5)
    assert bethe(6) == pytest.approx(-(2 + np.sqrt(13)) / 12)
    assert RESULTS["heisenberg-chain-40-rbm-1"].references[0].value == pytest.approx(bethe(40), abs=1e-10)


def bethe(sites: int) -> float:
    """The ground state's energy per site of a ring, in units of J S·S."""
    pairs = sites // 2
    numbers = np.arange(pairs) - (pairs - 1) / 2
    x = np.zeros(pairs)
    for _ in range(50):
        between = x[:, None] - x
        equations = sites * 2 * np.arctan(2 * x) - 2 * np.pi * numbers - 2 * np.arctan(between).sum(1)
        slopes = 2 / (1 + between**2)
        jacobian = np.diag(sites * 4 / (1 + 4 * x**2) - slopes.sum(1)) + slopes
        x = x - np.linalg.solve(jacobian, equations)
    return 0.25 - np.sum(0.5 / (x**2 + 0.25)) / sites


def check_short_run(name: str, ranks: int, folder: Path) -> float:
    """The energy of a short run on some ranks, below its bound and not below what is known."""
    command = [mpirun(), "-n", str(ranks), sys.executable, "-m", "ferroket", "reproduce", name, "--short"]
    done = run_command([*command, "--folder", folder], environment(), 600)
    assert done.returncode == 0, done.stderr
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith("energy ")
    assert f"ranks {ranks}, core-hours" in last
    final = json.loads((folder / f"{name}-short.json").read_text())["final"]
    assert RESULTS[name].lowest - 5 * final["error"] < final["value"] < RESULTS[name].short_bar
    energy: float = final["value"]
    return energy


@pytest.mark.mpi
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name", ["ising-chain-32", "heisenberg-square-100-rbm-1", "hubbard-square-16", "j1-j2-square-36", "ising-quench-36"]
)
def test_short_runs(name: str, tmp_path: Path) -> None:
    """On one rank and on two: the same energy."""
    one, two = (check_short_run(name, ranks, tmp_path / str(ranks)) for ranks in (1, 2))
    assert one == pytest.approx(two, abs=1e-6)


@pytest.mark.mpi
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "recorded", "made"),
    [
        ("heisenberg-square-100-deep", 3, 23),
        ("heisenberg-triangular-36", 62, 62),
        ("hubbard-cylinder-64", 64, 64),
        ("j1-j2-square-100", 60, 60),
    ],
)
def test_short_runs_with_stages(name: str, recorded: int, made: int, tmp_path: Path) -> None:
    """Energies of a smaller system that comes first aren't in the log, and its cost is."""
    check_short_run(name, 2, tmp_path)
    log = json.loads((tmp_path / f"{name}-short.json").read_text())
    assert len(log["steps"]) == recorded
    assert sum(segment["steps"] for segment in log["segments"]) == made
