"""Files of mVMC, and states against the energies that mVMC printed for them."""

import math
import re

import jax
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.ansatz.registry import find
from support.mvmc_files import SYSTEMS, File, System, terms, write

mvmc = fk.models.mvmc

_QUICK = ("momentum", "spin", "equal", "kondo")
CASES = [pytest.param(name, marks=[] if name in _QUICK else pytest.mark.thorough) for name in SYSTEMS]


def energy(loaded) -> complex:
    """The exact energy of a state, by a sum over all configurations."""
    log_psi = np.asarray(jax.jit(loaded.model.apply)(loaded.variables, loaded.hilbert.all_states()))
    psi = np.exp(log_psi - log_psi.real.max())
    return np.vdot(psi, loaded.hamiltonian.to_sparse() @ psi) / np.vdot(psi, psi)


@pytest.mark.parametrize("name", CASES)
def test_energies_are_those_that_mvmc_printed(name, tmp_path):
    system = SYSTEMS[name]
    loaded = mvmc.load(write(tmp_path, system), system.parameters)
    found = energy(loaded)
    assert abs(found.imag) < 1e-12
    assert found.real == pytest.approx(system.energy, abs=3 * system.error)


@pytest.mark.parametrize("name", CASES)
def test_parameters_go_back_and_forth(name, tmp_path):
    system = SYSTEMS[name]
    namelist = write(tmp_path, system)
    loaded = mvmc.load(namelist, system.parameters)
    written = mvmc.save(tmp_path / "saved", loaded, loaded.variables, head="new")
    jax.tree.map(
        np.testing.assert_array_equal,
        mvmc.load(namelist, tmp_path / "saved" / "new_opt.dat").variables,
        loaded.variables,
    )
    # So do files of one kind of parameters, which a list of files names.
    with namelist.open("a") as names:
        names.writelines(f"{keyword} saved/{path.name}\n" for keyword, path in written.items())
    jax.tree.map(np.testing.assert_array_equal, mvmc.load(namelist).variables, loaded.variables)
    # What mVMC's parameters are called is what mVMC calls them.
    assert {path.name for path in written.values()} == {
        "ring": {"new_gutzwiller_opt.dat", "new_jastrow_opt.dat", "new_orbital_opt.dat"},
        "spin": {
            "new_gutzwiller_opt.dat",
            "new_jastrow_opt.dat",
            "new_doublonHolon2site_opt.dat",
            "new_doublonHolon4site_opt.dat",
            "new_orbital_opt.dat",
        },
        "general": {"new_gutzwiller_opt.dat", "new_jastrow_opt.dat", "new_orbital_general_opt.dat"},
        "equal": {
            "new_gutzwiller_opt.dat",
            "new_jastrow_opt.dat",
            "new_orbitalAntiParallel_opt.dat",
            "new_orbitalParallel_opt.dat",
        },
        "heisenberg": {"new_gutzwiller_opt.dat", "new_orbital_opt.dat"},
        "turned_spins": {"new_gutzwiller_opt.dat", "new_orbital_general_opt.dat"},
    }.get(name, {"new_gutzwiller_opt.dat", "new_jastrow_opt.dat", "new_orbital_opt.dat"})


def test_states_go_on_here(tmp_path):
    system = SYSTEMS["ring"]
    loaded = mvmc.load(write(tmp_path, system), system.parameters)
    sampler = fk.sampler.MetropolisFermionHop(loaded.hilbert, graph=nk.graph.Chain(6), n_chains=16)
    state = nk.vqs.MCState(sampler, loaded.model, variables=loaded.variables, n_samples=512)
    assert state.n_parameters == 2 + 3 + 12
    ansatz, reasons = find(loaded.model, state.variables, loaded.hilbert)
    assert ansatz is not None, reasons
    state.sample()
    assert jax.tree.all(jax.tree.map(np.all, loaded.optimised))
    # Parameters that mVMC keeps are told apart; without a file of parameters there are none.
    flags = [*system.files["Jastrow"].rows[:-3], (0, 1), (1, 0), (2, 1)]
    fixed = changed(system, Jastrow=File(3, flags, is_complex=False))
    kept = mvmc.load(write(tmp_path / "fixed", fixed))
    assert kept.variables is None
    assert kept.optimised["models_2"]["jastrow"].tolist() == [True, False, True]
    assert kept.optimised["models_0"]["pairs"].shape == (12,)


