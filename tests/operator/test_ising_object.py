"""The operator as an object: what it refuses, algebra, identity, pytree."""

import copy
import pickle

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from netket.utils.numbers import StaticZero

import ferroket as fk
from ferroket.operator import Ising
from support import ising

HILBERT = nk.hilbert.Spin(0.5, 4)
CHAIN = nk.graph.Chain(4)


def operator(h=1.3, J=0.7, **kwargs):
    return Ising(HILBERT, CHAIN, h=h, J=J, **kwargs)


def assert_matrix(op, expected):
    np.testing.assert_allclose(op.to_dense(), expected, rtol=1e-13, atol=1e-13)


# What it refuses


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        (
            {"hilbert": nk.hilbert.Spin(1, 4)},
            ValueError,
            r"two local states, but those of Spin.*have 3: take nk.hilbert.Spin",
        ),
        ({"hilbert": nk.hilbert.Fock(3, 4)}, ValueError, r"have 4: take"),
        ({"hilbert": nk.hilbert.Fock(N=4)}, ValueError, r"two local states"),
        (
            {"hilbert": nk.hilbert.Spin(0.5, 2) * nk.hilbert.Qubit(2)},
            TypeError,
            r"same local states on each site.*take",
        ),
        ({"hilbert": 4}, TypeError, r"discrete Hilbert space.*not on 4"),
        ({"graph": nk.graph.Chain(5)}, ValueError, r"graph has 5 nodes, but the Hilbert space has 4 sites"),
        (
            {"graph": [(0, 1), (3, 4)]},
            ValueError,
            r"edge 1 joins the sites 3 and 4, but the 4 sites are numbered from 0 to 3",
        ),
        ({"graph": np.array([[0, -1]])}, ValueError, r"edge 0 joins the sites 0 and -1"),
        ({"graph": np.array([[0.0, 1.0]])}, TypeError, r"dtype float64.*integers"),
        ({"graph": np.array([0, 1])}, ValueError, r"shape \(2,\)"),
        ({"graph": np.array([[0, 1, 2]])}, ValueError, r"shape \(1, 3\)"),
        ({"h": np.nan}, ValueError, r"h is nan, but must be finite"),
        ({"h": jnp.array(np.inf)}, ValueError, r"h is .*inf.*finite"),
        ({"J": -np.inf}, ValueError, r"J is -inf, but must be finite"),
        ({"J": complex(0, np.nan)}, ValueError, r"J is .*finite"),
        ({"h": np.ones(4)}, ValueError, r"h has shape \(4,\), but must be a single number.*LocalOperator"),
        ({"J": "1"}, TypeError, r"J is '1', but must be a number"),
        ({"J": None}, TypeError, r"J is None, but must be a number"),
        ({"h": 1j, "dtype": float}, ValueError, r"h is 1j, which dtype float64 can't hold: give a complex dtype"),
        ({"J": 0.5, "dtype": int}, ValueError, r"J is 0.5, which dtype int64 can't hold: give a float dtype"),
    ],
)
def test_bad_arguments(kwargs, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        Ising(**{"hilbert": HILBERT, "graph": CHAIN, "h": 1.0, **kwargs})


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.ones((3, 5), np.int8), ValueError, r"5 sites in their last dimension, but the Hilbert space has 4"),
        (np.int8(1), ValueError, r"no dimension.*samples have shape \(\.\.\., 4\)"),
        (np.ones((3, 4), np.uint8), ValueError, r"dtype uint8, which can't hold the local state -1"),
        (np.ones((3, 4), bool), ValueError, r"dtype bool, which can't hold the local state -1"),
    ],
)
def test_bad_samples(x, error, message):
    for method in (operator().get_conn_padded, operator().n_conn):
        with pytest.raises(error, match=message):
            method(x)


def test_n_conn_has_no_out():
    with pytest.raises(NotImplementedError, match="out"):
        operator().n_conn(HILBERT.all_states(), np.zeros(16))


# Algebra

