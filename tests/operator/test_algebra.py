"""Sums, products and conversions across families, against dense matrices, and what becomes of their classes."""

import itertools

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
import scipy.sparse

import ferroket as fk
import reference
from ferroket._compat import netket as compat
from support.comparisons import assert_rows, rows
from support.example_operators import BOSONS, CHAIN, FERMIONS, NETKET, SHIFT, SINGLETS, SPIN_ONE, SPINS
from support.generated_operators import local_states

op = fk.operator
QUBIT = nk.hilbert.Qubit(1)
PAIRS_OF_ELECTRONS = nk.hilbert.SpinOrbitalFermions(3, s=1 / 2, n_fermions_per_spin=(2, 2))
SQUARE = nk.graph.Grid((8, 8))
SUM, PRODUCT = NETKET.SumOperator, NETKET.ProductOperator


def dense(operator):
    return np.asarray(operator.to_dense())


def assert_equal(found, expected):
    np.testing.assert_allclose(dense(found), expected, rtol=1e-12, atol=1e-12)


OPERATORS = {
    "Ising": lambda: op.Ising(SPINS, CHAIN, h=1.0, J=0.5),
    "LocalOperator": lambda: op.Heisenberg(SPINS, CHAIN),
    "PauliStrings": lambda: op.PauliStrings(SPINS, ["XYII", "IIZZ"], [1.0, 0.5]),
    "TermSum": lambda: op.PauliStrings(SPINS, ["XYII"]) + op.Heisenberg(SPINS, CHAIN),
    "SpinFlipOperator": lambda: op.SpinFlipOperator(SPINS),
    "PermutationOperator": lambda: op.PermutationOperator(SPINS, SHIFT),
}
LOCAL = {"Ising", "LocalOperator"}


def class_of_result(a, b):
    """The name of the class of sums and products; None if it is NetKet's, of ours."""
    if "PermutationOperator" in (a, b):
        return None  # it is no sum of few terms
    return "LocalOperator" if {a, b} <= LOCAL else "TermSum"


# With a permutation they are NetKet's, which XLA compiles for long: one pair of these.
PAIRS = [
    pair
    for pair in itertools.combinations(OPERATORS, 2)
    if pair[1] != "PermutationOperator" or pair[0] == "PauliStrings"
]


@pytest.mark.quick("Ising", "TermSum-SpinFlipOperator")
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_sums_and_products(a, b):
    left, right = OPERATORS[a](), OPERATORS[b]()
    A, B = dense(left), dense(right)
    for result, expected in (
        (right + left, A + B),
        (left - right, A - B),
        (left @ right, A @ B),
        (right @ left, B @ A),
    ):
        assert_equal(result, expected)
        wanted = class_of_result(a, b)
        if wanted:
            assert type(result) is getattr(op, wanted)
        else:
            assert all(type(part).__module__.startswith("ferroket.") for part in result.operators)


NETKETS = {
    "Ising": NETKET.IsingJax(SPINS, CHAIN, h=1.0),
    "Ising, numba": NETKET.IsingNumba(SPINS, CHAIN, h=1.0),
    "strings": NETKET.PauliStringsJax(SPINS, ["XYII"], [0.5]),
    "strings, numba": NETKET.PauliStringsNumba(SPINS, ["XYII"], [0.5]),
    "matrices": nk.operator.spin.sigmay(SPINS, 1, cls=NETKET.LocalOperatorJax),
    "permutation": NETKET.PermutationOperator(SPINS, SHIFT),
}
X, Y = NETKETS["Ising"], NETKETS["strings"]