@pytest.mark.parametrize("name", ["heisenberg", "kondo", "turned_spins"])
def test_local_spins_keep_their_fermion(name, tmp_path):
    system = SYSTEMS[name]
    loaded = mvmc.load(write(tmp_path, system), system.parameters)
    is_local = np.array([local for _, local in system.files["LocSpin"].rows], bool)
    occupations = np.asarray(loaded.hilbert.all_states()).reshape(-1, 2, len(is_local)).sum(axis=1)
    assert (occupations[:, is_local] == 1).all()
    assert is_local.all() or (occupations[:, ~is_local].min() == 0 and occupations[:, ~is_local].max() == 2)
    sampler = fk.sampler.MetropolisHamiltonian(loaded.hilbert, hamiltonian=loaded.hamiltonian, n_chains=16)
    samplers = [sampler]
    if name != "turned_spins":  # its magnetisation isn't conserved
        edges = [(i, j) for i in range(len(is_local)) for j in range(i)]
        samplers.append(fk.sampler.MetropolisSiteExchange(loaded.hilbert, clusters=edges, n_chains=16))
    for chains in samplers:
        state = nk.vqs.MCState(chains, loaded.model, variables=loaded.variables, n_samples=2048, seed=1)
        assert fk.explain(state, loaded.hamiltonian).path == "known ratios"
        assert fk.sampler.explain(state).path == "chains in Rust"
        found = state.expect(loaded.hamiltonian)
        assert abs(found.mean - energy(loaded)) < 5 * found.error_of_mean


def check_wrong_line(folder, name, file, line, text, message):
    """A line of a file that says something else is an error, which names the file."""
    namelist = write(folder, SYSTEMS[name])
    path = namelist.parent / file
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=re.escape(str(path)) + ".*" + message):
        mvmc.load(namelist)


def test_numbers_of_local_spins_and_terms_are_checked(tmp_path):
    for name, file, line, text, message in (
        (
            "kondo",
            "locspin.def",
            2,
            "NLocSpin 5",
            "line 2: the header says that there are 5 local spins, but the li",
        ),
        ("kondo", "modpara.def", 10, "Ncond 3", "line 10: Ncond is even: fermions are paired"),
        ("kondo", "modpara.def", 10, "Ncond 10", "line 10: Ncond is from 0 to 8, .* 4 sites without a local spin, but"),
        ("kondo", "modpara.def", 10, "Nelectron 1", "line 10: Nelectron .* pairs of all fermions, from 2 to 6, with"),
        ("heisenberg", "modpara.def", 10, "Ncond 2", "line 10: Ncond is from 0 to 0"),
        (
            "turned_spins",
            "modpara.def",
            13,
            "Ncond 2",
            "line 13: .* the 3 local spins in .*locspin.def and an even",
        ),
        (
            "kondo",
            "trans.def",
            6,
            "1 0 2 0 1 0",
            "line 6: site 2 has a local spin, one fermion that stays there: lea",
        ),
    ):
        check_wrong_line(tmp_path / name, name, file, line, text, message)


def test_terms_that_vanish_on_local_spins_are_read(tmp_path):
    """Pairs hop to no local spin, and a hop with weight 0 is none."""
    kondo = SYSTEMS["kondo"]
    own = energy(mvmc.load(write(tmp_path / "own", kondo), kondo.parameters))
    # These are exchanges, too.
    four = []
    for i, j, coupling in kondo.files["Exchange"].rows:
        four += [(i, s, j, s, j, 1 - s, i, 1 - s, coupling, 0.0) for s in range(2)]
    with_more = changed(
        kondo,
        Trans=terms([*kondo.files["Trans"].rows, (0, 0, 1, 0, 0.0, 0.0), (1, 0, 0, 0, 0.0, 0.0)]),
        PairHop=terms([(0, 1, 0.7)]),
        Exchange=None,
        InterAll=terms(four),
    )
    assert energy(mvmc.load(write(tmp_path / "more", with_more), kondo.parameters)) == pytest.approx(own)