A, B = operator(1.3, 0.7), operator(-0.4, 2.0)
DENSE_A, DENSE_B = (ising.dense(4, CHAIN.edges(), h, J) for h, J in [(1.3, 0.7), (-0.4, 2.0)])
# `dense` orders its basis as NetKet numbers it, or in reverse; both are the same for this operator.
NETKET_B = nk.operator.IsingJax(HILBERT, CHAIN, h=-0.4, J=2.0)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: A + B, DENSE_A + DENSE_B),
        (lambda: A - B, DENSE_A - DENSE_B),
        (lambda: A + NETKET_B, DENSE_A + DENSE_B),
        (lambda: NETKET_B.to_numba_operator() and A + NETKET_B.to_numba_operator(), DENSE_A + DENSE_B),
        (lambda: 2 * A, 2 * DENSE_A),
        (lambda: A * 2.5, 2.5 * DENSE_A),
        (lambda: np.float64(2) * A, 2 * DENSE_A),
        (lambda: A * np.array(2), 2 * DENSE_A),
        (lambda: jnp.array(2.0) * A, 2 * DENSE_A),
        (lambda: 1j * A, 1j * DENSE_A),
        (lambda: A / 4, DENSE_A / 4),
        (lambda: -A, -DENSE_A),
        (lambda: +A, DENSE_A),
        (lambda: 2 * A - B / 2 + A, 3 * DENSE_A - DENSE_B / 2),
        (lambda: sum([A, B], start=A), 2 * DENSE_A + DENSE_B),
        (lambda: A + operator(h=None), DENSE_A + ising.dense(4, CHAIN.edges(), 0, 0.7)),
        (lambda: operator(h=None) - A, ising.dense(4, CHAIN.edges(), 0, 0.7) - DENSE_A),
        (lambda: A + Ising(HILBERT, [(1, 0), (3, 2), (2, 1), (0, 3)], h=-0.4, J=2.0), DENSE_A + DENSE_B),
    ],
)
def test_stays_ours(make, expected):
    result = make()
    assert type(result) is Ising
    assert_matrix(result, expected)


OTHER = nk.operator.spin.sigmax(HILBERT, 0, cls=nk.operator.LocalOperatorJax)
OTHER_EDGES = Ising(HILBERT, [(0, 2)], h=1.0, J=0.5)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: A + OTHER, lambda: DENSE_A + OTHER.to_dense()),
        (lambda: OTHER + A, lambda: DENSE_A + OTHER.to_dense()),
        (lambda: A - OTHER, lambda: DENSE_A - OTHER.to_dense()),
        (lambda: OTHER - A, lambda: OTHER.to_dense() - DENSE_A),
        (lambda: A @ OTHER, lambda: DENSE_A @ OTHER.to_dense()),
        (lambda: OTHER @ A, lambda: OTHER.to_dense() @ DENSE_A),
        (lambda: A @ B, lambda: DENSE_A @ DENSE_B),
        (lambda: A @ A, lambda: DENSE_A @ DENSE_A),
        (lambda: A + OTHER_EDGES, lambda: DENSE_A + OTHER_EDGES.to_dense()),
        (lambda: A - OTHER_EDGES, lambda: DENSE_A - OTHER_EDGES.to_dense()),
        (lambda: operator(h=None) + OTHER, lambda: ising.dense(4, CHAIN.edges(), 0, 0.7) + OTHER.to_dense()),
    ],
)
def test_becomes_a_sum_of_local_matrices(make, expected):
    result = make()
    assert type(result) is fk.operator.LocalOperator
    assert_matrix(result, expected())


def test_netkets_operator_first():
    result = NETKET_B + A
    assert_matrix(result, DENSE_A + DENSE_B)
    assert_matrix(NETKET_B - A, DENSE_B - DENSE_A)


def test_adding_in_place_makes_a_new_operator():
    a = before = operator()
    a += B
    assert a is not before
    assert_matrix(before, DENSE_A)
    assert_matrix(a, DENSE_A + DENSE_B)
    a -= B
    a *= 2
    a /= 4
    assert_matrix(a, DENSE_A / 2)
    assert_matrix(B, DENSE_B)
    assert_matrix(before, DENSE_A)


def test_bad_factors():
    with pytest.raises(ValueError, match=r"the factor is nan, but must be finite"):
        A * np.nan
    with pytest.raises(ZeroDivisionError, match="can't be divided by zero"):
        A / 0
    with pytest.raises(TypeError):
        A * "2"


@pytest.mark.parametrize("combine", [lambda a, b: a + b, lambda a, b: a - b])
@pytest.mark.parametrize("cls", [Ising, nk.operator.IsingJax])
def test_operators_on_different_spaces(combine, cls):
    with pytest.raises(ValueError, match=r"on Spin.* and on Qubit.* can't be added"):
        combine(A, cls(nk.hilbert.Qubit(4), CHAIN, h=1.0))


@pytest.mark.parametrize(
    ("h", "J", "hermitian"),
    [(1.0, 2.0, True), (1.0 + 0j, 2.0, True), (1j, 2.0, False), (1.0, 1j, False), (None, 1j, False)],
)
def test_adjoint(h, J, hermitian):
    op = operator(h, J)
    matrix = np.asarray(op.to_dense())
    assert op.is_hermitian is hermitian is np.allclose(matrix, matrix.conj().T)
    for method, expected in [
        (op.H, matrix.conj().T),
        (op.T, matrix.T),
        (op.transpose(), matrix.T),
        (op.conjugate(), matrix.conj()),
        (op.conj(), matrix.conj()),
    ]:
        assert type(method) is Ising
        assert_matrix(method, expected)