@pytest.mark.parametrize(
    ("operator", "expected", "cls"),
    [
        (SUM(X, Y), lambda: dense(X) + dense(Y), "TermSum"),
        (SUM(X, Y, coefficients=[2.0, 1j]), lambda: 2 * dense(X) + 1j * dense(Y), "TermSum"),
        (SUM(NETKETS["Ising, numba"], NETKETS["strings, numba"]), lambda: dense(X) + dense(Y), "TermSum"),
        (PRODUCT(NETKETS["Ising, numba"], NETKETS["strings, numba"]), lambda: dense(X) @ dense(Y), "TermSum"),
        (PRODUCT(X, NETKETS["matrices"]), lambda: dense(X) @ dense(NETKETS["matrices"]), "LocalOperator"),
        (SUM(PRODUCT(X, Y), NETKET.Adjoint(Y)), lambda: dense(X) @ dense(Y) + dense(Y), "TermSum"),
        (NETKET.Squared(SUM(X, Y)), lambda: (dense(X) + dense(Y)) @ (dense(X) + dense(Y)), "TermSum"),
        (NETKET.Transpose(PRODUCT(X, Y)), lambda: (dense(X) @ dense(Y)).T, "TermSum"),
        (SUM(NETKETS["permutation"], Y), lambda: dense(NETKETS["permutation"]) + dense(Y), None),
        (PRODUCT(NETKETS["permutation"], Y), lambda: dense(NETKETS["permutation"]) @ dense(Y), None),
    ],
)
def test_accelerate_inside(operator, expected, cls):
    result = fk.accelerate(operator)
    assert_equal(result, expected())
    if cls is None:
        assert [type(part).__module__.split(".")[0] for part in result.operators] == ["ferroket"] * 2
    else:
        assert type(result) is getattr(op, cls)


@pytest.mark.parametrize("cls", [NETKET.LocalOperatorJax, NETKET.LocalOperatorNumba, op.LocalOperator, None])
def test_classes_by_choice(cls):
    """With NetKet's functions and with ours, `cls` is the class of the result; without, it is ours."""
    options = {} if cls is None else {"cls": cls}
    bosons = nk.hilbert.Fock(2, 2)
    by_name = {
        **{f"spin.{name}": (SPINS, 1) for name in ("sigmax", "sigmay", "sigmaz", "sigmap", "sigmam")},
        "spin.identity": (SPINS,),
        **{f"boson.{name}": (bosons, 1) for name in ("create", "destroy", "number")},
        "boson.proj": (bosons, 1, 2),
        "Heisenberg": (SPINS, CHAIN),
    }
    for name, arguments in by_name.items():
        ours, theirs = op, nk.operator
        for part in name.split("."):
            ours, theirs = getattr(ours, part), getattr(theirs, part)
        result = ours(*arguments, **options)
        assert type(result) is (cls or op.LocalOperator), name
        if cls is None:
            assert result == fk.accelerate(theirs(*arguments)), name
        else:
            assert type(theirs(*arguments, **options)) is cls, name


@pytest.mark.parametrize("name", ["create", "destroy", "number"])
def test_fermions_of_one_orbital(name):
    hilbert = nk.hilbert.SpinOrbitalFermions(2, s=0.5)
    result = getattr(op.fermion, name)(hilbert, 1, 1)
    assert type(result) is op.FermionOperator2nd
    assert_equal(result, dense(getattr(nk.operator.fermion, name)(hilbert, 1, 1)))


CONVERSIONS = {
    "Ising": OPERATORS["Ising"],
    "local matrices": OPERATORS["LocalOperator"],
    "Pauli strings": OPERATORS["PauliStrings"],
    "sum": OPERATORS["TermSum"],
    "spin flip": OPERATORS["SpinFlipOperator"],
    "fermions": lambda: op.FermionOperator2nd(nk.hilbert.SpinOrbitalFermions(4), ["0^ 2", "3^ 1^ 1 2"], [1.0, 0.5j]),
    "Fermi-Hubbard": lambda: op.FermiHubbard(
        nk.hilbert.SpinOrbitalFermions(3, s=0.5, n_fermions_per_spin=(1, 2)), nk.graph.Chain(3)
    ),
    "bosons": lambda: op.BoseHubbard(nk.hilbert.Fock(1, 4), CHAIN, U=1.0, V=0.5),
}


@pytest.mark.parametrize("title", CONVERSIONS)
def test_conversions(title):
    operator = CONVERSIONS[title]()
    expected = dense(operator)
    for result, cls in (
        (operator.to_local_operator(), op.LocalOperator),
        (operator.to_pauli_strings(), op.PauliStrings),
        (operator.to_jax_operator(), type(operator)),
    ):
        assert type(result) is cls
        assert_equal(result, expected)
    if hasattr(operator, "to_numba_operator"):
        numba = operator.to_numba_operator()
        assert type(numba).__module__.startswith("netket.")
        assert_equal(fk.accelerate(numba), expected)