def test_what_is_absent_is_zero_or_none(tmp_path):
    system = SYSTEMS["ring"]
    alone = System({name: system.files[name] for name in ("Orbital", "TransSym")}, system.settings, 0.0, 0.0)
    loaded = mvmc.load(write(tmp_path, alone))
    assert loaded.hamiltonian is None
    assert len(loaded.model.models) == 1
    # Of several lines, as in zvo_var_001.dat, the last one counts.
    numbers = " ".join(map(str, np.arange(6 + 3 * 12)))
    (tmp_path / "zvo_var.dat").write_text(f"{'0 ' * 42}\n{numbers}\n")
    pairs = mvmc.load(tmp_path / "namelist.def", tmp_path / "zvo_var.dat").variables["params"]["models_0"]["pairs"]
    np.testing.assert_array_equal(pairs, 6 + 3 * np.arange(12))
    # Correlations without parameters are none.
    written = mvmc.save(tmp_path / "saved", loaded, {"params": {"models_0": {"pairs": np.arange(12)}}})
    namelist = write(tmp_path, system)
    with namelist.open("a") as names:
        names.write(f"InOrbital saved/{written['InOrbital'].name}\n")
    params = mvmc.load(namelist).variables["params"]
    np.testing.assert_array_equal(params["models_0"]["pairs"], np.arange(12))
    assert not params["models_2"]["jastrow"].any()
    # Two names of the same parameters.
    with namelist.open("a") as names:
        names.write(f"InOrbitalAntiParallel saved/{written['InOrbital'].name}\n")
    with pytest.raises(ValueError, match="InOrbital and InOrbitalAntiParallel, which are the same parameters"):
        mvmc.load(namelist)


def test_tied_parameters():
    """Those of an index are those of permutations, if it has the same ties."""
    space = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(2, 2))
    x = space.all_states()
    ring = np.array([np.roll(np.arange(4), shift) for shift in range(4)])
    distance = (np.arange(4) - np.arange(4)[:, None]) % 4
    near = np.minimum(distance, distance.T)
    for model, index in (
        (fk.models.Gutzwiller, np.zeros(4, int)),
        (fk.models.DensityJastrow, near - 1 + 2 * np.eye(4, dtype=int)),
        (fk.models.PairProduct, distance),
    ):
        by_permutations = model(space, translations=ring)
        by_index = model(space, translations=fk.models.TiedParameters(index))
        variables = by_index.init(jax.random.key(1), x)
        assert jax.tree.map(np.shape, variables) == jax.tree.map(np.shape, by_permutations.init(jax.random.key(0), x))
        if model is fk.models.PairProduct:
            # A ring's pairs are numbered from distance 0 on by both.
            np.testing.assert_allclose(by_index.apply(variables, x), by_permutations.apply(variables, x))
        assert find(by_index, variables, space)[1] == []
        assert hash(by_index) == hash(model(space, translations=fk.models.TiedParameters(index)))


@pytest.mark.parametrize(
    ("index", "signs", "message"),
    [
        ([[0.5]], None, "indices of parameters are integers from 0 on"),
        ([0, -1], None, "indices of parameters are integers from 0 on"),
        ([0, 1], [1, 2], "signs are 1 or −1"),
        ([0, 1], None, r"indices of parameters of pairs of sites have shape \(2, 2\), but got \(2,\)"),
        ([[0, 1], [3, 2]], None, None),
        ([[0, 1], [4, 2]], None, "parameter 3 is that of no pairs of sites: number those that are taken"),
    ],
)
def test_wrong_indices_are_named(index, signs, message):
    space = nk.hilbert.SpinOrbitalFermions(2, s=1 / 2, n_fermions_per_spin=(1, 1))

    def make():
        ties = fk.models.TiedParameters(np.array(index), signs)
        fk.models.PairProduct(space, translations=ties).init(jax.random.key(0), space.all_states())

    if message is None:
        make()
        return
    with pytest.raises(ValueError, match=message):
        make()


