"""The t-J model, Kondo lattices and the terms of lattice Hamiltonians, against matrices of fermions."""

import itertools
from typing import Any

import netket as nk
import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import ferroket as fk
from support.limited_sites import EDGES, KONDO, SPACES, TRIANGLE, Matrices, space

FREE = nk.hilbert.SpinOrbitalFermions(3, s=0.5)
ON_FREE = Matrices(FREE)
REAL = np.array([0.5, -1.0, 0.75])
COMPLEX = REAL + 1j * np.array([1.0, 0.25, -0.5])
fermion = fk.operator.fermion


def with_adjoint(matrix: Any) -> Any:
    return matrix + matrix.conj().T


def hops(ops: Matrices, edges: Any, amplitudes: Any) -> np.ndarray:
    of_edges = zip(edges, amplitudes, strict=True)
    return -with_adjoint(sum(t * ops.c(i, spin).T @ ops.c(j, spin) for (i, j), t in of_edges for spin in range(2)))


def of_edges(function: Any, coefficients: Any) -> Any:
    return sum(value * function(i, j) for (i, j), value in zip(EDGES, coefficients, strict=True))


def exchanged(i: int, j: int) -> Any:
    return ON_FREE.c(i, 1).T @ ON_FREE.c(j, 1) @ ON_FREE.c(j, 0).T @ ON_FREE.c(i, 0)


def pair(i: int, j: int) -> Any:
    return ON_FREE.c(i, 1).T @ ON_FREE.c(j, 1) @ ON_FREE.c(i, 0).T @ ON_FREE.c(j, 0)


TERMS = {
    "hopping": (lambda: fermion.hopping(FREE, TRIANGLE, REAL), hops(ON_FREE, EDGES, REAL)),
    "complex hopping": (lambda: fermion.hopping(FREE, EDGES, COMPLEX), hops(ON_FREE, EDGES, COMPLEX)),
    "on-site repulsion": (
        lambda: fermion.coulomb_intra(FREE, REAL),
        sum(U * ON_FREE.n(i, 0) @ ON_FREE.n(i, 1) for i, U in enumerate(REAL)),
    ),
    "repulsion": (
        lambda: fermion.coulomb_inter(FREE, EDGES, REAL),
        of_edges(lambda i, j: ON_FREE.total(i) @ ON_FREE.total(j), REAL),
    ),
    "Hund": (
        lambda: fermion.hund(FREE, EDGES, REAL),
        of_edges(
            lambda i, j: -ON_FREE.n(i, 0) @ ON_FREE.n(j, 0) - ON_FREE.n(i, 1) @ ON_FREE.n(j, 1),
            REAL,
        ),
    ),
    "exchange": (lambda: fermion.exchange(FREE, EDGES, COMPLEX), with_adjoint(of_edges(exchanged, COMPLEX))),
    "pair hopping": (lambda: fermion.pair_hopping(FREE, EDGES, COMPLEX), with_adjoint(of_edges(pair, COMPLEX))),
    "spins": (lambda: fermion.spin_coupling(FREE, EDGES, REAL), of_edges(ON_FREE.coupling, REAL)),
}


@pytest.mark.quick("complex hopping", "exchange", "spins")
@pytest.mark.parametrize("name", TERMS)
def test_terms(name: str) -> None:
    make, expected = TERMS[name]
    operator = make()
    assert operator.is_hermitian
    np.testing.assert_allclose(operator.to_dense(), ON_FREE.projected(expected), atol=1e-14)
    assert operator.dtype == expected.dtype


def test_exchange_is_that_of_spins() -> None:
    raising = [ON_FREE.c(site, 1).T @ ON_FREE.c(site, 0) for site in range(2)]
    expected = -with_adjoint(raising[0] @ raising[1].T)
    np.testing.assert_allclose(fermion.exchange(FREE, [(0, 1)]).to_dense(), ON_FREE.projected(expected), atol=1e-14)


