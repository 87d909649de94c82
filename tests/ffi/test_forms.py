"""The compiled forms in Rust and in pure JAX, against their definition: padded, counted, compact, transformed."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

from ferroket.ffi import compact_elements
from ferroket.ffi.compact import _compact_reference, _count_reference
from ferroket.ffi.references import terms as term_references
from ferroket.operator.compiled import Terms, local_states
from support import compiled_forms as forms

ERRORS = (jax.errors.JaxRuntimeError, ValueError)
FORMS = list(forms.some_forms())

TERMS = [
    # hilbert, terms, groups, dtype, dtype of samples
    (nk.hilbert.Spin(0.5, 7), 25, 9, "float64", "int8"),
    (nk.hilbert.Spin(0.5, 5, inverted_ordering=True), 12, 6, "complex128", "float32"),
    (nk.hilbert.Qubit(1), 4, 2, "float32", "bool"),
    (nk.hilbert.SpinOrbitalFermions(32, s=0.5), 60, 21, "float32", "uint8"),
    (nk.hilbert.Qubit(70), 60, 30, "complex64", "bfloat16"),
    (nk.hilbert.Fock(1, 4) * nk.hilbert.Spin(0.5, 29), 40, 10, "int32", "complex64"),
    (nk.hilbert.DoubledHilbert(nk.hilbert.Spin(0.5, 3)), 10, 10, "bfloat16", "int64"),
]
TABLES = [
    (nk.hilbert.Spin(1, 4), [[0], [1, 0], [3, 1], [2]], "float64", "int8"),
    (forms.MIXED, [[4, 0], [2, 1, 3], [], [0], [3, 4]], "complex128", "float64"),
    (nk.hilbert.Fock(9, 3), [[0, 1], [1, 2], [2]], "float32", "uint16"),
    (nk.hilbert.DoubledHilbert(nk.hilbert.Spin(1, 1) * nk.hilbert.Qubit(1)), [[0, 2], [1, 3]], "complex64", "float16"),
    (nk.hilbert.Qubit(3), [[1], [0, 2], [1]], "int16", "bool"),
]


@functools.partial(jax.jit, static_argnames=("function", "capacity", "off_diagonal_only"))
def in_jax(function, form, x, *more, **options):
    """A reference of a primitive, as its lowering calls it."""
    params = {"family": form.family, "n_conn": form.max_conn_size, "attributes": tuple(form.attributes.items())}
    return function(x, *form.tables, *more, **params, **options)


def assert_elements(found, expected, rtol=1e-5):
    (xp, mels), (expected_xp, expected_mels) = found, expected
    assert xp.dtype == expected_xp.dtype
    assert mels.dtype == expected_mels.dtype
    np.testing.assert_array_equal(xp, expected_xp)
    # Sums of numbers that all dtypes hold exactly, but bfloat16's partial sums.
    np.testing.assert_allclose(np.asarray(mels, complex), expected_mels.astype(complex), rtol=rtol, atol=rtol)


def assert_by_definition(form, x):
    expected = forms.by_definition(form, x)
    rtol = 0.02 if form.dtype == jnp.bfloat16 else 0
    assert_elements(form.padded(x), expected, rtol)
    # The primitives take a bool as a number, and so do the references.
    in_jax, mels = forms.reference(form, x.astype(np.uint8) if x.dtype == bool else x)
    assert_elements((in_jax.astype(x.dtype), mels), expected, rtol)


@pytest.mark.parametrize(("hilbert", "n_terms", "n_groups", "dtype", "x_dtype"), TERMS)
def test_terms(hilbert, n_terms, n_groups, dtype, x_dtype):
    rng = np.random.default_rng(0)
    for _ in range(6):
        form = forms.random_terms(rng, hilbert, n_terms, n_groups, jnp.dtype(dtype))
        assert_by_definition(form, forms.random_samples(rng, form.sites, 8, jnp.dtype(x_dtype)))


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("unconditional", [False, True])
def test_terms_with_and_without_conditions(diagonal, unconditional):
    rng = np.random.default_rng(0)
    options = {"diagonal": diagonal, "unconditional": unconditional}
    form = forms.random_terms(rng, nk.hilbert.Qubit(6), 30, 12, **options)
    assert (form.unconditional, form.diagonal) == (unconditional, diagonal)
    assert_by_definition(form, forms.states_of(form, 8))


@pytest.mark.parametrize(("hilbert", "acting_on", "dtype", "x_dtype"), TABLES)
def test_matrices(hilbert, acting_on, dtype, x_dtype):
    rng = np.random.default_rng(0)
    diagonal = dtype != "float32"
    form = forms.random_matrices(rng, hilbert, acting_on, jnp.dtype(dtype), diagonal=diagonal)
    assert form.diagonal is diagonal
    assert_by_definition(form, forms.random_samples(rng, form.sites, 30, jnp.dtype(x_dtype)))


@pytest.mark.parametrize("name", FORMS)
def test_matrix_elements_alone_and_counts(name):
    form = forms.some_forms()[name]
    x = forms.states_of(form, 9).reshape(3, 3, -1)
    _, mels = form.padded(x)
    np.testing.assert_array_equal(form.mels(x), mels)
    np.testing.assert_array_equal(form.on_diagonal(x), mels[..., 0] if form.diagonal else np.zeros(x.shape[:-1]))
    np.testing.assert_allclose(forms.reference(form, x, states=False)[0], mels, rtol=1e-14)
    for off_diagonal_only in (False, True):
        nonzero = np.asarray(mels) != 0
        nonzero[..., : int(off_diagonal_only and form.diagonal)] = False
        assert form.count(x, off_diagonal_only).dtype == np.int32
        np.testing.assert_array_equal(form.count(x, off_diagonal_only), nonzero.sum(axis=-1))
        (counts,) = in_jax(_count_reference, form, x, off_diagonal_only=off_diagonal_only)
        assert counts.dtype == np.int32
        np.testing.assert_array_equal(counts, nonzero.sum(axis=-1))


def test_shapes_of_batches():
    for form in (forms.some_forms()["terms"], forms.some_forms()["matrices"]):
        for batch in [(), (0,), (3, 1, 2)]:
            x = forms.states_of(form, int(np.prod(batch))).reshape(*batch, form.n_sites)
            for xp, mels in (form.padded(x), forms.reference(form, x)):
                assert xp.shape == (*batch, form.max_conn_size, form.n_sites)
                assert mels.shape == (*batch, form.max_conn_size)
            assert form.count(x).shape == batch


def test_negative_zero_is_zero():
    form = forms.some_forms()["kinds"]
    x = forms.states_of(form, 5, dtype=float)
    negative = np.where(x == 0, -0.0, x)
    for elements in (form.padded, lambda x: forms.reference(form, x)):
        for mine, expected in zip(elements(negative), elements(x), strict=True):
            np.testing.assert_array_equal(mine, expected)


def test_no_terms():
    sites = local_states(nk.hilbert.Qubit(3))
    none = np.zeros((0, 1), np.uint32)
    zero = Terms.from_masks(sites, none, none, none, none, np.zeros(0))
    for form in (zero, forms.from_matrices(sites, [])):
        x = forms.states_of(form, 4)
        assert form.max_conn_size == 1
        for xp, mels in (form.padded(x), forms.reference(form, x)):
            np.testing.assert_array_equal(xp, x[:, None])
            np.testing.assert_array_equal(mels, np.zeros((4, 1)))
        np.testing.assert_array_equal(form.count(x), np.zeros(4))


@pytest.mark.parametrize("name", FORMS)
def test_coefficients_that_are_zero_keep_their_elements(name):
    form = forms.some_forms()[name]
    x = forms.states_of(form, 6)
    zero = form.replace_values(np.zeros_like(form.values))
    for elements in (lambda form: form.padded(x), lambda form: forms.reference(form, x)):
        np.testing.assert_array_equal(elements(zero)[0], elements(form)[0])
        np.testing.assert_array_equal(elements(zero)[1], np.zeros((6, form.max_conn_size)))


@pytest.mark.quick("kinds", "matrices")
@pytest.mark.parametrize("name", FORMS)
def test_more_elements_than_there_is_room_for(name):
    form = forms.some_forms()[name]
    x = forms.states_of(form, 30)
    of_sample = forms.terms_by_definition if isinstance(form, Terms) else forms.matrices_by_definition
    counts = np.array([len(of_sample(form, sample)) for sample in x])
    room = int(np.median(counts))
    assert counts.min() < room + 1 <= counts.max()
    tight = dataclasses.replace(form, max_conn_size=room)
    first = int(np.argmax(counts > room))
    with pytest.raises(ERRORS, match=rf"sample {first} has {counts[first]} connected elements.* room for {room}"):
        jax.block_until_ready(tight.padded(x))
    mels = np.asarray(forms.reference(tight, x)[1])
    np.testing.assert_array_equal(np.isnan(mels), np.repeat(counts[:, None] > room, room, axis=1))
    kept = counts <= room
    np.testing.assert_array_equal(mels[kept], np.asarray(form.mels(x))[kept, :room])
    # There is room for more than anything has.
    wide = dataclasses.replace(form, max_conn_size=form.max_conn_size + 5)
    assert_elements(wide.padded(x), forms.by_definition(wide, x), 1e-14)
    assert_elements(forms.reference(wide, x), forms.by_definition(wide, x), 1e-14)


@pytest.mark.quick("kinds", "float64-nan-NaN-matrices", "float64-nan-NaN-terms")
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    ("dtype", "value", "text"), [("int8", 7, "7"), ("float32", 0.5, "0.5"), ("float64", np.nan, "NaN")]
)
def test_samples_of_another_space(name, dtype, value, text):
    form = forms.some_forms()[name]
    x = forms.states_of(form, 5, dtype=dtype)
    x[3, 1] = value
    message = rf"sample 3, site 1 has the value {text}, but the local states are .*counted among the 5"
    for function in (form.padded, form.mels, form.count, lambda x: form.compact(x, (0, 0), 9)):
        with pytest.raises(ERRORS, match=message):
            jax.block_until_ready(function(x))
    mels = np.asarray(forms.reference(form, x)[1])
    np.testing.assert_array_equal(np.isnan(mels), np.arange(5)[:, None] == np.full(mels.shape, 3))


@pytest.mark.thorough
def test_long_sums_are_made_in_parts(monkeypatch):
    rng = np.random.default_rng(3)
    form = forms.random_terms(rng, nk.hilbert.Qubit(6), 50, 7)
    x = forms.states_of(form, 4)
    mels = forms.by_definition(form, x)[1]
    gradient = np.einsum("sk,ska->a", 3 * mels**2, matrix(form, x))
    for terms_at_once in (1, 16, 49):
        monkeypatch.setattr(term_references, "_SCRATCH", 4 * terms_at_once)

        def loss(values, form):
            (mels,) = forms.reference.__wrapped__(form.replace_values(values), x, False)
            return (mels**3).sum(), mels

        found = jax.jit(jax.grad(loss, has_aux=True))(form.values, jax.tree.map(jnp.asarray, form))
        for mine, other in zip(found, (gradient, mels), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-12)


def test_pure_jax_takes_little_memory():
    hilbert = nk.hilbert.Spin(0.5, 100)
    rng = np.random.default_rng(0)
    local = [np.eye(9)[rng.permutation(9)] for _ in range(3)]
    many = {
        "terms": (forms.random_terms(rng, hilbert, 3000, 300), 256),
        "matrices": (
            forms.from_matrices(
                local_states(nk.hilbert.Spin(1, 100)), [((i, (i + 7) % 100), local[i % 3]) for i in range(100)]
            ),
            1024,
        ),
    }
    for form, n_samples in many.values():
        x = jax.ShapeDtypeStruct((n_samples, 100), np.int8)
        memory = forms.reference.lower(form, x).compile().memory_analysis()
        elements = n_samples * form.max_conn_size
        # Results are 100 + 8 bytes an element; the scratch doesn't have numbers of sites.
        assert memory.output_size_in_bytes >= elements * 108
        assert memory.temp_size_in_bytes < elements * 108 + n_samples * len(form.values) * 10


# The compact form


def compact_in_jax(form, x, cursor, capacity, off_diagonal_only=False):
    options = {"capacity": capacity, "off_diagonal_only": off_diagonal_only}
    return in_jax(_compact_reference, form, x, jnp.asarray(cursor), **options)


@pytest.mark.parametrize(("name", "off_diagonal_only"), [("terms", True), ("kinds", False), ("matrices", True)])
def test_compact_elements_in_steps(name, off_diagonal_only):
    form = forms.some_forms()[name]
    x = forms.states_of(form, 6)
    expected = forms.nonzero(form, x, off_diagonal_only)
    total = len(expected[1])
    first_states = [states[0] for states in forms.values_of_sites(form.sites)]
    for compact in (form.compact, lambda *args: compact_in_jax(form, *args)):
        capacity = total // 3 + 1
        cursor, found = (0, 0), []
        while int(cursor[0]) < len(x):
            xp, mels, sample, cursor = compact(x, cursor, capacity, off_diagonal_only)
            assert (xp.shape, mels.shape, sample.shape) == ((capacity, form.n_sites), (capacity,), (capacity,))
            assert (xp.dtype, mels.dtype, sample.dtype, cursor.dtype) == (x.dtype, form.dtype, np.int32, np.int32)
            used = np.asarray(sample) < len(x)
            assert used.all() or int(cursor[0]) == len(x)
            np.testing.assert_array_equal(np.asarray(sample)[~used], len(x))
            np.testing.assert_array_equal(np.asarray(mels)[~used], 0)
            np.testing.assert_array_equal(np.asarray(xp)[~used], np.tile(first_states, ((~used).sum(), 1)))
            found.append([np.asarray(result)[used] for result in (xp, mels, sample)])
        assert len(found) == -(-total // capacity) == 3
        assert cursor.tolist() == [len(x), 0]
        for mine, other in zip(map(np.concatenate, zip(*found, strict=True)), expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-14)


@pytest.mark.thorough
def test_compact_elements_from_a_cursor():
    form = forms.some_forms()["matrices"]
    x = forms.states_of(form, 6)
    xp, mels, sample = forms.nonzero(form, x)
    for place in (0, 3, len(mels) - 1):
        start = int(sample[place]), int((sample[:place] == sample[place]).sum())
        for compact in (form.compact, lambda *args: compact_in_jax(form, *args)):
            found = compact(x, start, 2)
            n = min(len(mels) - place, 2)
            for mine, other in zip(found[:3], (xp, mels, sample), strict=True):
                np.testing.assert_allclose(mine[:n], other[place : place + n], rtol=1e-14)


def test_compact_elements_of_no_samples():
    for form in forms.some_forms().values():
        x = forms.states_of(form, 0)
        for compact in (form.compact, lambda *args, form=form: compact_in_jax(form, *args)):
            _, mels, sample, cursor = compact(x, (0, 0), 3)
            assert [mels.tolist(), sample.tolist(), cursor.tolist()] == [[0, 0, 0], [0, 0, 0], [0, 0]]


def test_cursors_that_point_nowhere():
    form = forms.some_forms()["terms"]
    x = forms.states_of(form, 3)
    for cursor in [(4, 0), (-1, 0), (0, -1), (3, 1)]:
        with pytest.raises(ERRORS, match=rf"element {cursor[1]} of sample {cursor[0]}, but there are 3 samples"):
            jax.block_until_ready(form.compact(x, cursor, 2))
    with pytest.raises(ERRORS, match=r"element 99 of sample 1, which has \d+ elements"):
        jax.block_until_ready(form.compact(x, (1, 99), 2))


def test_compact_elements_are_of_a_list_of_samples():
    form = forms.some_forms()["terms"]
    with pytest.raises(ValueError, match=r"shape \(2, 3, 6\).*\(Ns, 6\): reshape"):
        form.compact(forms.states_of(form, 6).reshape(2, 3, 6), (0, 0), 2)


# Transformations

TRANSFORMED = ["terms", "matrices"]


def matrix(form, x):
    """The derivative of the matrix elements by the coefficients, by definition: they are linear."""
    unit = np.eye(len(form.values))
    return np.stack([forms.by_definition(form.replace_values(row), x)[1] for row in unit], axis=-1)


@pytest.mark.quick("terms-complex128", "matrices-float64")
@pytest.mark.parametrize(("name", "dtype"), [("terms", "complex128"), ("kinds", "float64"), ("matrices", "float64")])
def test_derivative_by_the_coefficients(name, dtype):
    form = forms.some_forms(dtype=dtype)[name]
    x = forms.states_of(form, 4)
    options = {"holomorphic": True} if dtype == "complex128" else {}
    expected = matrix(form, x)
    for derivative in (jax.jacfwd, jax.jacrev):
        jacobian = jax.jit(derivative(lambda values: form.replace_values(values).mels(x), **options))(form.values)
        np.testing.assert_allclose(jacobian, expected, rtol=1e-14)
    hessian = jax.jit(jax.hessian(lambda values: (form.replace_values(values).mels(x) ** 3).sum(), **options))
    product = np.einsum("sk,ska,skb->ab", 6 * forms.by_definition(form, x)[1], expected, expected)
    np.testing.assert_allclose(hessian(form.values), product, rtol=1e-12, atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("name", TRANSFORMED)
def test_derivative_of_compact_elements(name):
    form = forms.some_forms()[name]
    x = forms.states_of(form, 4)
    weights = np.random.default_rng(0).normal(size=4)
    padded_mels = forms.by_definition(form, x)[1]
    expected = np.einsum("s,sk,ska->a", weights, 3 * padded_mels**2, matrix(form, x))

    def loss(values):
        _, mels, sample, _ = form.replace_values(values).compact(x, (0, 0), 5 * form.max_conn_size)
        return (jnp.append(weights, 0)[sample] * mels**3).sum()

    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(jax.jit(derivative(loss))(form.values), expected, rtol=1e-12, atol=1e-12)

    # From a cursor on, and without the diagonal.
    start = (1, 1)
    jacobian = jax.jit(jax.jacfwd(lambda values: form.replace_values(values).compact(x, start, 5, True)[1]))
    of_elements = matrix(form, x)[:, int(form.diagonal) :][padded_mels[:, int(form.diagonal) :] != 0]
    before = forms.nonzero(form, x, True)[2]
    first = int((before < 1).sum()) + 1
    np.testing.assert_allclose(jacobian(form.values), of_elements[first : first + 5], rtol=1e-14)


def test_counts_and_configurations_have_no_derivative():
    form = forms.some_forms()["terms"]
    x = forms.states_of(form, 4, dtype=float)

    def f(values, x):
        new = form.replace_values(values)
        return new.count(x), new.padded(x)[0], new.compact(x, (0, 0), 9)

    (counts, xp, compact), tangents = jax.jvp(f, (form.values, x), (form.values, np.ones_like(x)))
    counts_dot, xp_dot, (compact_xp_dot, mels_dot, sample_dot, cursor_dot) = tangents
    assert counts_dot.dtype == sample_dot.dtype == cursor_dot.dtype == jax.dtypes.float0
    np.testing.assert_array_equal(xp_dot, np.zeros_like(xp))
    np.testing.assert_array_equal(compact_xp_dot, np.zeros_like(compact[0]))
    # By the coefficients they are linear.
    np.testing.assert_array_equal(mels_dot, compact[1])
    assert counts.sum() > 9


@pytest.mark.parametrize("name", TRANSFORMED)
def test_batches(name):
    form = forms.some_forms()[name]
    x = forms.states_of(form, 12).reshape(3, 4, -1)
    values = np.stack([form.values, -2 * form.values, np.zeros_like(form.values)])

    def results(values, x):
        new = form.replace_values(values)
        return new.padded(x), new.count(x), new.compact(x, (0, 0), 20, True)

    def assert_same(mapped, each):
        for mine, other in zip(jax.tree.leaves(mapped), zip(*map(jax.tree.leaves, each), strict=True), strict=True):
            np.testing.assert_array_equal(mine, np.stack(other))

    of_samples = jax.jit(jax.vmap(results, (None, 0)))(form.values, x)
    assert_same(of_samples, [results(form.values, samples) for samples in x])
    of_values = jax.jit(jax.vmap(results, (0, None)))(values, x[0])
    assert_same(of_values, [results(v, x[0]) for v in values])
    of_both = jax.jit(jax.vmap(results, (0, 1)))(values, np.moveaxis(x, 0, 1))
    assert_same(of_both, [results(*both) for both in zip(values, x, strict=True)])
    one_by_one = jax.jit(jax.vmap(jax.vmap(lambda x: (form.padded(x), form.count(x)))))(x)
    for mine, other in zip(jax.tree.leaves(one_by_one), [*form.padded(x), form.count(x)], strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.thorough
def test_derivatives_of_batches():
    for name in TRANSFORMED:
        form = forms.some_forms()[name]
        x = forms.states_of(form, 3)
        values = np.stack([form.values, -2 * form.values])

        def loss(values, form=form, x=x):
            return (form.replace_values(values).mels(x) ** 3).sum()

        gradient = jax.jit(jax.grad(loss))
        each = [gradient(v) for v in values]
        np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(loss)))(values), each, rtol=1e-12)
        np.testing.assert_allclose(jax.jit(jax.grad(lambda v: jax.vmap(loss)(v).sum()))(values), each, rtol=1e-12)


def test_new_coefficients_compile_nothing():
    form = forms.some_forms()["terms"]
    x = forms.states_of(form, 4)
    compilations = []
    function = jax.jit(lambda form: compilations.append(1) or form.mels(x))
    for factor in (1, 2, 3):
        new = form.replace_values(factor * form.values)
        np.testing.assert_allclose(function(new), factor * np.asarray(form.mels(x)), rtol=1e-14)
    assert compilations == [1]


# Platforms


def lowered(function, form, x, platform):
    return jax.jit(function).trace(form, x).lower(lowering_platforms=(platform,)).as_text()


FUNCTIONS = {
    "": lambda form, x: form.padded(x),
    "_count": lambda form, x: form.count(x),
    "_compact": lambda form, x: form.compact(x, (0, 0), 5),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_what_runs_where(name):
    form = forms.some_forms()[name]
    x = forms.states_of(form, 4)
    for suffix, function in FUNCTIONS.items():
        assert lowered(function, form, x, "cpu").count(f"@{form.family}{suffix}(") == 1
        for platform in ("cuda", "rocm", "tpu"):
            assert "custom_call" not in lowered(function, form, x, platform)

    def gradient(form, x):
        return jax.grad(lambda v: form.replace_values(v).compact(x, (0, 0), 5)[1].sum())(form.values)

    assert "custom_call" not in lowered(gradient, form, x, "cuda")
    assert "custom_call" not in lowered(jax.vmap(FUNCTIONS["_compact"], (None, 0)), form, x[None], "cuda")


def test_a_family_without_a_compact_form():
    from ferroket.operator.compiled.ising import ISING

    with pytest.raises(ValueError, match="no handler 'ferroket_ising_compact'"):
        compact_elements(
            ISING,
            jnp.ones((2, 3)),
            jnp.zeros((0, 2), np.int32),
            1.0,
            1.0,
            cursor=jnp.zeros(2, np.int32),
            n_conn=4,
            capacity=3,
            first=1.0,
            second=-1.0,
        )