def test_wrong_signs_and_ties_are_named():
    space = nk.hilbert.SpinOrbitalFermions(2, s=1 / 2, n_fermions_per_spin=(1, 1))

    def init(model, **settings):
        model(space, **settings).init(jax.random.key(0), space.all_states())

    ties = fk.models.TiedParameters
    with pytest.raises(ValueError, match="parameters of sites are taken as they are, without signs"):
        init(fk.models.Gutzwiller, translations=ties([0, 1], [1, -1]))
    with pytest.raises(ValueError, match=r"indices of pairs of densities are symmetric, but those of \(0, 1\)"):
        init(fk.models.DensityJastrow, translations=ties([[0, 1], [0, 0]]))
    numbers = np.zeros((4, 4), int)
    numbers[np.triu_indices(4, k=1)] = np.arange(6)
    wrong = numbers + numbers.T
    wrong[0, 1] = 5
    with pytest.raises(ValueError, match=r"indices of general pairs are symmetric, but those of \(0, 1\) and \(1, 0\)"):
        init(fk.models.PairProduct, general=True, translations=ties(wrong))
    with pytest.raises(ValueError, match="signs of general pairs are skew-symmetric"):
        init(fk.models.PairProduct, general=True, translations=ties(numbers + numbers.T, np.ones((4, 4), int)))
    init(fk.models.PairProduct, general=True, translations=ties(numbers + numbers.T))
    with pytest.raises(ValueError, match="signs are 1 or −1 for each of 1 symmetries and 2 sites"):
        init(fk.models.PairProduct, signs=np.ones((2, 2)))


def changed(system: System, **files: File | None) -> System:
    """With other files, or without some."""
    kept = {name: file for name, file in (system.files | files).items() if file is not None}
    return System(kept, system.settings, system.energy, system.error)


RING = SYSTEMS["ring"]