@pytest.mark.parametrize(
    ("convert", "error", "message"),
    [
        (lambda: op.PermutationOperator(SPINS, SHIFT).to_local_operator(), TypeError, "PermutationOperator on Spin"),
        (lambda: op.PermutationOperator(SPINS, SHIFT).to_pauli_strings(), TypeError, "no sum of a few Pauli strings"),
        (lambda: op.BoseHubbard(nk.hilbert.Fock(2, 4), CHAIN, U=1.0).to_pauli_strings(), TypeError, r"have \[3\]"),
        (
            lambda: op.PauliStrings(["X" * 11]).to_local_operator(),
            ValueError,
            "term on 11 sites, whose matrix would have 2048 rows",
        ),
    ],
)
def test_conversions_that_cannot_be(convert, error, message):
    with pytest.raises(error, match=message):
        convert()


@pytest.mark.skipif(not compat.EMBEDDINGS, reason="this NetKet has no EmbedOperator")
@pytest.mark.parametrize(
    ("inner", "others"),
    [(X, SPIN_ONE), (Y, SPIN_ONE), (X, QUBIT), (Y, QUBIT), (NETKETS["permutation"], QUBIT)],
)
def test_embedding(inner, others):
    theirs = NETKET.EmbedOperator(nk.hilbert.TensorHilbert(others, SPINS), inner, 1)
    result = fk.accelerate(theirs)
    assert_equal(result, np.kron(np.eye(others.n_states), dense(inner)))
    assert type(getattr(result, "operator", result)).__module__.startswith("ferroket.")


@pytest.mark.parametrize("hilbert", [SPINS, SINGLETS, SPIN_ONE, PAIRS_OF_ELECTRONS], ids=str)
def test_spin_flips(hilbert):
    """Also where NetKet has none."""
    by_definition = reference.SpinFlip(local_states(hilbert), fermions=hilbert is PAIRS_OF_ELECTRONS)
    expected = by_definition.matrix(np.asarray(hilbert.all_states()))
    np.testing.assert_array_equal(dense(op.SpinFlipOperator(hilbert)), expected)


# How many elements there are


def test_fermi_hubbard_on_a_square_lattice():
    hilbert = nk.hilbert.SpinOrbitalFermions(64, s=0.5, n_fermions_per_spin=(28, 28))
    operator = op.FermiHubbard(hilbert, SQUARE)
    # 28 fermions of a spin hop to 4 neighbours each, and there is the diagonal.
    assert operator.max_conn_size == 225
    assert op.FermionOperator2nd.from_netket(operator).max_conn_size == 225


def test_fermions_that_are_wanted_in_different_places():
    """With one fermion of each spin only one of the terms is active, though one wants more holes than the other."""
    hilbert = nk.hilbert.SpinOrbitalFermions(3, s=1 / 2, n_fermions_per_spin=(1, 1))
    terms = [((3, 1), (1, 1), (4, 0), (0, 0)), ((0, 1), (5, 1), (2, 0), (5, 0))]
    assert op.FermionOperator2nd(hilbert, terms).max_conn_size == 1


