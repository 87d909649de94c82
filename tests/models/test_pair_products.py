"""Pair product states against what pairs are in second quantisation."""

import math

import jax
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.ansatz.registry import find

SITES = 4
SPACE = nk.hilbert.SpinOrbitalFermions(SITES, s=1 / 2, n_fermions_per_spin=(2, 2))
ROTATIONS = np.array([np.roll(np.arange(SITES), shift) for shift in range(SITES)])
CHARACTERS = np.exp(2j * np.pi * np.arange(SITES) / SITES)


def condensate(pairs: np.ndarray, n_pairs: int, space) -> np.ndarray:
    """(Σ_ab F_ab c†_a c†_b / 2)^n |0⟩ on the configurations of a space, of F ``(N, N)``."""
    everything = nk.hilbert.SpinOrbitalFermions(SITES, s=1 / 2)
    creators = [nk.operator.FermionOperator2nd(everything, [f"{mode}^"]).to_sparse() for mode in range(everything.size)]
    pair = sum(
        pairs[a, b] / 2 * creators[a] @ creators[b] for a in range(len(pairs)) for b in range(len(pairs)) if a != b
    )
    psi = np.zeros(everything.n_states, complex)
    psi[everything.states_to_numbers(np.zeros(everything.size))] = 1
    for _ in range(n_pairs):
        psi = pair @ psi
    return psi[np.asarray(everything.states_to_numbers(np.asarray(space.all_states())))] / math.factorial(n_pairs)


def matrix_of(model, pairs):
    """F of all modes, by definition."""
    from ferroket.models.pair_product import pair_elements

    orbits, sign = pair_elements(model)
    matrix = np.asarray(pairs)[orbits] * sign
    if model.general:
        return matrix
    return np.block([[np.zeros((SITES, SITES)), matrix], [-matrix.T, np.zeros((SITES, SITES))]])


def check(psi, expected):
    """Equal up to a factor."""
    psi, expected = psi / np.linalg.norm(psi), expected / np.linalg.norm(expected)
    overlap = np.vdot(expected, psi)
    np.testing.assert_allclose(psi, expected * overlap, atol=1e-12)
    assert abs(overlap) == pytest.approx(1)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("general", [False, True])
@pytest.mark.parametrize("translations", [None, ROTATIONS[::2], ROTATIONS])
def test_states_are_condensates(dtype, general, translations):
    model = fk.models.PairProduct(SPACE, general=general, translations=translations, param_dtype=dtype)
    variables = model.init(jax.random.key(3), SPACE.all_states()[:1])
    psi = np.exp(model.apply(variables, SPACE.all_states()))
    f = matrix_of(model, variables["params"]["pairs"])
    np.testing.assert_array_equal(f, -f.T)
    check(psi, condensate(f, 2, SPACE))
    for permutation in [] if translations is None else translations:
        both = np.concatenate([permutation, permutation + SITES])
        np.testing.assert_array_equal(f[np.ix_(both, both)], f)


@pytest.mark.parametrize("general", [False, True])
def test_projected_states_are_sums_of_condensates(general):
    model = fk.models.PairProduct(SPACE, general=general, symmetries=ROTATIONS, characters=CHARACTERS)
    variables = model.init(jax.random.key(5), SPACE.all_states()[:1])
    psi = np.exp(model.apply(variables, SPACE.all_states()))
    f, expected = matrix_of(model, variables["params"]["pairs"]), 0
    for permutation, character in zip(ROTATIONS, CHARACTERS, strict=True):
        both = np.concatenate([permutation, permutation + SITES])
        expected = expected + character * condensate(f[np.ix_(both, both)], 2, SPACE)
    check(psi, expected)
    check_momentum(psi)


def check_momentum(psi):
    """To move all fermions by a site multiplies the state by the phase of the characters."""
    both = np.concatenate([ROTATIONS[1], ROTATIONS[1] + SITES])
    moved = np.zeros_like(psi)
    for number, state in enumerate(np.asarray(SPACE.all_states())):
        places = both[np.flatnonzero(state)]
        sign = round(np.linalg.det(np.eye(len(places))[np.argsort(places)]))
        image = np.zeros_like(state)
        image[places] = 1
        moved[SPACE.states_to_numbers(image)] = sign * psi[number]
    np.testing.assert_allclose(moved, CHARACTERS[1] * psi, atol=1e-12)


