"""NetKet's contract, for one operator of each kind: whatever NetKet does with an operator, it does with ours."""

import copy
import pickle
from operator import iadd, imul, isub

import flax.serialization
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from support.comparisons import assert_rows, flattened_rows, rows
from support.example_operators import EXAMPLES, Example

examples = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
with_coefficients = pytest.mark.parametrize(
    "example", [e for e in EXAMPLES if e.has_coefficients and e.title != "zero"], ids=lambda example: example.title
)


def rng():
    return np.random.default_rng(0)


def is_ours(operator):
    return type(operator).__module__.startswith("ferroket.")


def assert_matrix(operator, expected, tol=1e-12):
    np.testing.assert_allclose(np.asarray(operator.to_dense()), expected, rtol=tol, atol=tol)


def expected_rows(example: Example):
    by_definition = example.reference()
    return [by_definition.elements(sample) for sample in example.basis]


# Connected elements


@examples
def test_connected_elements(example):
    operator, x = example.ours(), example.basis
    assert is_ours(operator)
    xp, mels = operator.get_conn_padded(x)
    assert (xp.dtype, mels.dtype) == (x.dtype, operator.dtype)
    assert mels.shape == (len(x), operator.max_conn_size)
    expected = expected_rows(example)
    assert_rows(rows(xp, mels), expected, 1e-12)
    n_conn = np.asarray(operator.n_conn(x))
    np.testing.assert_array_equal(n_conn, (np.asarray(mels) != 0).sum(axis=-1))
    for pad in (False, True):
        sections = np.empty(len(x), int)
        flat = operator.get_conn_flattened(x, sections, pad=pad)
        assert_rows(flattened_rows(*flat, sections), expected, 1e-12)
        per_sample = np.full(len(x), operator.max_conn_size) if pad else n_conn
        np.testing.assert_array_equal(sections, np.cumsum(per_sample))
    xp, mels = operator.get_conn(x[-1])
    assert_rows(flattened_rows(xp, mels, [len(mels)]), expected[-1:], 1e-12)


@examples
def test_compact_elements_under_jit(example):
    """In two pieces, the second of which starts in the middle of a sample."""
    operator, x = example.ours(), example.basis
    xp, mels = (np.asarray(array) for array in operator.get_conn_padded(x))
    total = int((mels != 0).sum())
    capacity = total // 2 + 1
    compact = jax.jit(lambda op, x, cursor: op.get_conn_compact(x, capacity, cursor))
    first = [np.asarray(array) for array in compact(operator, x, (0, 0))]
    second = [np.asarray(array) for array in compact(operator, x, first[3])]
    assert second[3][0] == len(x)
    for found, expected in zip(
        map(np.concatenate, zip(first[:3], second[:3], strict=True)),
        (xp[mels != 0], mels[mels != 0], np.nonzero(mels)[0]),
        strict=True,
    ):
        np.testing.assert_array_equal(found[:total], expected)


@pytest.mark.quick("fermions in second quantisation")
@examples
def test_max_conn_size_is_reached(example):
    """Some sample has as many elements: the padding is no longer than it must be, and NetKet's no shorter."""
    operator = example.ours()
    largest = int(np.max(np.asarray(operator.n_conn(example.basis))))
    # A diagonal is always there, also where its element is zero.
    assert largest <= operator.max_conn_size <= max(largest + operator._form.diagonal, 1)
    assert operator.max_conn_size <= max(example.theirs.max_conn_size if not example.by_accelerate else 99, 1)


# Matrices