def test_dtypes() -> None:
    assert fermion.hopping(FREE, TRIANGLE, dtype=np.float32).dtype == np.float32
    assert fermion.spin_coupling(FREE, TRIANGLE, 1, dtype=complex).dtype == complex
    assert fk.operator.TJ(SPACES["t-J"], TRIANGLE, dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize("name", ["t-J", "t-J, any number"])
def test_t_j(name: str) -> None:
    hilbert = SPACES[name]
    ops = Matrices(hilbert)
    expected = hops(ops, EDGES, COMPLEX) + of_edges(ops.coupling, REAL)
    density = [ops.total(i) @ ops.total(j) for i, j in EDGES]
    found = fk.operator.TJ(hilbert, TRIANGLE, COMPLEX, REAL)
    default = expected - sum(J / 4 * n for J, n in zip(REAL, density, strict=True))
    np.testing.assert_allclose(found.to_dense(), ops.projected(default), atol=1e-14)
    found = fk.operator.TJ(hilbert, EDGES, COMPLEX, REAL, V=0.3)
    np.testing.assert_allclose(found.to_dense(), ops.projected(expected + 0.3 * sum(density)), atol=1e-14)


@pytest.mark.parametrize("fermions", [(2, 2), (1, 2)])
def test_kondo_lattice(fermions: tuple[int, int]) -> None:
    hilbert = space(4, **KONDO, n_fermions_per_spin=fermions)
    ops = Matrices(hilbert)
    expected = hops(ops, [(0, 1)], [1 + 0.5j]) + 0.75 * ops.coupling(0, 2) - 0.5 * ops.coupling(1, 3)
    found = fk.operator.KondoLattice(hilbert, nk.graph.Chain(2, pbc=False), t=1 + 0.5j, J=[0.75, -0.5])
    np.testing.assert_allclose(found.to_dense(), ops.projected(expected), atol=1e-14)


def test_three_bodies() -> None:
    """Correlated hops, as products of operators: n_k c†_i c_j, and c†c†c†ccc."""
    hilbert = SPACES["t-J"]
    ops = Matrices(hilbert)
    correlated = fermion.hopping(hilbert, [(0, 1)]) @ fermion.number(hilbert, 2, 1)
    expected = hops(ops, [(0, 1)], [1.0]) @ ops.n(2, 1)
    np.testing.assert_allclose(correlated.to_dense(), ops.projected(expected), atol=1e-14)
    term = ((0, 1), (4, 1), (2, 1), (5, 0), (1, 0), (0, 0))
    found = fk.operator.FermionOperator2nd(FREE, [term], [0.7])
    c = [ON_FREE.c(orbital % 3, orbital // 3) for orbital in range(6)]
    product = 0.7 * c[0].T @ c[4].T @ c[2].T @ c[5] @ c[1] @ c[0]
    np.testing.assert_allclose(found.to_dense(), ON_FREE.projected(product), atol=1e-14)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: fermion.hopping(nk.hilbert.Qubit(3), EDGES), TypeError, "take nk.hilbert.SpinOrbitalFermions"),
        (lambda: fermion.hopping(FREE, [(0, 3)]), ValueError, "edge 0 joins the sites 0 and 3"),
        (lambda: fermion.hopping(FREE, [(0, 1), (2, 2)]), ValueError, "edge 1 joins site 2 with itself"),
        (lambda: fermion.hopping(FREE, EDGES, [1.0, 2.0]), ValueError, r"t has shape \(2,\), but there are 3 edges"),
        (lambda: fermion.hund(FREE, EDGES, np.nan), ValueError, "J holds .*nan"),
        (
            lambda: fermion.pair_hopping(nk.hilbert.SpinOrbitalFermions(3), EDGES),
            ValueError,
            "this is a term of fermions of spin 1/2",
        ),
        (lambda: fk.operator.TJ(FREE, TRIANGLE), ValueError, r"SiteOccupations\(3, maximum=1\)"),
        (lambda: fk.operator.TJ(nk.hilbert.Spin(0.5, 3), TRIANGLE), TypeError, "SpinOrbitalFermions"),
        (lambda: fk.operator.KondoLattice(FREE, TRIANGLE), ValueError, "a localised spin beside each site"),
        (lambda: fk.operator.KondoLattice(nk.hilbert.Spin(0.5, 4), TRIANGLE), TypeError, "SpinOrbitalFermions"),
        (
            lambda: fk.operator.KondoLattice(space(4, **KONDO), nk.graph.Chain(2, pbc=False), J=[1.0] * 3),
            ValueError,
            r"J has shape \(3,\), but there are 2 sites",
        ),
    ],
)
def test_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# Four by four sites