@pytest.mark.parametrize("parity", [None, 1, -1])
def test_the_product_of_pairs_and_a_machine_is_projected(parity):
    machine = nk.models.RBM(param_dtype=float, kernel_init=jax.nn.initializers.normal(0.3))
    settings = {"symmetries": ROTATIONS, "characters": CHARACTERS, "parity": parity}
    model = fk.models.PairProduct(SPACE, **settings, correlations=machine)
    x = np.asarray(SPACE.all_states())
    variables = model.init(jax.random.key(5), x[:1])
    psi = np.exp(model.apply(variables, x))
    params, expected = variables["params"], 0
    for permutation, character in zip(ROTATIONS, CHARACTERS, strict=True):
        both = np.concatenate([permutation, permutation + SITES])
        moved = np.zeros_like(x)
        moved[:, both] = x
        factor = np.exp(machine.apply({"params": params["correlations"]}, moved))
        f = matrix_of(model, params["pairs"])[np.ix_(both, both)]
        expected = expected + character * factor * condensate(f, 2, SPACE)
    flipped = SPACE.states_to_numbers(np.roll(x, SITES, axis=1))
    check(psi, expected if parity is None else expected + parity * expected[flipped])
    check_momentum(psi)
    squared = total_spin_squared(SPACE)  # of four fermions S is 0, 1 or 2
    if parity == 1:
        np.testing.assert_allclose(squared @ squared @ psi, 6 * squared @ psi, atol=1e-11)
    if parity == -1:
        np.testing.assert_allclose(squared @ psi, 2 * psi, atol=1e-12)


def total_spin_squared(space) -> np.ndarray:
    """S² of fermions on sites, dense."""
    from netket.operator.fermion import create, destroy

    everything = nk.hilbert.SpinOrbitalFermions(SITES, s=1 / 2)

    def spin(site, to, start):
        return create(everything, site, to) @ destroy(everything, site, start)

    raised = sum(spin(site, 1, -1) for site in range(SITES))
    along_z = sum(0.5 * (spin(site, 1, 1) - spin(site, -1, -1)) for site in range(SITES))
    squared = (raised @ raised.conjugate().transpose() + along_z @ along_z - along_z).to_sparse()
    where = np.asarray(everything.states_to_numbers(np.asarray(space.all_states())))
    return squared.tocsr()[where][:, where].toarray()