@examples
def test_matrices(example):
    operator, expected = example.ours(), example.matrix
    assert_matrix(operator, expected)
    np.testing.assert_allclose(operator.to_sparse().todense(), expected, rtol=1e-12, atol=1e-12)
    vectors = rng().normal(size=(len(expected), 2))
    for product in (operator @ vectors[:, 0], operator.apply(vectors[:, 0]), operator(vectors[:, 0])):
        np.testing.assert_allclose(product, expected @ vectors[:, 0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(operator @ vectors, expected @ vectors, rtol=1e-12, atol=1e-12)


@pytest.mark.thorough
def test_sparse_matrices_of_jax():
    """NetKet's own, from padded elements, which takes XLA long: one is enough."""
    (example,) = (example for example in EXAMPLES if example.title == "sum of local matrices, spin 1")
    matrix = example.ours().to_sparse(jax_=True).todense()
    np.testing.assert_allclose(matrix, example.matrix, rtol=1e-12, atol=1e-12)


@examples
def test_trace(example):
    np.testing.assert_allclose(example.ours().trace(), np.trace(example.matrix), rtol=1e-12, atol=1e-12)


@examples
def test_qutip(example):
    np.testing.assert_allclose(example.ours().to_qobj().full(), example.matrix, rtol=1e-12, atol=1e-12)


@examples
def test_is_hermitian(example):
    operator = example.ours()
    expected = np.allclose(example.matrix, example.matrix.conj().T)
    assert bool(operator.is_hermitian) is expected
    seen = []
    jax.jit(lambda op: seen.append(op.is_hermitian) or op.get_conn_padded(example.basis)[1])(operator)
    assert seen == [expected]


# Identity


@pytest.mark.quick("Pauli strings", "sum of local matrices, spin 1", "permutation of sites")
@examples
def test_equality_hash_and_repr(example):
    operator, again = example.ours(), example.ours()
    assert operator == again
    assert hash(operator) == hash(again)
    assert operator != example.theirs
    if example.has_coefficients and example.title != "zero":
        assert operator != 2 * operator
    assert type(operator).__name__ in repr(operator) or str(operator.hilbert) in repr(operator)
    assert {operator: 1}[again] == 1


DUPLICATES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda operator: pickle.loads(pickle.dumps(operator)),
    "flax": lambda operator: flax.serialization.from_state_dict(operator, flax.serialization.to_state_dict(operator)),
    "jax.tree": lambda operator: jax.tree.map(lambda leaf: leaf, operator),
}


@examples
@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_duplicates(example, duplicate):
    operator = example.ours()
    result = DUPLICATES[duplicate](operator)
    assert type(result) is type(operator)
    assert result == operator
    assert hash(result) == hash(operator)
    xp, mels = result.get_conn_padded(example.basis)
    assert_rows(rows(xp, mels), expected_rows(example), 1e-12)


@examples
def test_pytree(example):
    operator = example.ours()
    leaves, structure = jax.tree.flatten(operator)
    assert all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves)
    assert structure == jax.tree.structure(example.ours())
    assert hash(structure) == hash(jax.tree.structure(example.ours()))
    assert jax.tree.unflatten(structure, leaves) == operator
    for leaf in (None, object(), "text", jax.ShapeDtypeStruct((), float)):
        assert type(jax.tree.unflatten(structure, [leaf] * len(leaves))) is type(operator)


# Transformations


@examples
def test_jit_and_vmap(example):
    operator, x = example.ours(), example.basis
    expected = operator.get_conn_padded(x)

    def assert_same(found, exactly=expected):
        jax.tree.map(np.testing.assert_array_equal, found, exactly)

    assert_same(jax.jit(lambda op, x: op.get_conn_padded(x))(operator, x))
    assert_same(jax.jit(operator.get_conn_padded)(x))
    assert_same(jax.vmap(operator.get_conn_padded)(x))
    np.testing.assert_array_equal(jax.vmap(operator.n_conn)(x), operator.n_conn(x))
    np.testing.assert_array_equal(jax.jit(lambda op: op.n_conn(x))(operator), operator.n_conn(x))


@with_coefficients
def test_a_changed_coefficient_compiles_nothing(example):
    operator, x = example.ours(), example.basis
    traces = []

    @jax.jit
    def elements(op, x):
        traces.append(op)
        return op.get_conn_padded(x)

    for factor in (2, -0.5, 3):
        xp, mels = elements(factor * operator, x)
        expected = [{to: factor * mel for to, mel in row.items()} for row in expected_rows(example)]
        assert_rows(rows(xp, mels), expected, 1e-12)
    assert len(traces) == 1