def test_hermiticity_of_a_traced_operator_is_static():
    seen = []
    jax.jit(lambda op: seen.append(op.is_hermitian))(operator())
    jax.jit(lambda op: seen.append(op.is_hermitian))(operator(1j))
    assert seen == [True, False]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.complex64])
def test_copy_to_another_dtype(dtype):
    result = A.copy(dtype=dtype)
    assert type(result) is Ising
    assert result.dtype == dtype
    np.testing.assert_allclose(result.to_dense(), DENSE_A, rtol=1e-6)
    assert isinstance(operator(h=None).copy(dtype=dtype).h, StaticZero)


def test_default_dtypes_are_netkets():
    for h, J in [
        (1, 1),
        (1.0, 1),
        (1, 1j),
        (np.float32(1), np.float32(2)),
        (jnp.float32(1), 2.0),
        (None, 1),
        (None, np.float32(1)),
    ]:
        assert operator(h, J).dtype == nk.operator.IsingJax(HILBERT, CHAIN, h=h, J=J).dtype


# Identity


def test_equality_and_hash():
    assert operator() == A
    assert hash(A) == hash(operator())
    for other in (
        B,
        operator(h=None),
        A.copy(dtype=jnp.float32),
        Ising(nk.hilbert.Qubit(4), CHAIN, h=1.3, J=0.7),
        OTHER_EDGES,
    ):
        assert other != A
    assert operator(h=None) != operator(h=jnp.array(0.0))
    assert nk.operator.IsingJax(HILBERT, CHAIN, h=1.3, J=0.7) != A
    assert len({A, operator(), B}) == 2


def test_hash_of_a_traced_operator():
    @jax.jit
    def f(op):
        assert op == op  # noqa: PLR0124
        assert hash(op) == hash(op)
        assert op != (2 * op)
        return op.J

    assert f(A) == A.J


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda op: pickle.loads(pickle.dumps(op)), Ising.copy])
@pytest.mark.parametrize("h", [1.3, None])
def test_duplicates(duplicate, h):
    op = operator(h)
    result = duplicate(op)
    assert type(result) is Ising
    assert result == op
    assert_matrix(result, op.to_dense())


def test_repr():
    assert repr(operator(1.5, 0.5)) == "Ising(J=0.5, h=1.5; dim=4)"


# Pytree


def test_pytree():
    leaves, structure = jax.tree.flatten(A)
    assert len(leaves) == 3
    assert structure == jax.tree.structure(B)
    assert structure != jax.tree.structure(operator(h=None))
    assert structure != jax.tree.structure(Ising(nk.hilbert.Qubit(4), CHAIN, h=1.3, J=0.7))
    assert jax.tree.unflatten(structure, leaves) == A


@pytest.mark.parametrize("leaf", [None, object(), "text", jax.ShapeDtypeStruct((), float)])
def test_unflatten_takes_anything(leaf):
    structure = jax.tree.structure(A)
    op = jax.tree.unflatten(structure, [leaf] * 3)
    assert type(op) is Ising
    assert repr(op)
    assert op == op  # noqa: PLR0124
    assert hash(op) == hash(op)


def test_new_coefficients_do_not_compile_again():
    traces = []

    @jax.jit
    def f(op, x):
        traces.append(op)
        return op.get_conn_padded(x)

    for op in (A, B, A + B, 3 * A, Ising(HILBERT, [(0, 1), (2, 3), (0, 2), (1, 3)], h=0.1)):
        _, mels = f(op, HILBERT.all_states())
        np.testing.assert_array_equal(mels, op.get_conn_padded(HILBERT.all_states())[1])
    assert len(traces) == 1


def test_built_from_traced_coefficients():
    f = jax.jit(lambda h, J, edges: (2 * Ising(HILBERT, edges, h=h, J=J)).get_conn_padded(HILBERT.all_states()))
    expected = (2 * A).get_conn_padded(HILBERT.all_states())
    for mine, theirs in zip(f(1.3, 0.7, A.edges), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-15)


# Conversions


def test_conversions():
    assert A.to_jax_operator() is A
    assert type(A.to_numba_operator()) is nk.operator.IsingNumba
    assert type(A.to_local_operator()) is fk.operator.LocalOperator
    for other in (A.to_numba_operator(), A.to_local_operator(), operator(h=None).to_local_operator()):
        reference = A if other.max_conn_size > 1 else operator(h=None)
        assert_matrix(other, reference.to_dense())


def test_accelerate():
    reference = nk.operator.IsingJax(HILBERT, CHAIN, h=1.3, J=0.7, dtype=jnp.float32)
    for theirs in (reference, reference.to_numba_operator(), nk.operator.IsingJax(HILBERT, CHAIN, h=0.0)):
        ours = fk.accelerate(theirs)
        assert type(ours) is Ising
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours.to_dense(), theirs.to_dense())
    assert fk.accelerate(A) is A