@pytest.mark.parametrize("total_spin", [0, 1, 2])
@pytest.mark.parametrize("dtype", [float, complex])
def test_states_are_projected_onto_a_total_spin(total_spin, dtype):
    rotations = fk.models.spin_rotations(total_spin, (total_spin + 2) // 2 + 1)
    model = fk.models.PairProduct(SPACE, rotations=rotations, param_dtype=dtype)
    variables = model.init(jax.random.key(7), SPACE.all_states()[:1])
    psi = np.exp(model.apply(variables, SPACE.all_states()))
    squared = total_spin_squared(SPACE)
    np.testing.assert_allclose(squared @ psi, total_spin * (total_spin + 1) * psi, atol=1e-10)
    # It is the projection of the state without rotations, and with as many weights it is as large.
    plain = np.exp(fk.models.PairProduct(SPACE, param_dtype=dtype).apply(variables, SPACE.all_states()))
    _, vectors = np.linalg.eigh(squared)
    values = np.linalg.eigvalsh(squared)
    own = vectors[:, np.abs(values - total_spin * (total_spin + 1)) < 1e-8]
    expected = own @ (own.T @ plain)
    sign = np.vdot(expected, psi) / np.vdot(expected, expected)
    assert abs(sign) == pytest.approx(1)
    np.testing.assert_allclose(psi, expected * sign, atol=1e-10)


def test_projections_onto_momentum_and_spin_go_together():
    settings = {"symmetries": ROTATIONS, "characters": CHARACTERS}
    rotations = fk.models.spin_rotations(0, 2)
    model = fk.models.PairProduct(SPACE, rotations=rotations, **settings)
    variables = model.init(jax.random.key(9), SPACE.all_states()[:1])
    psi = np.exp(model.apply(variables, SPACE.all_states()))
    alone = np.exp(fk.models.PairProduct(SPACE, **settings).apply(variables, SPACE.all_states()))
    values, vectors = np.linalg.eigh(total_spin_squared(SPACE))
    singlets = vectors[:, np.abs(values) < 1e-8]
    check(psi, singlets @ (singlets.T @ alone))


FACTORS = (
    fk.models.Gutzwiller(SPACE),
    fk.models.Gutzwiller(SPACE, translations=ROTATIONS),
    fk.models.DensityJastrow(SPACE),
    fk.models.DensityJastrow(SPACE, translations=ROTATIONS),
)
NEIGHBOURS = (np.stack([np.roll(np.arange(SITES), 1), np.roll(np.arange(SITES), -1)], axis=1),)


def test_factors_are_their_definitions():
    x = np.asarray(SPACE.all_states())
    n = x[:, :SITES] + x[:, SITES:]
    for model in (*FACTORS, fk.models.DoublonHolon(SPACE, NEIGHBOURS)):
        variables = model.init(jax.random.key(1), x[:1])
        (numbers,) = (np.asarray(leaf) for leaf in jax.tree.leaves(variables))
        if isinstance(model, fk.models.Gutzwiller):
            expected = (n == 2).astype(float) @ (numbers if numbers.size > 1 else np.full(SITES, numbers[0]))
        elif isinstance(model, fk.models.DoublonHolon):
            expected = np.zeros(len(x))
            for row, of_row in enumerate(n):
                for site, there in enumerate(NEIGHBOURS[0]):
                    if of_row[site] == 2:
                        expected[row] += numbers[0, (of_row[there] == 0).sum()]
                    if of_row[site] == 0:
                        expected[row] += numbers[1, (of_row[there] == 2).sum()]
        else:
            # On a ring there are neighbours, and those that are two sites apart.
            pairs = [(i, j) for i in range(SITES) for j in range(i)]
            of_pairs = [numbers[[0, 1, 0][i - j - 1]] for i, j in pairs] if numbers.size == 2 else numbers
            expected = sum(v * (n[:, i] - 1) * (n[:, j] - 1) for v, (i, j) in zip(of_pairs, pairs, strict=True))
        np.testing.assert_allclose(model.apply(variables, x), expected, atol=1e-13)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"param_dtype": complex},
        {"translations": ROTATIONS},
        {"symmetries": ROTATIONS, "characters": CHARACTERS},
        {"symmetries": ROTATIONS, "characters": CHARACTERS, "correlations": nk.models.RBM(param_dtype=float)},
        {"symmetries": ROTATIONS, "characters": CHARACTERS, "parity": 1},
        {"general": True},
        {"rotations": fk.models.spin_rotations(0, 2)},
    ],
)
def test_ratios_are_known(settings):
    pairs = fk.models.PairProduct(SPACE, **settings)
    for model in (pairs, fk.models.Product((pairs, *FACTORS))):
        variables = model.init(jax.random.key(2), SPACE.all_states()[:1])
        ansatz, reasons = find(model, variables, SPACE)
        assert ansatz is not None, reasons


@pytest.mark.parametrize(
    ("correlations", "reason"),
    [
        (nk.models.RBM(param_dtype=complex), "known for RBM and RBMSymm of real parameters, not RBM"),
        (nk.models.Jastrow(), "known for RBM and RBMSymm of real parameters, not Jastrow"),
        (nk.models.MLP(), "of the pairs' correlations, netket's MLP is none of the models"),
    ],
)
def test_other_correlations_are_networks(correlations, reason):
    model = fk.models.PairProduct(SPACE, symmetries=ROTATIONS, correlations=correlations)
    variables = model.init(jax.random.key(2), SPACE.all_states()[:1])
    ansatz, (found, *_) = find(model, variables, SPACE)
    assert ansatz is None
    assert reason in found