@pytest.mark.quick(
    "transverse-field Ising model", "sum of local matrices, spin 1", "Pauli strings", "fermions in second quantisation"
)
@with_coefficients
def test_derivatives_by_the_coefficients(example):
    operator, x = example.ours(), example.basis
    form = operator._form
    values = jnp.asarray(form.values)
    imaginary = 1j if jnp.iscomplexobj(values) else 0
    weights, direction = (
        jnp.asarray(rng().normal(size=shape) + imaginary * rng().normal(size=shape))
        for shape in ((len(x), operator.max_conn_size), values.shape)
    )

    def mels(values):
        return form.replace_values(values).padded(x)[1]

    def loss(values):
        return (jnp.abs(weights * mels(values)) ** 2).sum()

    @jax.jit
    def derivatives(values):
        _, tangent = jax.jvp(mels, (values,), (direction,))
        (cotangent,) = jax.vjp(mels, values)[1](weights)
        return tangent, cotangent, jax.grad(loss)(values)

    @jax.jit
    def differences(values):
        # The elements are linear in the coefficients, and their squares are quadratic: these steps have no error.
        return mels(values + direction) - mels(values), (loss(values + direction) - loss(values - direction)) / 2

    tangent, cotangent, slope = derivatives(values)
    by_difference, slope_by_difference = differences(values)
    np.testing.assert_allclose(tangent, by_difference, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose((cotangent * direction).sum(), (weights * tangent).sum(), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose((slope * direction).sum().real, slope_by_difference, rtol=1e-10, atol=1e-10)


@pytest.mark.quick("Pauli strings")
@pytest.mark.parametrize("title", ["sum of local matrices, spin 1", "Pauli strings", "Ising model"])
def test_derivative_by_the_operator(title):
    (example,) = (example for example in EXAMPLES if title in example.title)
    operator = example.ours()
    gradient = jax.grad(lambda op: jnp.abs(op.get_conn_padded(example.basis)[1] ** 2).sum(), allow_int=True)(operator)
    assert type(gradient) is type(operator)


# Arithmetic


@pytest.mark.quick("sum of local matrices, spin 1", "fermions in second quantisation")
@with_coefficients
def test_arithmetic_stays_ours(example):
    a, b, A = example.ours(), example.ours(), example.matrix
    results = {
        "2 * op": (2 * a, 2 * A),
        "op * 2.5": (a * 2.5, 2.5 * A),
        "1j * op": (1j * a, 1j * A),
        "op / 4": (a / 4, A / 4),
        "-op": (-a, -A),
        "+op": (+a, A),
        "op + op": (a + b, 2 * A),
        "op - op / 2": (a - b / 2, A / 2),
        "op @ op": (a @ b, A @ A),
        "op.H": (a.H, A.conj().T),
        "op.T": (a.T, A.T),
        "op.conj()": (a.conjugate(), A.conj()),
        "op.H @ op": (a.H @ a, A.conj().T @ A),
        "op + NetKet's": (a + example.theirs, 2 * A),
        "(2 * op + op) @ op": ((2 * a + b) @ a, 3 * A @ A),
    }
    for name, (result, expected) in results.items():
        np.testing.assert_allclose(np.asarray(result.to_dense()), expected, rtol=1e-10, atol=1e-10, err_msg=name)
        assert is_ours(result), f"{name} is a {type(result)}"
    # The operands are as they were.
    assert a == b
    assert_matrix(a, A)


@with_coefficients
def test_arithmetic_in_place_makes_no_others_change(example):
    a = example.ours()
    for change, other, factor in ((iadd, example.ours(), 2), (isub, example.ours() / 2, 1.5), (imul, 2, 3)):
        before = a
        was = np.asarray(before.to_dense())
        a = change(a, other)
        assert_matrix(a, factor * example.matrix)
        assert_matrix(before, was) if a is not before else None


# Conversions


@pytest.mark.quick(
    "transverse-field Ising model", "sum of local matrices, spin 1", "Pauli strings", "product of operators"
)
@examples
def test_accelerate(example):
    ours = example.ours()
    theirs = example.theirs
    again = fk.accelerate(theirs)
    assert is_ours(again)
    assert again.dtype == theirs.dtype
    assert_matrix(again, example.matrix)
    assert fk.accelerate(ours) is ours
    if hasattr(theirs, "to_numba_operator") and not example.by_accelerate:
        from_numba = fk.accelerate(theirs.to_numba_operator())
        assert is_ours(from_numba)
        assert_matrix(from_numba, example.matrix)


# In NetKet's hands


def model():
    return nk.models.RBM(alpha=1, param_dtype=complex)


@pytest.mark.quick("Pauli strings", "permutation of sites")
@examples
def test_expectation_values(example):
    operator = example.ours()
    vstate = nk.vqs.FullSumState(operator.hilbert, model(), seed=1)
    psi = vstate.to_array()
    np.testing.assert_allclose(vstate.expect(operator).mean, psi.conj() @ example.matrix @ psi, rtol=1e-10, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("title", ["sum of local matrices, spin 1", "permutation of sites"])
def test_as_netkets_operator_in_a_state(title):
    """Matrices and permutations, as Ising has more tests: estimates, gradients, chunks as with NetKet's operator."""
    (example,) = (example for example in EXAMPLES if example.title == title)
    sampler = nk.sampler.ExactSampler(example.ours().hilbert)
    vstate = nk.vqs.MCState(sampler, model(), n_samples=32, seed=1, sampler_seed=2)
    results = []
    for operator in (example.ours(), example.theirs):
        measured = [vstate.expect(operator).mean, vstate.expect(operator).variance, vstate.local_estimators(operator)]
        vstate.chunk_size = 4
        measured.append(vstate.expect(operator).mean)
        vstate.chunk_size = None
        if operator.is_hermitian:
            measured.append(vstate.expect_and_grad(operator)[1])
        results.append(measured)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), *results)


@pytest.mark.thorough
def test_serialization_of_a_state_that_samples_with_an_operator():
    (example,) = (example for example in EXAMPLES if example.title == "Heisenberg model")
    operator = example.ours()
    states = []
    for seed in (1, 2):
        sampler = nk.sampler.MetropolisHamiltonian(operator.hilbert, hamiltonian=operator, n_chains=4)
        states.append(nk.vqs.MCState(sampler, nk.models.RBM(), n_samples=16, seed=seed, sampler_seed=seed))
    first, second = states
    energy = first.expect(operator).mean
    second = flax.serialization.from_bytes(second, flax.serialization.to_bytes(first))
    np.testing.assert_array_equal(second.samples, first.samples)
    assert second.expect(operator).mean == energy
