"""The benchmark of whole steps: what it compares, and what it writes. Its numbers are for a quiet machine."""

import io
import json
import re
import struct

import jax
import netket as nk
import numpy as np
import pytest
from rich.console import Console

from ferroket._compat.netket import UPDATES
from ferroket.bench import hamiltonians, states, updates, vmc
from ferroket.bench.report import Report, Row

PARAMETERS = {
    "Ising chain 64, RBM α=1": 64 * 64 + 2 * 64,
    "Heisenberg 10×10, RBM α=1": 100 * 100 + 2 * 100,
    "Heisenberg 10×10, complex RBM α=4": 100 * 400 + 100 + 400,
    "Heisenberg kagome 75, complex RBM α=2": 75 * 150 + 75 + 150,
    "Heisenberg 10×10, Jastrow": 100 * 99 // 2,
    "Heisenberg 10×10, MLP (100, 200, 200)": (100 * 100 + 100) + (100 * 200 + 200) + (200 * 200 + 200) + (200 + 1),
    "Heisenberg 10×10, ResCNN": (9 * 4 + 4) + 4 * (9 * 4 * 4 + 4),
    "Heisenberg 10×10, ResCNN, 16 features": (9 * 16 + 16) + 8 * (9 * 16 * 16 + 16),
    "Heisenberg 10×10, GCNN": (100 * 4 + 4) + (100 * 4 * 4 + 4),
    "Heisenberg 10×10, GCNN with the point group": (100 * 4 + 4) + (800 * 4 * 4 + 4),
    "Heisenberg 10×10, ViT": (4 * 16 + 16)
    + 25 * 16
    + (2 * 2 * 16 + 4 * (16 * 16 + 16) + (16 * 32 + 32) + (32 * 16 + 16)),
    "Heisenberg 10×10, ViT, 32 features, 4 layers": (4 * 32 + 32)
    + 25 * 32
    + 4 * (2 * 2 * 32 + 4 * (32 * 32 + 32) + (32 * 64 + 64) + (64 * 32 + 32)),
    "Heisenberg 10×10, complex MLP": (100 * 100 + 100) + (100 * 200 + 200) + (200 * 200 + 200) + 200,
    "Heisenberg 10×10, complex ResCNN": (9 * 4 + 4) + 4 * (9 * 4 * 4 + 4),
    "Heisenberg chain 60, RBMSymm α=3": 3 * 60 + 3 + 1,
    "Ising chain 20, RBM α=1": 20 * 20 + 2 * 20,
    "Fermi-Hubbard 6×6, Slater2nd": 36 * 15,
    "Fermi-Hubbard 6×6, MultiSlater2nd of 4": 4 * 36 * 15,
    "Fermi-Hubbard 6×6, SlaterJastrow": 36 * 15 + 36 * 35 // 2 + 36,
    "Fermi-Hubbard 8×8, Slater2nd": 64 * 28,
    "Fermi-Hubbard 8×8, MultiSlater2nd of 4": 4 * 64 * 28,
    "Fermi-Hubbard 8×8, SlaterJastrow": 64 * 28 + 64 * 63 // 2 + 64,
    "t-V 8×8, Slater2nd": 64 * 28,
    "H6 in STO-3G, generalised Slater2nd": 12 * 6,
}
# Under translations by two there are 4 L ordered pairs of sites, 4 of which are a site and itself; of the others
# (i, j) and (j, i) are one.
_JASTROW_ORBITS = {"6×6": 70, "8×8": 132, "4×16": 132}
for _lattice, _sites, _fermions in (("6×6", 36, 15), ("8×8", 64, 28), ("4×16", 64, 28)):
    _name = f"Fermi-Hubbard {_lattice}, "
    PARAMETERS |= {
        f"{_name}backflow MLP": 2 * _sites * 64 + 64 + (1 + 64 + 1) * 2 * _sites * _fermions,
        f"{_name}hidden fermions": (
            2 * _sites * 64 + 64 + 65 * 8 * (2 * _fermions + 8) + 2 * _sites * (2 * _fermions + 8)
        ),
        f"{_name}pairs, Jastrow, Gutzwiller": _sites**2 + _sites * (_sites - 1) // 2 + _sites,
        f"{_name}pairs of 2×2 sites": 4 * _sites + _JASTROW_ORBITS[_lattice] + 4,
        f"{_name}pairs of 2×2 sites, doublons and holons": 4 * _sites + _JASTROW_ORBITS[_lattice] + 4 + 10,
        f"{_name}singlet pairs of 2×2 sites": 4 * _sites + _JASTROW_ORBITS[_lattice] + 4,
    }