# Of the files of the ring: a line that is changed, and what is said of it. Without a line the file isn't there.
WRONG = [
    ("namelist.def", 2, "LocSpin", ValueError, "namelist.def, line 2: a line has a keyword and the name of a file"),
    (
        "namelist.def",
        2,
        "Locspn locspin.def",
        ValueError,
        "line 2: the first word is a keyword of mVMC's, but got 'Locsp",
    ),
    ("namelist.def", 2, "Trans trans.def", ValueError, "line 3: each keyword is there once"),
    ("namelist.def", 1, "", ValueError, "there is no entry ModPara"),
    ("namelist.def", 7, "", ValueError, r"OrbitalGeneral alone; but got \[\]"),
    ("namelist.def", 8, "", ValueError, "no entry TransSym"),
    (
        "namelist.def",
        2,
        "ChargeRBM_PhysLayer x.def",
        NotImplementedError,
        "line 2: .* entry of restricted Boltzmann machin",
    ),
    ("namelist.def", 2, "OptTrans x.def", NotImplementedError, "an entry of optimised weights of a projection"),
    (
        "namelist.def",
        2,
        "InDH2 x.def",
        ValueError,
        r"has parameters \['indh2'\] of what isn't part of the wave function",
    ),
    ("trans.def", None, "", FileNotFoundError, "trans.def: there is no such file"),
    ("modpara.def", 9, "Nsite x", ValueError, "modpara.def, line 9: a line has Nsite and a number, finite numbers"),
    ("modpara.def", 9, "", ValueError, "modpara.def: there is no line Nsite"),
    ("modpara.def", 9, "Nsite 0", ValueError, "Nsite is 1 or more"),
    ("modpara.def", 10, "Ncond 5", ValueError, "line 10: Ncond is even"),
    (
        "modpara.def",
        10,
        "Ncond 14",
        ValueError,
        "line 10: Ncond is from 0 to 12, two electrons on each of 6 sites",
    ),
    ("modpara.def", 10, "Ncond 0", ValueError, "line 10: there is one pair of fermions or more, but got 'Ncond 0'"),
    ("modpara.def", 10, "Nelectron 7", ValueError, "line 10: Nelectron is the number of pairs .* from 0 to 6, but got"),
    ("modpara.def", 10, "Ncond 6.5", ValueError, "Ncond is an integer"),
    ("modpara.def", 13, "NMPTrans 0", ValueError, "NMPTrans isn't 0, and NSPGaussLeg is 1 or more, but got 0, 1"),
    ("modpara.def", 13, "NMPTrans 2", ValueError, "NMPTrans takes 2 symmetries, but there are 1"),
    ("modpara.def", 14, "2Sz 1", ValueError, "line 14: 2Sz of 6 fermions is even"),
    ("modpara.def", 14, "2Sz 2", ValueError, "pairs of unequal spins alone have no magnetisation, but 2Sz is 2"),
    ("locspin.def", 6, "0 1", ValueError, "locspin.def, line 2: .* 0 local spins, but the lines below have 1: change"),
    ("locspin.def", 6, "0 2", ValueError, "locspin.def, line 6: a site has a local spin, 1, or it has none, 0, but"),
    ("locspin.def", 6, "6 0", ValueError, "locspin.def, line 6: sites are numbered from 0 to 5"),
    ("locspin.def", 6, "1 0", ValueError, "locspin.def, line 7: each site is there once"),
    ("locspin.def", 6, "", ValueError, "say that 6 lines follow, 6, but there are 5"),
    (
        "trans.def",
        6,
        "0 0 1 0 nan 0",
        ValueError,
        "trans.def, line 6: .*finite numbers from word 5 on, but got '0 0 1 0 nan",
    ),
    ("trans.def", 6, "0 0 1 2 1 0", ValueError, "trans.def, line 6: spins are 0 or 1"),
    ("trans.def", 6, "0 0 6 0 1 0", ValueError, "trans.def, line 6: sites are numbered from 0 to 5"),
    ("trans.def", 6, "0 0 1", ValueError, "trans.def, line 6: a line has sites and spins, 4 integers"),
    ("trans.def", 6, "0 0 1 0 1 1", ValueError, "isn't Hermitian: name each term and its adjoint"),
    ("trans.def", 6, "", ValueError, "say that 24 lines follow, 24, but there are 23"),
    ("trans.def", 2, "NTransfer", ValueError, "trans.def, line 2: the second line of a header has a name and a number"),
    ("gutzwiller.def", 6, "0 2", ValueError, "gutzwiller.def, line 6: the header says that numbers are from 0 to 1"),
    ("gutzwiller.def", 6, "1 1", ValueError, r"gutzwiller.def: \[0\] has no parameter, others have two"),
    (
        "gutzwiller.def",
        12,
        "0 x",
        ValueError,
        "gutzwiller.def, line 12: a line has a parameter and whether it's optimised",
    ),
    ("jastrow.def", 6, "0 1 1", ValueError, r"\(0, 1\) and \(1, 0\) are the same pair of sites"),
    ("jastrow.def", 6, "1 1 0", ValueError, "jastrow.def, line 6: a Jastrow factor is one of different sites"),
    ("orbital.def", 2, "NOrbitalIdx 13", ValueError, "say that 49 lines follow, 36 \\+ 13, but there are 48"),
    ("transsym.def", 7, "0 0 1", ValueError, "transsym.def: symmetry 0 doesn't take each site to one of its own"),
    ("transsym.def", 6, "1 1", ValueError, "transsym.def, line 6: the header says that numbers are from 0 to 0"),
    ("zqp_opt.dat", None, "", FileNotFoundError, "zqp_opt.dat: there is no such file"),
    ("zqp_opt.dat", 1, "0 " * 56, ValueError, "line 1: 17 parameters are 57 numbers, .* but there are 56"),
    (
        "zqp_opt.dat",
        1,
        "0 " * 54 + "nan 0 0",
        ValueError,
        "line 1: parameter 16 isn't finite: the optimisation has failed",
    ),
    ("zqp_opt.dat", 1, "0 " * 54 + "x 0 0", ValueError, "line 1: some of the words aren't numbers"),
    ("zqp_opt.dat", 1, "", ValueError, "zqp_opt.dat: the file has no parameters"),
]