@pytest.mark.parametrize("settings", [{}, {"general": True}, {"rotations": fk.models.spin_rotations(0, 2)}])
def test_results_are_as_precise_as_parameters(settings):
    model = fk.models.PairProduct(SPACE, param_dtype=np.float32, **settings)
    x = SPACE.all_states()
    variables = model.init(jax.random.key(1), x[:1])
    assert model.apply(variables, x).dtype == np.complex64
    # Where ψ is 0 derivatives are large, but numbers.
    zero = jax.tree.map(np.zeros_like, variables)
    gradient = jax.grad(lambda variables: model.apply(variables, x[:1]).real.sum())(zero)
    assert np.isfinite(gradient["params"]["pairs"]).all()


def test_translations_of_a_sublattice():
    graph = nk.graph.Grid([4, 6], pbc=True)
    found = fk.models.sublattice_translations(graph, (2, 3))
    assert found.shape == (4, 24)
    everything = {tuple(row) for row in graph.translation_group().to_array().tolist()}
    assert {tuple(row) for row in found.tolist()} <= everything
    assert len({tuple(row) for row in found.tolist()}) == 4
    for row in found:
        shift = (graph.basis_coords[row] - graph.basis_coords)[:, :2] % [4, 6]
        assert (shift == shift[0]).all()
        assert not (shift[0] % [2, 3]).any()
    kagome = nk.graph.Kagome([2, 4], pbc=True)
    assert fk.models.sublattice_translations(kagome, (1, 2)).shape == (4, kagome.n_nodes)
    # f of a 2×2 sublattice on 6×6 sites, and Jastrow factors as mVMC counts them.
    square = nk.graph.Square(6)
    translations = fk.models.sublattice_translations(square, (2, 2))
    space = nk.hilbert.SpinOrbitalFermions(36, s=1 / 2, n_fermions_per_spin=(15, 15))
    from ferroket.models.pair_product import n_parameters

    assert n_parameters(fk.models.PairProduct(space, translations=translations)) == 144


def test_what_is_wrong_is_named():
    def init(model):
        model.init(jax.random.key(0), np.zeros((1, 8)))

    unequal = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(2, 1))
    with pytest.raises(ValueError, match=r"as many fermions of each, not \(2, 1\): with general=True"):
        init(fk.models.PairProduct(unequal))
    with pytest.raises(ValueError, match="pairs of 3 fermions leave one alone"):
        init(fk.models.PairProduct(unequal, general=True))
    with pytest.raises(ValueError, match=r"permutations of 4 sites are an array \(G, 4\)"):
        init(fk.models.PairProduct(SPACE, translations=np.zeros((2, 4), int)))
    with pytest.raises(ValueError, match=r"there are 4 symmetries, but characters of shape \(3,\)"):
        init(fk.models.PairProduct(SPACE, symmetries=ROTATIONS, characters=np.ones(3)))
    with pytest.raises(ValueError, match=r"an angle and a weight each, \(Q, 2\), not an array of shape \(3,\)"):
        init(fk.models.PairProduct(SPACE, rotations=np.ones(3)))
    with pytest.raises(ValueError, match="rotations around one axis project pairs of unequal spins alone"):
        init(fk.models.PairProduct(SPACE, rotations=fk.models.spin_rotations(0, 2), general=True))
    with pytest.raises(TypeError, match=r"correlations are a linen module, such as nk.models.RBM"):
        init(fk.models.PairProduct(SPACE, correlations=np.cos))
    with pytest.raises(ValueError, match="correlations are projected with pairs of unequal spins alone"):
        init(fk.models.PairProduct(SPACE, correlations=nk.models.RBM(), general=True))
    with pytest.raises(ValueError, match=r"parity=2 must be 1 or -1, or None"):
        init(fk.models.PairProduct(SPACE, parity=2))
    with pytest.raises(ValueError, match="projected onto a parity with pairs of unequal spins alone"):
        init(fk.models.PairProduct(SPACE, parity=1, rotations=fk.models.spin_rotations(0, 2)))
    with pytest.raises(ValueError, match=r"signs are 1 or −1, but got 1j"):
        init(fk.models.PairProduct(SPACE, general=True, signs=np.full((1, SITES), 1j)))
    with pytest.raises(ValueError, match=r"angles and weights of rotations are finite real numbers"):
        init(fk.models.PairProduct(SPACE, rotations=[[np.nan, 1.0]]))
    with pytest.raises(ValueError, match=r"characters are finite numbers, but got \[nan\]"):
        init(fk.models.PairProduct(SPACE, characters=[np.nan]))
    alone = nk.hilbert.SpinOrbitalFermions(2, n_fermions=2)
    with pytest.raises(ValueError, match=r"no pair is left: translations take each pair of modes to minus itself"):
        fk.models.PairProduct(alone, general=True, translations=[[0, 1], [1, 0]]).init(
            jax.random.key(0), np.ones((1, 2))
        )
    with pytest.raises(ValueError, match=r"have a total spin of 0, 1, 2, ..., not 0.5"):
        fk.models.spin_rotations(0.5, 3)
    with pytest.raises(ValueError, match="an integral takes 1 point or more, not 0"):
        fk.models.spin_rotations(0, 0)
    with pytest.raises(TypeError, match=r"PairProduct takes a nk.hilbert.SpinOrbitalFermions, but got Spin"):
        init(fk.models.PairProduct(nk.hilbert.Spin(1 / 2, 8)))
    with pytest.raises(TypeError, match="a space with a fixed number of fermions"):
        init(fk.models.PairProduct(nk.hilbert.SpinOrbitalFermions(4, s=1 / 2)))
    with pytest.raises(ValueError, match="Gutzwiller takes fermions of 2 spins"):
        fk.models.Gutzwiller(nk.hilbert.SpinOrbitalFermions(8, n_fermions=2)).init(jax.random.key(0), np.zeros((1, 8)))
    graph = nk.graph.Grid([4, 6], pbc=True)
    with pytest.raises(ValueError, match=r"a period of \[3, 3\] doesn't fit a lattice of \[4, 6\] cells"):
        fk.models.sublattice_translations(graph, (3, 3))
    with pytest.raises(ValueError, match="along periodic axes alone"):
        fk.models.sublattice_translations(nk.graph.Grid([4, 6], pbc=[True, False]), (2, 3))
    with pytest.raises(TypeError, match=r"only a nk.graph.Lattice has translations"):
        fk.models.sublattice_translations(nk.graph.Graph(edges=[(0, 1)]), (1,))