def t_j_by_hand(n_sites: int, up: int, down: int, edges: Any, t: float, J: float) -> tuple[np.ndarray, Any]:
    """Configurations of sites, 0 for a hole, 1 for a spin down and 2 for one up, and the sparse t-J Hamiltonian.

    Fermions are ordered by site here, so that signs differ from those of the library by a sign of each configuration.
    """
    states = []
    for ups in itertools.combinations(range(n_sites), up):
        rest = [site for site in range(n_sites) if site not in ups]
        for downs in itertools.combinations(rest, down):
            row = np.zeros(n_sites, np.int8)
            row[list(ups)], row[list(downs)] = 2, 1
            states.append(row)
    x = np.array(states)
    weights = 3 ** np.arange(n_sites, dtype=np.int64)
    keys = x @ weights
    order = np.argsort(keys)
    rows, columns, values = [], [], []
    diagonal = np.zeros(len(x))
    everything = np.arange(len(x))
    for i, j in edges:
        first, last = min(i, j), max(i, j)
        full_i, full_j = x[:, i] > 0, x[:, j] > 0
        # S_i S_j - n_i n_j / 4 is -1/2 and an exchange with +1/2 for unequal spins, up to the sign of the exchange.
        unequal = full_i & full_j & (x[:, i] != x[:, j])
        diagonal[unequal] -= J / 2
        between = (x[:, first + 1 : last] > 0).sum(axis=1)
        moves = full_i != full_j
        exchanged = x.copy()
        exchanged[:, [i, j]] = exchanged[:, [j, i]]
        to = order[np.searchsorted(keys[order], exchanged @ weights)]
        rows += [everything[moves], everything[unequal]]
        columns += [to[moves], to[unequal]]
        values += [-t * (-1.0) ** between[moves], np.full(unequal.sum(), J / 2)]
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    matrix = scipy.sparse.coo_array(entries, shape=(len(x),) * 2).tocsr()
    return x, matrix + scipy.sparse.diags_array(diagonal)


def in_modes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Configurations of sites as those of the library, spins down before spins up, and the sign between both."""
    modes = np.concatenate([x == 1, x == 2], axis=1).astype(np.int8)
    ups_before = (x == 2).cumsum(axis=1)
    return modes, (-1.0) ** ((x == 1) * ups_before).sum(axis=1)


def matrix_of(operator: Any, modes: np.ndarray) -> Any:
    """The sparse matrix of an operator on given configurations."""
    weights = 2.0 ** np.arange(modes.shape[1])
    keys = modes @ weights
    order = np.argsort(keys)
    parts = []
    for start in range(0, len(modes), 1 << 14):
        block = modes[start : start + (1 << 14)]
        sections = np.empty(len(block), int)
        xp, mels = operator.get_conn_flattened(block, sections)
        columns = order[np.searchsorted(keys[order], np.asarray(xp) @ weights)]
        indptr = np.concatenate([[0], sections])
        parts.append(scipy.sparse.csr_array((np.asarray(mels), columns, indptr), shape=(len(block), len(modes))))
    return scipy.sparse.vstack(parts).tocsr()


def check_against_sparse(n_up: int, n_down: int, graph: Any, t: float = 1.0, J: float = 0.4) -> float:
    """Compares the whole matrix, and gives the lowest energy."""
    n = graph.n_nodes
    x, expected = t_j_by_hand(n, n_up, n_down, graph.edges(), t, J)
    modes, signs = in_modes(x)
    hilbert = space(n, maximum=1, n_fermions_per_spin=(n_down, n_up))
    found = matrix_of(fk.operator.TJ(hilbert, graph, t, J), modes)
    by_site = scipy.sparse.diags_array(signs) @ found @ scipy.sparse.diags_array(signs)
    assert abs(by_site - expected).max() < 1e-12
    return float(scipy.sparse.linalg.eigsh(found, k=1, which="SA")[0][0])


def test_t_j_on_a_small_cluster() -> None:
    graph = nk.graph.Grid((4, 2), pbc=[True, False])
    energy = check_against_sparse(3, 3, graph)
    hilbert = space(8, maximum=1, n_fermions_per_spin=(3, 3))
    dense = fk.operator.TJ(hilbert, graph, 1.0, 0.4).to_dense()
    np.testing.assert_allclose(np.linalg.eigvalsh(dense)[0], energy)


@pytest.mark.thorough
def test_t_j_on_four_by_four_sites() -> None:
    """Two holes on 4×4 sites: the whole matrix of 411 840 configurations."""
    energy = check_against_sparse(7, 7, nk.graph.Square(4))
    assert abs(energy + 10.683919735) < 1e-8


@pytest.mark.parametrize("name", ["coulomb_inter", "hund", "spin_coupling"])
def test_complex_energies_are_refused(name: str) -> None:
    hilbert = nk.hilbert.SpinOrbitalFermions(2, s=1 / 2, n_fermions_per_spin=(1, 1))
    with pytest.raises(ValueError, match=r"is 1j, but this term is Hermitian with real numbers alone"):
        getattr(fk.operator.fermion, name)(hilbert, [(0, 1)], 1j)
    with pytest.raises(ValueError, match=r"U is 1j, but this term is Hermitian"):
        fk.operator.fermion.coulomb_intra(hilbert, 1j)
    assert fk.operator.fermion.hopping(hilbert, [(0, 1)], 1j).is_hermitian