@pytest.mark.parametrize(("name", "line", "text", "error", "message"), WRONG)
def test_wrong_files_are_named(name, line, text, error, message, tmp_path):
    namelist = write(tmp_path, RING)
    (tmp_path / "zqp_opt.dat").write_bytes(RING.parameters.read_bytes())
    path = tmp_path / name
    if line is None:
        path.unlink()
    else:
        lines = path.read_text().splitlines()
        lines[line - 1] = text
        path.write_text("\n".join(lines) + "\n")
    with pytest.raises(error, match=message):
        mvmc.load(namelist, tmp_path / "zqp_opt.dat")


# Lines of a file of Jastrow parameters, and what is said of it.
WRONG_PARAMETERS = [
    (["NJastrowIdx 2", "0 0 0", "1 0 0"], "line 2: the definition files have 3 for NJastrowIdx, but this file has 2"),
    (["NJastrowIdx 3", "0 0 0", "1 0 0", "1 0 0"], "line 8: each of the parameters from 0 to 2 is there once"),
    (["NJastrowIdx 3", "0 0 0", "1 0 0", "2 inf 0"], "line 8: .*finite numbers from word 2 on"),
    (["NJastrowIdx 3", "0 0 0", "1 0 0", "2 0 0"], "no entry InOrbital, .* pairs have no parameters"),
]


@pytest.mark.parametrize(("lines", "message"), WRONG_PARAMETERS)
def test_wrong_files_of_parameters_are_named(lines, message, tmp_path):
    namelist = write(tmp_path, RING)
    with namelist.open("a") as names:
        names.write("InJastrow initial.dat\n")
    (tmp_path / "initial.dat").write_text("\n".join(["=", lines[0], "=", "=", "=", *lines[1:]]) + "\n")
    with pytest.raises(ValueError, match=message):
        mvmc.load(namelist)


def test_wrong_variables_are_named(tmp_path):
    loaded = mvmc.load(write(tmp_path, RING), RING.parameters)
    with pytest.raises(ValueError, match="the parameters of this state are"):
        mvmc.save(tmp_path, loaded, {"params": {"models_0": {"pairs": np.zeros(12)}}})
    broken = jax.tree.map(lambda leaf: leaf * math.nan, loaded.variables)
    with pytest.raises(ValueError, match="17 of them aren't"):
        mvmc.save(tmp_path, loaded, broken)


def test_signs_and_pairs_of_spins_are_checked(tmp_path):
    for name, file, line, text, message in (
        ("antiperiodic", "orbital.def", 6, "0 0 0 2", "line 6: with a negative NMPTrans .* signs are 1 or -1"),
        (
            "antiperiodic",
            "transsym.def",
            9,
            "0 0 0",
            "line 9: a line has a symmetry, a site and where it goes, and a s",
        ),
        ("general", "orbitalgeneral.def", 6, "1 0 0 0 0", "line 6: of a pair the first site and spin comes before"),
        ("general", "orbitalgeneral.def", 6, "0 2 1 0 0", "line 6: spins are 0 or 1"),
        ("general", "modpara.def", 14, "2Sz 8", "line 14: 2Sz of 4 fermions is even, and at most as large"),
        ("spin", "dh2.def", 6, "1 1 5 0", "there is no line of shell 0 of site 0"),
    ):
        check_wrong_line(tmp_path / name, name, file, line, text, message)