def test_tied_determinants():
    """Bloch functions of a sublattice: translations multiply the state by a phase."""
    graph = nk.graph.Square(4)
    space = nk.hilbert.SpinOrbitalFermions(16, s=1 / 2, n_fermions_per_spin=(5, 5))
    translations = fk.models.sublattice_translations(graph, (2, 2))
    characters = fk.models.free_fermion_characters(graph, (2, 2), 5)
    assert characters.dtype == float
    model = fk.models.SlaterJastrow(space, translations=translations, characters=characters)
    x = np.asarray(space.random_state(jax.random.key(0), 30))
    variables = model.init(jax.random.key(1), x)
    assert {name: leaf.shape for name, leaf in variables["params"].items()} == {
        "orbitals_0": (4, 5),
        "jastrow": (36,),
        "gutzwiller": (4,),
    }
    psi = np.exp(model.apply(variables, x))
    for translation in translations:
        moved = np.zeros_like(x)
        moved[:, np.concatenate([translation, translation + 16])] = x
        np.testing.assert_allclose(np.abs(np.exp(model.apply(variables, moved))), np.abs(psi), rtol=1e-10, atol=1e-14)
    assert find(model, variables, space)[1] == []
    # The free Fermi sea is one of these states: its characters are those of plane waves.
    sea = fk.models.free_fermion_characters(nk.graph.Square(6), (2, 2), 15)
    assert sea.dtype == complex
    np.testing.assert_allclose(np.abs(sea), 1)
    np.testing.assert_allclose(fk.models.free_fermion_characters(graph, (4, 4), 16), np.ones((16, 1)))
    for wrong, message in {
        "characters of 4 translations are": {"characters": np.ones((5, 3))},
        "characters are those of \\[5\\] orbitals of both spins": {"characters": characters[:4]},
        "orbitals have a character for translations that leave no site": {
            "translations": graph.point_group().to_array()[:4],
            "characters": characters,
        },
        "there are complex characters": {"characters": characters * 1j},
    }.items():
        with pytest.raises(ValueError, match=wrong):
            fk.models.SlaterJastrow(space, **{"translations": translations, **message}).init(jax.random.key(0), x)