PARAMETERS |= {
    "H6 in STO-3G, backflow MLP": 12 * 64 + 64 + (1 + 64 + 1) * 12 * 3,
    "H6 in STO-3G, hidden fermions": 12 * 64 + 64 + 65 * 8 * (6 + 8) + 12 * (6 + 8),
}


@pytest.fixture(scope="module")
def state():
    """A state of five spins, and its Hamiltonian."""
    operator = hamiltonians.ising(5)
    sampler = nk.sampler.MetropolisLocal(operator.hilbert, n_chains=4)
    return nk.vqs.MCState(sampler, nk.models.RBM(alpha=1), n_samples=16, seed=1, sampler_seed=2), operator


@pytest.mark.parametrize("name", states.CASES | states.STEPS)
def test_parameters_of_the_cases(name):
    case = (states.CASES | states.STEPS)[name]
    operator = case.hamiltonian()
    x = jax.ShapeDtypeStruct((3, operator.hilbert.size), np.int8)
    log_psi, variables = jax.eval_shape(case.model().init_with_output, jax.random.key(0), x)
    assert log_psi.shape == (3,)
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {np.dtype(complex if "complex" in name else float)}
    assert sum(leaf.size for leaf in jax.tree.leaves(variables)) == PARAMETERS[name]


@pytest.mark.parametrize("name", ["pairs, Jastrow, Gutzwiller", "pairs of 2×2 sites"])
def test_pairs_are_the_same_in_netkets_way(name):
    case = states.STEPS[f"Fermi-Hubbard 6×6, {name}"]
    hilbert = case.hamiltonian().hilbert
    x = np.asarray(hilbert.random_state(jax.random.key(1), 5))
    variables = case.model().init(jax.random.key(0), x)
    ours, theirs = (np.asarray(model.apply(variables, x)) for model in (case.model(), case.netkets()))
    np.testing.assert_allclose(np.exp(ours - theirs), 1, rtol=1e-10)


@pytest.mark.parametrize("name", ["Heisenberg 10×10, GCNN", "Heisenberg chain 60, RBMSymm α=3"])
def test_translations_leave_symmetric_models_as_they_are(name):
    case = states.STEPS[name]
    hilbert = case.hamiltonian().hilbert
    x = np.asarray(hilbert.random_state(jax.random.key(1), 2))
    grid = (10, 10) if hilbert.size == 100 else (60,)
    moved = np.roll(x.reshape(2, *grid), tuple(range(3, 3 + len(grid))), tuple(range(1, 1 + len(grid))))
    model = case.model()
    variables = model.init(jax.random.key(0), x)
    before, after = (np.asarray(model.apply(variables, it)) for it in (x, moved.reshape(2, -1)))
    np.testing.assert_allclose(after, before, rtol=1e-12)
    assert abs(before[0] - before[1]) > 1e-6


def test_the_matrix_of_parameters_is_tried_where_it_is_small():
    both = [{"use_ntk": True, "on_the_fly": True}, {"use_ntk": True, "on_the_fly": False}]
    assert list(updates.settings_for(2999)) == [*both, {"use_ntk": False}]
    assert list(updates.settings_for(3000)) == both
    assert updates.text_of(both[1]) == "use_ntk=True, on_the_fly=False"


@pytest.mark.parametrize("options", updates.SETTINGS, ids=updates.text_of)
def test_the_update_alone_is_that_of_the_step(state, options):
    driver = updates.driver_of(*state, options)
    before = state[0].parameters
    again = updates.last_update(driver)
    updated, *_ = again()
    # Sgd(1e-4) has taken that much of it.
    for new, old, part in zip(*map(jax.tree.leaves, (state[0].parameters, before, updated)), strict=True):
        np.testing.assert_allclose(new, old - 1e-4 * part, rtol=0, atol=1e-12)
        assert np.abs(part).max() > 1e-6