@pytest.mark.parametrize("n_sites", [4, 40])
def test_all_spins_flipped_at_magnetisation_0(n_sites):
    hilbert = nk.hilbert.Spin(0.5, n_sites, total_sz=0)
    strings = op.PauliStrings(hilbert, ["X" * n_sites], [0.5])
    x = np.repeat([1, -1], n_sites // 2).astype(np.int8)
    xp, mels = strings.get_conn(x)
    np.testing.assert_array_equal(xp, [-x])
    np.testing.assert_array_equal(mels, [0.5])
    assert strings.max_conn_size == 1
    both = op.SpinFlipOperator(hilbert) + op.Heisenberg(hilbert, nk.graph.Chain(n_sites))
    assert both.max_conn_size == n_sites + 2
    for wrong in (
        op.PauliStrings(nk.hilbert.Spin(0.5, n_sites, total_sz=1), ["X" * n_sites]),
        op.PauliStrings(hilbert, ["X" * (n_sites - 1) + "I"]),
    ):
        with pytest.raises(ValueError, match="leads out of Spin"):
            _ = wrong.max_conn_size


MATRIX = np.array([[1.0, 1e-4], [1e-4, -1.0]])
CUTOFFS = {
    "PauliStrings": ((SPINS, ["XXII", "ZIII", "IIXX"], [1e-4, 1.0, 0.5]), "cutoff"),
    "LocalOperator": ((SPINS, [MATRIX, 0.5 * MATRIX], [[0], [1]]), "mel_cutoff"),
    "FermionOperator2nd": ((FERMIONS, ["0^ 1", "1^ 0", "2^ 2", "2^ 3"], [1e-4, 1e-4, 0.5, 1.0]), "cutoff"),
}


@pytest.mark.quick("LocalOperator")
@pytest.mark.parametrize("cutoff", [1e-10, 1e-3, 0.6])
@pytest.mark.parametrize("name", CUTOFFS)
def test_cutoffs(name, cutoff):
    arguments, keyword = CUTOFFS[name]
    ours, theirs = (
        cls(*arguments, **{keyword: cutoff}) for cls in (getattr(op, name), getattr(nk.operator, f"{name}Numba"))
    )
    x = np.asarray(ours.hilbert.all_states()).astype(np.int8)
    xp, mels = theirs.get_conn_padded(x)
    np.testing.assert_array_equal(ours.n_conn(x), (mels != 0).sum(axis=-1))
    assert_rows(rows(*ours.get_conn_padded(x)), rows(xp, mels), 1e-12)


def test_terms_that_cancel():
    strings = op.PauliStrings(SPINS, ["XXII", "ZIII"])
    matrices = op.LocalOperator(SINGLETS, [np.ones((4, 4)), -np.ones((4, 4))], [[0, 1], [1, 0]])
    for nothing in (strings - strings, matrices, op.Ising(SPINS, CHAIN, h=1.0) - op.Ising(SPINS, CHAIN, h=1.0) + 0):
        np.testing.assert_array_equal(nothing.n_conn(nothing.hilbert.all_states()), 0)
    assert (strings - strings).max_conn_size == matrices.max_conn_size == 0


@pytest.mark.quick("terms")
@pytest.mark.parametrize("hilbert", [SPINS, SPIN_ONE], ids=["terms", "matrices"])
def test_no_terms(hilbert):
    for nothing in (op.LocalOperator(hilbert), nk.operator.LocalOperatorJax(hilbert)):
        x = hilbert.all_states()
        xp, mels = jax.jit(lambda nothing, x: nothing.get_conn_padded(x))(nothing, x)
        assert nothing.max_conn_size == 0
        assert (xp.shape, mels.shape) == ((len(x), 0, hilbert.size), (len(x), 0))
        sections = np.zeros(len(x), int)
        assert nothing.get_conn_flattened(x, sections, pad=True)[1].size == sections.max() == 0
        vstate = nk.vqs.MCState(nk.sampler.ExactSampler(hilbert), nk.models.RBM(), n_samples=16)
        assert vstate.expect(nothing).mean == 0


@pytest.mark.quick("all")
@pytest.mark.parametrize("hilbert", [SPINS, SINGLETS], ids=["all", "singlets"])
def test_cutoff_of_strings_that_nearly_cancel(hilbert):
    # XX + YY connects no parallel spins. What is left is smaller than the cutoff, and leads out of the singlets.
    arguments = hilbert, ["XXII", "YYII", "IIZZ"], [1.0, 1.0 + 1e-5, 1.0]
    x = np.asarray(hilbert.all_states())
    ours, theirs = (cls(*arguments, cutoff=1e-3) for cls in (op.PauliStrings, nk.operator.PauliStringsJax))
    mels = np.asarray(theirs.get_conn_padded(x)[1])
    np.testing.assert_array_equal(ours.n_conn(x), (mels != 0).sum(axis=-1))
    assert_equal(ours, dense(theirs))
    if hilbert is SINGLETS:
        with pytest.raises(ValueError, match="leads out of Spin"):
            op.PauliStrings(*arguments).n_conn(x)


# dtypes


def in_dtype(namespace, name, dtype):
    """A small operator, of NetKet's or ours, all of whose matrix elements are integers."""
    if name == "Ising":
        return namespace.Ising(SPINS, CHAIN, h=1, J=2, dtype=dtype)
    if name == "LocalOperator":
        return namespace.LocalOperator(SPINS, [[[0, 1], [1, 0]]], [[0]], constant=1, dtype=dtype)
    if name == "PauliStrings":
        return namespace.PauliStrings(SPINS, ["XXII", "ZIZI"], [1, 2], dtype=dtype)
    fermions = nk.operator.FermionOperator2ndJax(FERMIONS, ["0^ 1", "1^ 0"], [1, 2], constant=1, dtype=dtype)
    if name == "FermionOperator2nd":
        return fermions if namespace is nk.operator else op.FermionOperator2nd.from_netket(fermions)
    return getattr(NETKET if namespace is nk.operator else namespace, name).from_fermionoperator2nd(fermions)


NUMBERS = {
    "2": 2,
    "2.5": 2.5,
    "True": True,
    "float32": np.float32(2),
    "float64": np.float64(2),
    "int32": np.array(2, np.int32),
    "complex64": np.complex64(2j),
    "jax": jnp.float32(2),
}
FAMILIES = ["Ising", "LocalOperator", "PauliStrings", "FermionOperator2nd", "ParticleNumberConservingFermioperator2nd"]


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int32])
@pytest.mark.parametrize("name", FAMILIES)
def test_dtypes_of_multiples_and_sums(name, dtype):
    ours = in_dtype(op, name, dtype)
    A = dense(ours)
    assert ours.dtype == (-ours).dtype == dtype
    assert_equal(-ours, -A)
    if name.startswith("ParticleNumber"):
        # NetKet's forget float32 and complex64; the rule is that of JAX, as for its arrays.
        for number in NUMBERS.values():
            product = number * ours if type(number) in (int, float) else ours * number
            assert product.dtype == jnp.result_type(jnp.empty((), dtype), number)
            assert_equal(product, complex(number) * A)
        return
    theirs = in_dtype(nk.operator, name, dtype)
    for title, number in NUMBERS.items():
        assert (ours * number).dtype == (theirs * number).dtype, title
        assert_equal(ours * number, complex(number) * A)
        if name in ("LocalOperator", "FermionOperator2nd"):
            scalar = np.asarray(number)[()] if isinstance(number, np.ndarray | jax.Array) else number
            assert (ours + number).dtype == (theirs + scalar).dtype, title
            assert (ours - number).dtype == (theirs - scalar).dtype, title
            assert_equal(ours - number, A - complex(number) * np.eye(len(A)))


