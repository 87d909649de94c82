"""Connected elements, against NetKet's JAX and numba operators, the definition, and dense matrices."""

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from hypothesis import given
from netket.utils.numbers import StaticZero

import ferroket as fk
from support import ising
from support.generated_operators import checks


def pair(*args, **kwargs):
    return fk.operator.Ising(*args, **kwargs), nk.operator.IsingJax(*args, **kwargs)


def assert_same_elements(found, expected):
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.thorough
@checks(60)
@given(ising.problems())
def test_random_operators(problem):
    ours, theirs = pair(problem.hilbert, problem.edges, h=problem.h, J=problem.J, dtype=problem.dtype)
    xp, mels = ours.get_conn_padded(problem.x)
    n_sites = problem.hilbert.size
    assert xp.shape == (*problem.x.shape[:-1], ours.max_conn_size, n_sites)
    assert mels.shape == (*problem.x.shape[:-1], ours.max_conn_size)
    assert ours.dtype == theirs.dtype == mels.dtype
    assert xp.dtype == problem.x.dtype
    # The definition, sample by sample.
    h = 0 if problem.h is None else problem.h
    k = ours.max_conn_size
    rows = zip(problem.x.reshape(-1, n_sites), xp.reshape(-1, k, n_sites), mels.reshape(-1, k), strict=True)
    for sample, configurations, elements in rows:
        as_numbers = sample.astype(complex).real
        by_loop = ising.loop(as_numbers, problem.hilbert.local_states, problem.edges, h, problem.J)
        np.testing.assert_array_equal(np.asarray(configurations).astype(complex).real, by_loop[0][:k])
        np.testing.assert_allclose(elements, by_loop[1][:k], rtol=1e-6)
    # NetKet's, bit by bit, where it knows the dtype of the samples.
    if problem.x.dtype.name not in ("bool", "complex64", "complex128"):
        assert_same_elements((xp, mels), theirs.get_conn_padded(problem.x))
    np.testing.assert_array_equal(ours.n_conn(problem.x), (np.asarray(mels) != 0).sum(-1))
    assert ours.n_conn(problem.x).dtype == jnp.int32


