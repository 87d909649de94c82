"""NetKet's contract, for one operator of each kind: whatever NetKet does with an operator, it does with ours."""

import copy
import pickle

import flax.serialization
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from comparing import assert_rows, flattened_rows, on_a_gpu, rows
from example_operators import EXAMPLES, Example
from ferroket.operator.compiled import Form

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
    twin = example.twin()
    return [twin.elements(sample) for sample in example.basis]


# Connected elements


@examples
def test_connected_elements(example):
    operator, x = example.ours(), example.basis
    assert is_ours(operator)
    assert operator.dtype == example.theirs().dtype
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
def test_max_conn_size_is_reached(example):
    """Some sample has as many elements: the padding is no longer than it must be, and NetKet's no shorter."""
    operator = example.ours()
    largest = int(np.max(np.asarray(operator.n_conn(example.basis))))
    # A diagonal is always there, also where its element is zero.
    assert largest <= operator.max_conn_size <= max(largest + operator._form.diagonal, 1)
    assert operator.max_conn_size <= max(example.theirs().max_conn_size if not example.by_accelerate else 99, 1)


# Matrices


@examples
def test_matrices(example):
    operator, expected = example.ours(), example.matrix
    assert_matrix(operator, expected)
    np.testing.assert_allclose(operator.to_sparse().todense(), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(operator.to_sparse(jax_=True).todense(), expected, rtol=1e-12, atol=1e-12)
    vectors = rng().normal(size=(len(expected), 2))
    for product in (operator @ vectors[:, 0], operator.apply(vectors[:, 0]), operator(vectors[:, 0])):
        np.testing.assert_allclose(product, expected @ vectors[:, 0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(operator @ vectors, expected @ vectors, rtol=1e-12, atol=1e-12)


@examples
def test_trace(example):
    np.testing.assert_allclose(example.ours().trace(), np.trace(example.matrix), rtol=1e-12, atol=1e-12)


@examples
def test_qutip(example):
    pytest.importorskip("qutip")
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


@examples
def test_equality_hash_and_repr(example):
    operator, again = example.ours(), example.ours()
    assert operator == again
    assert hash(operator) == hash(again)
    assert operator != example.theirs()
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

    for factor in (1, 2, -0.5):
        multiple = operator if factor == 1 else factor * operator
        xp, mels = elements(multiple, x)
        assert_rows(rows(xp, mels), [{k: factor * v for k, v in row.items()} for row in expected_rows(example)], 1e-12)
    assert len(traces) == 1


def forms(operator) -> list[Form]:
    """The compiled forms in an operator: one, or one for each part."""
    leaves = jax.tree.leaves(operator, is_leaf=lambda node: isinstance(node, Form))
    return [leaf for leaf in leaves if isinstance(leaf, Form)]


@with_coefficients
def test_derivatives_by_the_coefficients(example):
    operator, x = example.ours(), example.basis
    (form,) = forms(operator)
    values = jnp.asarray(form.values)
    weights, direction = (
        (rng().normal(size=shape) + (1j * rng().normal(size=shape) if jnp.iscomplexobj(values) else 0))
        for shape in ((len(x), operator.max_conn_size), values.shape)
    )
    weights, direction = jnp.asarray(weights), jnp.asarray(direction)

    def mels(values):
        return form.replace_values(values).padded(x)[1]

    # The elements are linear in the coefficients: a finite difference is exact, and of any size.
    difference = mels(values + direction) - mels(values)
    _, tangent = jax.jvp(mels, (values,), (direction,))
    np.testing.assert_allclose(tangent, difference, rtol=1e-10, atol=1e-10)
    _, pullback = jax.vjp(mels, values)
    (cotangent,) = pullback(weights)
    np.testing.assert_allclose((cotangent * direction).sum(), (weights * tangent).sum(), rtol=1e-10, atol=1e-10)

    def loss(values):
        return (jnp.abs(weights * mels(values)) ** 2).sum()

    slope = jax.grad(loss)(values)
    step = 1e-6
    numerical = (loss(values + step * direction) - loss(values - step * direction)) / (2 * step)
    # JAX's gradient of a real function of complex numbers is the conjugate of the direction of ascent.
    np.testing.assert_allclose((slope * direction).sum().real, numerical, rtol=1e-6)

    # And by the operator as a whole.
    gradient = jax.grad(lambda op: jnp.abs(op.get_conn_padded(x)[1] ** 2).sum(), allow_int=True)(operator)
    assert type(gradient) is type(operator)


# Platforms


@examples
def test_gpus(example):
    operator, x = example.ours(), example.basis
    compiled = on_a_gpu(lambda op, x: op.get_conn_padded(x), operator, x)
    expected = operator.get_conn_padded(x)
    for mine, cpus in zip(compiled(operator, x), expected, strict=True):
        assert mine.dtype == cpus.dtype
        np.testing.assert_allclose(mine, cpus, rtol=1e-14, atol=1e-14)
    lowered = jax.jit(lambda op, x: op.get_conn_padded(x)).lower(operator, x).as_text()
    assert lowered.count("stablehlo.custom_call @ferroket_") >= 1


# Arithmetic


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
        "op + NetKet's": (a + example.theirs(), 2 * A),
        "(2 * op + op) @ op": ((2 * a + b) @ a, 3 * A @ A),
    }
    for name, (result, expected) in results.items():
        np.testing.assert_allclose(
            np.asarray(result.to_dense()), expected, rtol=1e-10, atol=1e-10, err_msg=name
        )
        assert is_ours(result), f"{name} is a {type(result)}"
    # The operands are as they were.
    assert a == b
    assert_matrix(a, A)


@with_coefficients
def test_arithmetic_in_place_makes_no_others_change(example):
    a = before = example.ours()
    a += example.ours()
    a -= example.ours() / 2
    a *= 2
    assert_matrix(before, example.matrix) if a is not before else None
    assert_matrix(a, 3 * example.matrix)


# Conversions


@examples
def test_accelerate(example):
    ours = example.ours()
    theirs = example.theirs()
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


@examples
def test_expectation_values(example):
    if not example.basis.size or example.title == "zero":
        pytest.skip("nothing to measure")
    ours, theirs = example.ours(), example.theirs()
    if not isinstance(theirs, nk.operator.DiscreteJaxOperator):
        theirs = theirs.collect()
    hilbert = ours.hilbert
    sampler = nk.sampler.ExactSampler(hilbert)
    model = nk.models.RBM(alpha=1, param_dtype=complex)
    vstate = nk.vqs.MCState(sampler, model, n_samples=32, seed=1, sampler_seed=2)
    found, expected = (vstate.expect(operator) for operator in (ours, theirs))
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-9, atol=1e-11)
    local = [vstate.local_estimators(operator) for operator in (ours, theirs)]
    np.testing.assert_allclose(*local, rtol=1e-10, atol=1e-12)