def in_place():
    return {name: update.current for name, update in UPDATES.items()}


def test_updates_are_put_back_after_an_error():
    functions = in_place()

    def fail():
        with updates.wrapped(lambda update: lambda: update):
            assert all(in_place()[name]() is function for name, function in functions.items())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert in_place() == functions


def test_an_update_of_others_is_not_timed():
    class Driver:
        """Its step calls nothing of NetKet's."""

        def run(self, steps, **options):
            assert (steps, options) == (1, {"show_progress": False})

    with pytest.raises(RuntimeError, match="a step of VMC_SR called none of srt_onthefly, srt, sr"):
        updates.last_update(Driver())()


@pytest.mark.parametrize(("one", "calls"), [(0.1, 15), (1.0, 8), (60.0, 2)])
def test_how_many_calls(one, calls):
    assert updates.calls_within(8.0, one, least=2, most=15) == calls


def test_notes_are_below_the_table():
    rows = [Row("one", {"Ferroket": 1.0, "NetKet": 2.0}, notes={"samples": "64", "setting": "use_ntk=True"})]
    console = Console(file=io.StringIO(), width=100)
    Report("steps", "Ferroket", rows).print(console)
    assert console.file.getvalue().rstrip().endswith("\none: samples: 64; setting: use_ntk=True")


def test_many_steps_are_drawn_in_lines(tmp_path):
    step = [Row(case, {vmc.OURS: 1.0, vmc.NETKET: 2.0}) for case in ("a, 1 rank", *vmc.PARTS, vmc.ALONE)]
    for name, steps in (("line", 6), ("lines", 7)):
        vmc.Steps("", vmc.OURS, step * steps).plot(tmp_path / f"{name}.png")
    line, lines = (struct.unpack(">II", (tmp_path / f"{name}.png").read_bytes()[16:24]) for name in ("line", "lines"))
    assert lines == (line[0], 2 * line[1])


@pytest.mark.thorough
def test_a_step_and_its_parts(tmp_path):
    report = vmc.run(cases="Ising chain 64, RBM α=1, 1 rank", batch=32, rounds=1)
    step, *parts, alone = report.rows
    assert [row.case.strip() for row in parts] == list(vmc.PARTS)
    assert (step.bars, alone.bars) == ({vmc.NETKET: 6}, {vmc.NETKET: 6})
    assert step.notes["samples"] == "32"
    assert step.notes[vmc.SETTINGS] in map(updates.text_of, updates.settings_for(PARAMETERS["Ising chain 64, RBM α=1"]))
    assert re.fullmatch(r"Ferroket \d+ MB, NetKet \d+ MB", step.notes[vmc.MEMORY])
    for contender in (vmc.OURS, vmc.NETKET):
        whole = step.seconds[contender]
        # Medians of several steps.
        assert sum(row.seconds[contender] for row in parts) == pytest.approx(whole, rel=0.3)
        assert all(row.seconds[contender] > 0 for row in [*parts, alone])
    report.write_json(tmp_path / "vmc.json")
    assert len(json.loads((tmp_path / "vmc.json").read_text())["rows"]) == 2 + len(vmc.PARTS)
    report.plot(tmp_path / "vmc.png")
    assert (tmp_path / "vmc.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.thorough
def test_two_ranks_have_no_bars():
    report = vmc.run(cases="Ising chain 20, RBM α=1, 2 ranks", batch=32, rounds=1)
    assert len(report.rows) == 2 + len(vmc.PARTS)
    assert all(not row.bars for row in report.rows)
    assert report.rows[0].notes.keys() == {"samples", vmc.SETTINGS}


def test_bad_arguments():
    with pytest.raises(ValueError, match="batch is 0: a batch has at least 1 sample"):
        vmc.run(batch=0)
    with pytest.raises(
        ValueError, match="no case has 'no such' in its name: there are Ising chain 64, RBM α=1, 1 rank"
    ):
        vmc.run(cases="no such")