@pytest.mark.quick("graph0-hilbert0")
@pytest.mark.parametrize("hilbert", [nk.hilbert.Spin(0.5, 6), nk.hilbert.Spin(0.5, 6, inverted_ordering=True)])
@pytest.mark.parametrize("graph", [nk.graph.Chain(6), nk.graph.Grid((2, 3), pbc=False)])
def test_numba(hilbert, graph):
    ours, theirs = fk.operator.Ising(hilbert, graph, h=1.3, J=0.7), nk.operator.IsingNumba(hilbert, graph, h=1.3, J=0.7)
    x = np.asarray(hilbert.random_state(jax.random.key(1), 11))
    xp, mels = ours.get_conn_padded(x)
    expected_xp, expected_mels = theirs.get_conn_padded(x)
    np.testing.assert_array_equal(xp, expected_xp)
    np.testing.assert_allclose(mels, expected_mels, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(ours.to_numba_operator().to_dense(), ours.to_dense(), atol=1e-14)


@pytest.mark.parametrize(
    ("h", "J", "dtype"), [(1.3, 0.7, None), (0.4j, 1 - 2j, complex), (None, 0.7, None), (2, 3, int)]
)
@pytest.mark.parametrize(
    "hilbert",
    [
        nk.hilbert.Spin(0.5, 4),
        nk.hilbert.Spin(0.5, 4, inverted_ordering=True),
        nk.hilbert.Qubit(4),
        nk.hilbert.Fock(1, 4),
    ],
)
def test_dense_matrix(hilbert, h, J, dtype):
    edges = [(0, 1), (1, 2), (2, 0), (3, 3), (0, 1)]  # a triangle, a site with itself, one edge twice
    operator = fk.operator.Ising(hilbert, edges, h=h, J=J, dtype=dtype)
    expected = ising.dense(4, edges, h or 0, J)
    order = hilbert.states_to_numbers(ising.basis(hilbert))
    for matrix in (operator.to_dense(), operator.to_sparse().todense()):
        np.testing.assert_allclose(np.asarray(matrix)[np.ix_(order, order)], expected, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(operator.to_local_operator().to_dense(), operator.to_dense(), atol=1e-14)


@pytest.mark.thorough
def test_ground_state_energy_of_the_critical_chain():
    # E₀ = -Σₖ ε(k)/2 with ε(k) = 4 |sin(k/2)| at h = J = 1, k = π(2m+1)/N for even fermion parity.
    n = 10
    k = np.pi * (2 * np.arange(n) + 1) / n
    operator = fk.operator.Ising(nk.hilbert.Spin(0.5, n), nk.graph.Chain(n), h=1.0, J=-1.0)
    energy = np.linalg.eigvalsh(operator.to_dense())[0]
    np.testing.assert_allclose(energy, -2 * np.abs(np.sin(k / 2)).sum(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32"])
def test_dtypes_of_matrix_elements(dtype):
    hilbert = nk.hilbert.Qubit(5)
    ours, theirs = pair(hilbert, nk.graph.Chain(5), h=2, J=3, dtype=jnp.dtype(dtype))
    x = hilbert.all_states()
    assert_same_elements(ours.get_conn_padded(x), theirs.get_conn_padded(x))


@pytest.mark.parametrize("h", [0, 0.0, None, np.array(0.0)])
def test_absent_field(h):
    hilbert = nk.hilbert.Spin(0.5, 5)
    ours, theirs = pair(hilbert, nk.graph.Chain(5), h=h, J=0.5)
    assert isinstance(ours.h, StaticZero)
    assert ours.max_conn_size == 1
    x = hilbert.all_states()
    assert_same_elements(ours.get_conn_padded(x), theirs.get_conn_padded(x))
    np.testing.assert_array_equal(ours.n_conn(x), theirs.n_conn(x))


def test_a_field_whose_value_is_zero():
    hilbert = nk.hilbert.Spin(0.5, 4)
    operator = fk.operator.Ising(hilbert, nk.graph.Chain(4), h=jnp.array(0.0))
    xp, mels = operator.get_conn_padded(hilbert.all_states())
    assert xp.shape == (16, 5, 4)
    np.testing.assert_array_equal(mels[:, 1:], 0)
    np.testing.assert_array_equal(operator.n_conn(hilbert.all_states()), (np.asarray(mels) != 0).sum(-1))


def test_shapes_of_batches():
    hilbert = nk.hilbert.Spin(0.5, 4)
    operator = fk.operator.Ising(hilbert, nk.graph.Chain(4), h=1.0)
    for batch in [(), (1,), (7,), (0,), (2, 3), (3, 0, 2)]:
        x = np.random.default_rng(0).choice(np.array([-1, 1], np.int8), (*batch, 4))
        xp, mels = operator.get_conn_padded(x)
        assert (xp.shape, mels.shape) == ((*batch, 5, 4), (*batch, 5))
        assert operator.n_conn(x).shape == batch


def test_an_edgeless_graph_is_a_bare_field():
    hilbert = nk.hilbert.Qubit(3)
    operator = fk.operator.Ising(hilbert, [], h=0.5)
    np.testing.assert_allclose(operator.to_dense(), ising.dense(3, [], 0.5, 0))


def test_negative_zero_is_zero():
    hilbert = nk.hilbert.Qubit(3)
    operator = fk.operator.Ising(hilbert, nk.graph.Chain(3), h=1.0)
    for mine, theirs in zip(
        operator.get_conn_padded(jnp.array([-0.0, 1, 0])), operator.get_conn_padded(jnp.array([0.0, 1, 0])), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_constrained_space():
    hilbert = nk.hilbert.Spin(0.5, 4, total_sz=0)
    ours, theirs = pair(hilbert, nk.graph.Chain(4), h=None)
    x = hilbert.all_states()
    assert_same_elements(ours.get_conn_padded(x), theirs.get_conn_padded(x))


@pytest.mark.parametrize(("total_sz", "change"), [(0, "-2"), (2, "-2"), (-2, r"\+2")])
def test_a_field_in_a_constrained_space(total_sz, change):
    hilbert = nk.hilbert.Spin(0.5, 4, total_sz=total_sz)
    message = rf"leads out of Spin.*changes the sum of the local states of all sites by {change}.* to {2 * total_sz}\."
    for make in (
        lambda: fk.operator.Ising(hilbert, nk.graph.Chain(4), h=1.0),
        lambda: (
            fk.operator.Ising(hilbert, nk.graph.Chain(4), h=None)
            + nk.operator.IsingJax(hilbert, nk.graph.Chain(4), h=1.0)
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_flattened():
    hilbert = nk.hilbert.Spin(0.5, 4)
    ours, theirs = pair(hilbert, nk.graph.Chain(4), h=1.0)
    x = np.asarray(hilbert.all_states())
    for pad in (False, True):
        sections = [np.empty(16, int), np.empty(16, int)]
        found = ours.get_conn_flattened(x, sections[0], pad=pad)
        assert_same_elements(found, theirs.get_conn_flattened(x, sections[1], pad=pad))
        np.testing.assert_array_equal(*sections)
    assert_same_elements(ours.get_conn(x[3]), theirs.get_conn(x[3]))


@pytest.mark.parametrize("batch", [1, 600])
@pytest.mark.parametrize(
    ("dtype", "value", "text"), [("int8", 7, "7"), ("float32", 0.5, "0.5"), ("float64", np.nan, "NaN")]
)
def test_samples_of_another_space(batch, dtype, value, text):
    hilbert = nk.hilbert.Spin(0.5, 40)
    operator = fk.operator.Ising(hilbert, nk.graph.Chain(40), h=1.0)
    x = np.array(hilbert.random_state(jax.random.key(0), batch)).astype(dtype)
    x[batch // 2, 5] = value
    x[batch - 1, 6] = value
    message = rf"sample {batch // 2}, site 5 has the value {text}, but the local states are -?1 and -?1 .*{batch}"
    # jax.errors.JaxRuntimeError, and a ValueError in the newest versions of JAX.
    with pytest.raises((RuntimeError, ValueError), match=message):
        jax.block_until_ready(operator.get_conn_padded(x))
    with pytest.raises((RuntimeError, ValueError), match=message):
        jax.block_until_ready(operator.n_conn(x))


def test_edges_that_were_changed_behind_the_constructor():
    hilbert = nk.hilbert.Spin(0.5, 4)
    operator = fk.operator.Ising(hilbert, nk.graph.Chain(4), h=1.0)
    broken = jax.tree.map(lambda leaf: leaf + 2 if leaf.ndim else leaf, operator)
    with pytest.raises((RuntimeError, ValueError), match=r"edge 1 joins the sites .*, but there are 4 sites"):
        jax.block_until_ready(broken.get_conn_padded(hilbert.all_states()))