def test_dtypes_in_place():
    real, cmplx = in_dtype(op, "FermionOperator2nd", np.float32), in_dtype(op, "FermionOperator2nd", complex)
    a = real.copy()
    a += 2
    assert a.dtype == np.float32
    assert_equal(a, dense(real) + 2 * np.eye(6))
    with pytest.raises(ValueError, match="dtype float32 can't hold"):
        a += 2j
    # NetKet has a sum in place, which keeps the dtype, but no difference.
    with pytest.raises(ValueError, match="Cannot add inplace"):
        a += cmplx
    a -= cmplx
    assert a.dtype == complex
    assert_equal(a, 2 * np.eye(6))
    conserving = in_dtype(op, "ParticleNumberConservingFermioperator2nd", np.float32)
    b = conserving
    b *= 2j
    assert (b.dtype, conserving.dtype) == (np.complex64, np.float32)
    assert_equal(b, 2j * dense(conserving))


@pytest.mark.quick("sparse + dense", "strings")
@pytest.mark.parametrize(
    "operator",
    [
        lambda: op.Ising(SPINS, CHAIN, h=1.0).to_local_operator() + op.spin.sigmax(SPINS, 0),
        lambda: op.Ising(SPINS, CHAIN, h=1.0) + op.spin.sigmax(SPINS, 0) @ op.spin.sigmaz(SPINS, 1),
        lambda: op.spin.sigmax(SPINS, 0) + op.LocalOperator(SPINS, [[[1, 2], [2, 0]]], [[0]]),
        lambda: op.LocalOperator(SPINS, [[[1, 2], [2, 0]]], [[0]]) - op.spin.sigmax(SPINS, 0),
        lambda: op.PauliStrings(SPINS, ["XYII", "ZIII"]).to_local_operator() + op.spin.sigmaz(SPINS, 0),
        lambda: op.BoseHubbard(BOSONS, CHAIN, U=1.0) + op.boson.number(BOSONS, 0),
    ],
    ids=["Ising", "Ising and a product", "sparse + dense", "dense - sparse", "strings", "Bose-Hubbard"],
)
def test_matrices_are_of_one_kind(operator):
    found = operator()
    assert all(scipy.sparse.issparse(matrix) for matrix in found.operators)
    assert_equal(found, dense(found.to_numba_operator()))
