"""Operators on spaces that limit the occupations of sites, against matrices that are projected explicitly."""

from typing import Any

import jax
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket._compat import netket as compat
from ferroket.operator.compiled import Terms
from ferroket.operator.constraints.projected_form import Projected
from ferroket.operator.sums import term_list
from support.limited_sites import SPACES, Matrices, random_operator, space

cases = pytest.mark.parametrize("hilbert", SPACES.values(), ids=SPACES)


def assert_matrix(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.quick("t-J", "all kinds of sites")
@cases
def test_random_operators(hilbert: Any) -> None:
    operator, expected = random_operator(hilbert)
    assert isinstance(operator._form, Terms)
    assert_matrix(operator.to_dense(), expected)
    assert_matrix(operator.trace(), expected.trace())
    assert operator.is_hermitian
    x = np.asarray(hilbert.all_states())
    xp, mels = operator.get_conn_padded(x)
    assert hilbert.constraint(xp.reshape(-1, hilbert.size)).all()
    n_conn = (np.abs(expected) > 1e-12).sum(axis=1)
    np.testing.assert_array_equal(operator.n_conn(x), n_conn)
    assert n_conn.max() <= operator.max_conn_size == mels.shape[1]
    on_free_space = fk.operator.FermionOperator2nd(
        nk.hilbert.SpinOrbitalFermions(hilbert.n_orbitals, s=hilbert.spin), operator.terms, operator.weights
    )
    assert operator.max_conn_size <= on_free_space.max_conn_size


@pytest.mark.thorough
@cases
@pytest.mark.parametrize("seed", range(20))
def test_many_random_operators(hilbert: Any, seed: int) -> None:
    operator, expected = random_operator(hilbert, n_terms=30, seed=100 + seed)
    assert_matrix(operator.to_dense(), expected)
    assert (np.abs(expected) > 1e-12).sum(axis=1).max() <= operator.max_conn_size


def test_products_may_leave_the_space_in_between() -> None:
    hilbert = SPACES["t-J"]
    hops, ops = fk.operator.fermion.hopping(hilbert, [(0, 1), (1, 2)]), Matrices(hilbert)
    matrix = -sum(ops.c(i, spin).T @ ops.c(j, spin) for spin in range(2) for i, j in ((0, 1), (1, 0), (1, 2), (2, 1)))
    expected = ops.projected(matrix @ matrix)
    assert abs(expected - ops.projected(matrix) @ ops.projected(matrix)).max() > 0.5
    assert_matrix((hops @ hops).to_dense(), expected)
    # What NetKet squares is the operator on the space.
    squared = fk.accelerate(nk.operator.Squared(hops))
    assert_matrix(squared.to_dense(), ops.projected(matrix) @ ops.projected(matrix))


@pytest.mark.parametrize("name", ["t-J", pytest.param("Kondo", marks=pytest.mark.thorough)])
def test_other_families(name: str) -> None:
    hilbert = SPACES[name]
    n = hilbert.n_orbitals
    free = nk.hilbert.SpinOrbitalFermions(n, s=0.5)
    hop = np.zeros((4, 4))
    hop[1, 2] = hop[2, 1] = 1.0
    pairs = [[spin * n + i, spin * n + j] for spin in range(2) for i, j in ((0, 1), (1, 2))]
    numbers = Matrices(hilbert).numbers

    def check(make: Any) -> Any:
        operator = make(fk.operator, hilbert)
        matrix = np.asarray(make(nk.operator, free).to_dense())
        assert_matrix(operator.to_dense(), matrix[np.ix_(numbers, numbers)])
        return operator

    local = check(lambda op, space: op.LocalOperator(space, [hop] * len(pairs), pairs, constant=0.5))
    assert isinstance(local._form, Terms)
    letters = ["XX" + "I" * (2 * n - 2), "YY" + "I" * (2 * n - 2), "Z" * 2 * n]
    check(lambda op, space: getattr(op, "PauliStringsJax", op.PauliStrings)(space, letters, [0.5, 0.5, 1.0]))


@pytest.mark.thorough
def test_families_that_are_no_sums_of_terms_that_look_at_sites() -> None:
    hilbert, free = SPACES["t-J, any number"], nk.hilbert.SpinOrbitalFermions(3, s=0.5)
    numbers = Matrices(hilbert).numbers
    edges = [(0, 1), (1, 5)]
    ising = fk.operator.Ising(hilbert, edges, h=1.3, J=0.7)
    assert isinstance(ising._form, Projected)
    expected = np.asarray(nk.operator.IsingJax(free, edges, h=1.3, J=0.7).to_dense())[np.ix_(numbers, numbers)]
    assert_matrix(ising.to_dense(), expected)
    assert_matrix((ising + ising).to_dense(), 2 * expected)
    xp, _ = ising.get_conn_padded(np.asarray(hilbert.all_states()))
    assert hilbert.constraint(xp.reshape(-1, 6)).all()
    hilbert, free = SPACES["t-J"], nk.hilbert.SpinOrbitalFermions(3, s=0.5, n_fermions_per_spin=(1, 1))
    numbers = [i for i, x in enumerate(np.asarray(free.all_states())) if hilbert.constraint(x)]
    permutation = nk.utils.group.Permutation(permutation_array=np.array([1, 2, 0, 4, 5, 3]))
    rotated = fk.operator.PermutationOperatorFermion(hilbert, permutation)
    theirs = nk.operator.permutation.PermutationOperatorFermion(free, permutation)
    assert_matrix(rotated.to_dense(), np.asarray(theirs.to_dense())[np.ix_(numbers, numbers)])


def test_a_constraint_of_a_users_own_besides() -> None:
    class FirstSiteIsFull(nk.hilbert.constraint.DiscreteHilbertConstraint):
        def __call__(self, x: jax.Array) -> jax.Array:
            return x[..., 0] == 1

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return type(self) is type(other)

    hilbert = space(3, maximum=1, n_fermions_per_spin=(1, 1), constraint=FirstSiteIsFull())
    operator, expected = random_operator(hilbert)
    assert isinstance(operator._form, Projected)
    assert_matrix(operator.to_dense(), expected)


def test_products_opss() -> None:
    hilbert = nk.hilbert.Spin(0.5, 1) * SPACES["t-J"]
    spin = fk.operator.LocalOperator(hilbert, [np.array([[0.0, 1.0], [1.0, 0.0]])], [[0]])
    hops, expected = random_operator(SPACES["t-J"])
    assert_matrix(spin.to_dense(), np.kron([[0, 1], [1, 0]], np.eye(len(expected))))
    if compat.EMBEDDINGS:
        embedded = fk.accelerate(nk.operator.EmbedOperator(hilbert, hops, 1))
        assert_matrix(embedded.to_dense(), np.kron(np.eye(2), expected))


def test_how_many_connected_elements_there_are() -> None:
    """Along an edge there is one move at most, a hop or an exchange of spins."""
    graph = nk.graph.Square(4)
    hilbert = space(16, maximum=1, n_fermions_per_spin=(7, 7))
    assert fk.operator.TJ(hilbert, graph).max_conn_size == graph.n_edges + 1
    free = nk.hilbert.SpinOrbitalFermions(16, s=0.5, n_fermions_per_spin=(7, 7))
    assert fk.operator.fermion.hopping(free, graph).max_conn_size > graph.n_edges + 1


def test_the_trace_of_the_identity() -> None:
    operator = fk.operator.fermion.identity(SPACES["Kondo"])
    assert operator.trace() == SPACES["Kondo"].n_states


def test_sites_with_one_fermion_are_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms look at one mode of each, and S_i·S_j has a sign and two patterns in the place of six of them."""
    sites = 5
    one = fk.hilbert.SiteOccupations(sites, minimum=1, maximum=1)
    hilbert = nk.hilbert.SpinOrbitalFermions(sites, s=1 / 2, n_fermions=sites, constraint=one)
    edges = [(i, j) for i in range(sites) for j in range(i)]
    coupled = fk.operator.fermion.spin_coupling(hilbert, edges, np.arange(1.0, 1 + len(edges)))
    assert len(coupled._form.values) == 3 * len(edges)
    spins = nk.operator.spin
    of_spins = nk.hilbert.Spin(0.5, sites)
    expected = sum(
        0.25 * (1 + edge) * s(of_spins, i) @ s(of_spins, j)
        for edge, (i, j) in enumerate(edges)
        for s in (spins.sigmax, spins.sigmay, spins.sigmaz)
    )
    energies = np.linalg.eigvalsh(coupled.to_dense())
    np.testing.assert_allclose(energies, np.linalg.eigvalsh(expected.to_dense()), atol=1e-12)
    # Where there is no room for signs, terms stay patterns.
    monkeypatch.setattr(term_list, "_MAX_TERMS", 30)
    in_patterns = fk.operator.fermion.spin_coupling(hilbert, edges, np.arange(1.0, 1 + len(edges)))
    assert len(in_patterns._form.values) == 6 * len(edges)
    assert_matrix(in_patterns.to_dense(), coupled.to_dense())
    monkeypatch.undo()
    # Three bodies, with signs in the modes that aren't looked at any more.
    chiral = coupled @ coupled @ coupled
    np.testing.assert_allclose(np.linalg.eigvalsh(chiral.to_dense()), np.sort(energies**3), rtol=1e-9, atol=1e-9)
