"""Terms: how lists of them are compiled, what is refused, and the form as an object."""

import pickle
import time

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

from ferroket.operator.compiled import Form, Terms, local_states, site_bits
from support import compiled_forms as forms

SITES = local_states(nk.hilbert.Qubit(5))
NONE = np.zeros(0, int)


def dense(n_sites, mask, pattern, flip, sign, values):
    """The matrix of a list of terms, from their definition; bit i of a row's number is site i."""
    result = np.zeros((2**n_sites, 2**n_sites), np.result_type(values))
    for term in zip(mask, pattern, flip, sign, values, strict=True):
        m, p, f, s = map(int, term[:4])
        for sigma in range(2**n_sites):
            if sigma & m == p:
                result[sigma, sigma ^ f] += term[4] * (-1) ** (sigma & s).bit_count()
    return result


def matrix(form):
    """The matrix of a form, from its connected elements."""
    n_sites = form.n_sites
    basis = (np.arange(2**n_sites)[:, None] >> np.arange(n_sites)) & 1
    xp, mels = (np.asarray(result) for result in form.padded(basis))
    result = np.zeros((2**n_sites, 2**n_sites), mels.dtype)
    np.add.at(result, (np.arange(2**n_sites)[:, None], xp @ (1 << np.arange(n_sites))), mels)
    return result


def random_list(rng, n_terms, n_sites=5, n_flips=6):
    mask, sign = rng.integers(0, 2**n_sites, (2, n_terms))
    flip = rng.integers(0, 2**n_sites, n_flips)[rng.integers(0, n_flips, n_terms)]
    pattern = mask & rng.integers(0, 2**n_sites, n_terms)
    return mask, pattern, flip, sign, rng.normal(size=n_terms)


def test_random_lists():
    rng = np.random.default_rng(0)
    for n_terms in (1, 7, 60, 200):
        terms = random_list(rng, n_terms)
        form = Terms.from_masks(SITES, *terms)
        np.testing.assert_allclose(matrix(form), dense(5, *terms), atol=1e-12)
        # Grouped by flip, the diagonal first, the others as they come.
        flips = [0, *dict.fromkeys(terms[2].tolist())] if 0 in terms[2] else [*dict.fromkeys(terms[2].tolist())]
        assert form.flip[:, 0].tolist() == list(dict.fromkeys(flips))
        assert form.diagonal is (0 in terms[2])
        assert form.max_conn_size == len(form.flip) == len(form.first) - 1
        assert not (form.sign & form.mask).any()


def test_terms_that_do_the_same_are_one():
    terms = np.array(
        [
            # mask, pattern, flip, sign
            [0b00011, 0b01, 0b100, 0b01000],
            [0b00000, 0b00, 0b000, 0b00001],
            [0b00011, 0b01, 0b100, 0b01011],  # a sign where the pattern is 01: that of the whole term
            [0b00000, 0b00, 0b000, 0b00001],
            [0b00011, 0b10, 0b100, 0b01000],
        ]
    ).T
    form = Terms.from_masks(SITES, *terms, np.array([2.0, 0.25, 0.5, 0.5, 3.0]))
    assert form.values.tolist() == [0.75, 1.5, 3.0]
    assert form.flip.tolist() == [[0], [0b100]]
    assert form.first.tolist() == [0, 1, 3]
    assert form.mask.tolist() == [[0], [0b11], [0b11]]
    assert form.pattern.tolist() == [[0], [0b01], [0b10]]
    assert form.sign.tolist() == [[1], [0b01000], [0b01000]]


def test_cutoff():
    flips, values = [1, 0, 1, 2, 4], np.array([1.0, 3.0, -1.0, 1e-9, 2.0])
    none = [0] * 5
    assert Terms.from_masks(SITES, none, none, flips, none, values).values.tolist() == [3.0, 0.0, 1e-9, 2.0]
    form = Terms.from_masks(SITES, none, none, flips, none, values, cutoff=0)
    assert (form.values.tolist(), form.flip.tolist()) == ([3.0, 1e-9, 2.0], [[0], [2], [4]])
    form = Terms.from_masks(SITES, none, none, flips, none, values, cutoff=1e-8)
    assert (form.values.tolist(), form.flip.tolist()) == ([3.0, 2.0], [[0], [4]])
    form = Terms.from_masks(SITES, none, none, flips, none, values, cutoff=5)
    assert (form.values.size, form.flip.tolist(), form.diagonal, form.max_conn_size) == (0, [[0]], True, 1)


def test_diagonal():
    form = Terms.from_masks(SITES, [0], [0], [1], [0], [1.0])
    assert (form.diagonal, form.max_conn_size, form.first.tolist()) == (False, 1, [0, 1])
    form = Terms.from_masks(SITES, [0], [0], [1], [0], [1.0], diagonal=True)
    assert (form.diagonal, form.max_conn_size, form.first.tolist()) == (True, 2, [0, 0, 1])
    assert form.flip.tolist() == [[0], [1]]
    np.testing.assert_array_equal(form.mels(np.zeros((1, 5), int)), [[0, 1]])


def test_groups_that_are_always_there():
    assert Terms.from_masks(SITES, [1, 0], [1, 0], [2, 2], [0, 0], [1.0, 1.0]).unconditional
    assert not Terms.from_masks(SITES, [1, 0], [1, 0], [2, 3], [0, 0], [1.0, 1.0]).unconditional
    assert Terms.from_masks(SITES, [1, 0], [1, 0], [0, 3], [0, 0], [1.0, 1.0]).unconditional


@pytest.mark.parametrize("n_sites", [5, 32, 40, 64, 70, 130])
def test_ways_to_write_masks(n_sites):
    rng = np.random.default_rng(0)
    sites = local_states(nk.hilbert.Qubit(n_sites))
    ints = [sum(int(bit) << i for i, bit in enumerate(rng.integers(0, 2, n_sites))) for _ in range(9)]
    flips = [number & 3 for number in ints]
    bits = site_bits(n_sites)
    assert bits.shape == (n_sites, -(-n_sites // 32))
    words = np.array([np.bitwise_or.reduce(bits[[i for i in range(n_sites) if number >> i & 1]]) for number in ints])
    narrow = np.array([[number & 3] for number in ints], np.uint64)
    wide = np.zeros((9, -(-n_sites // 64)), np.uint64)
    for i in range(wide.shape[1]):
        wide[:, i] = [number >> 64 * i & (2**64 - 1) for number in ints]
    zeros, values = [0] * 9, np.arange(9.0)
    expected = Terms.from_masks(sites, zeros, zeros, flips, ints, values)
    for flip, sign in [(narrow, words), (narrow.astype(np.uint32), wide), (flips, np.pad(words, ((0, 0), (0, 3))))]:
        form = Terms.from_masks(sites, zeros, zeros, flip, sign, values)
        for mine, other in zip(jax.tree.leaves(form), jax.tree.leaves(expected), strict=True):
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other)
    x = rng.integers(0, 2, (4, n_sites))
    np.testing.assert_array_equal(expected.mels(x), forms.by_definition(expected, x)[1])


def test_traced_coefficients():
    rng = np.random.default_rng(1)
    *masks, values = random_list(rng, 80, n_flips=3)
    x = rng.integers(0, 2, (6, 5))

    def loss(values):
        return (Terms.from_masks(SITES, *masks, values, cutoff=0.1).mels(x) ** 2).sum()

    def by_definition(values):
        rows = dense(5, *masks, values)[x @ (1 << np.arange(5))]
        return (rows**2).sum()

    np.testing.assert_allclose(jax.jit(loss)(values), by_definition(values), rtol=1e-12)
    step = 1e-4
    unit = np.eye(80)
    slopes = [(by_definition(values + step * u) - by_definition(values - step * u)) / (2 * step) for u in unit]
    np.testing.assert_allclose(jax.grad(loss)(values), slopes, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("n_flips", [1000, 100_000])
def test_many_terms_take_no_time(n_flips):
    rng = np.random.default_rng(0)
    n_terms, n_sites = 100_000, 100
    last = np.array([-1, -1, -1, 0xF], np.int64).astype(np.uint32)
    mask, pattern, sign = rng.integers(0, 2**32, (3, n_terms, 4), np.uint32) & last
    flip = (rng.integers(0, 2**32, (n_flips, 4), np.uint32) & last)[rng.integers(0, n_flips, n_terms)]
    start = time.process_time()
    form = Terms.from_masks(
        local_states(nk.hilbert.Qubit(n_sites)),
        mask,
        pattern & mask,
        flip,
        sign,
        rng.normal(size=n_terms),
        cutoff=1e-12,
    )
    assert time.process_time() - start < 2
    assert form.values.size == n_terms
    assert form.max_conn_size == len(np.unique(flip, axis=0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": [32, 0]}, r"the mask of term 0 has a bit beyond the 5 sites: bit i belongs to site i"),
        ({"flip": [0, -1]}, "the flip of term 1 has a bit beyond"),
        ({"sign": np.array([[0], [1 << 7]], np.uint32)}, "the sign of term 1 has a bit beyond"),
        ({"sign": np.array([[0, 0], [0, 1]], np.uint32)}, "the sign of term 1 has a bit beyond"),
        ({"sign": np.zeros((2, 1))}, "the words of sign have dtype float64, but must be uint32 or uint64"),
        ({"pattern": [0, 4]}, "the pattern of term 1 has a bit that isn't in its mask"),
        ({"values": [1.0]}, r"values have shape \(1,\).*'mask': 2.*one of each for each term"),
        ({"values": 1.0}, r"values have shape \(\)"),
        ({"flip": [0]}, r"'flip': 1"),
        (
            {"sites": local_states(nk.hilbert.Spin(1, 5))},
            "sites with two local states each, but some of these sites have 3",
        ),
    ],
)
def test_lists_that_are_no_terms(change, message):
    right = {"sites": SITES, "mask": [0, 3], "pattern": [0, 1], "flip": [0, 1], "sign": [0, 0], "values": [1.0, 2.0]}
    with pytest.raises(ValueError, match=message):
        Terms.from_masks(**{**right, **change})


# The form as an object


@pytest.mark.parametrize("name", ["terms", "kinds", "matrices"])
def test_pytree_and_pickle(name):
    form = forms.some_forms()[name]
    x = forms.states_of(form, 3)
    leaves, structure = jax.tree.flatten(form)
    assert hash(structure) == hash(jax.tree.structure(form))
    assert [leaf is form.values for leaf in leaves].count(True) == 1
    for other in (
        jax.tree.unflatten(structure, leaves),
        pickle.loads(pickle.dumps(form)),
        jax.tree.map(jnp.asarray, form),
    ):
        assert type(other) is type(form)
        np.testing.assert_array_equal(other.mels(x), form.mels(x))
    gradient = jax.grad(lambda form: form.mels(x).sum(), allow_int=True)(form)
    ones = form.replace_values(np.ones_like(form.values))
    np.testing.assert_allclose((gradient.values * form.values).sum(), np.sum(form.mels(x)), rtol=1e-12)
    assert ones.values.sum() == ones.values.size


def test_new_coefficients():
    form = forms.some_forms()["terms"]
    x = forms.states_of(form, 3)
    twice = form.replace_values(2j * form.values)
    assert (twice.dtype, form.dtype) == (np.complex128, np.float64)
    np.testing.assert_array_equal(twice.mels(x), 2j * np.asarray(form.mels(x)))
    with pytest.raises(ValueError, match=r"shape \(3,\), but this form has 30 of them: give an array of shape \(30,\)"):
        form.replace_values(np.ones(3))


def test_wide_numbers_become_those_that_jax_has():
    with jax.enable_x64(False) if hasattr(jax, "enable_x64") else jax.experimental.disable_x64():
        form = Terms.from_masks(SITES, [0], [0], [0], [0], np.array([0.5]))
        assert form.dtype == np.float32
        assert form.mels(np.zeros((2, 5), np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("name", "x", "message"),
    [
        ("terms", np.ones((2, 7), np.int8), r"shape \(2, 7\), have 7 sites .* has 6 sites"),
        ("terms", np.ones(()), r"no dimension"),
        ("terms", np.ones((2, 6), np.uint8), "uint8, which can't hold the local state -1"),
        ("matrices", np.ones((2, 5), bool), r"bool, which can't hold the local state (2|-2|3)"),
    ],
)
def test_samples_of_the_wrong_kind(name, x, message):
    form = forms.some_forms()[name]
    for function in (form.padded, form.mels, form.count):
        with pytest.raises(ValueError, match=message):
            function(x)


def test_flattened():
    for form in forms.some_forms().values():
        x = forms.states_of(form, 12)
        expected = forms.nonzero(form, x)
        for batch in ((12,), (3, 4)):
            xp, mels, sections = form.flattened(x.reshape(*batch, -1))
            np.testing.assert_array_equal(xp, expected[0])
            np.testing.assert_allclose(mels, expected[1], rtol=1e-14)
            np.testing.assert_array_equal(sections, np.searchsorted(expected[2], np.arange(12), side="right"))
        xp, mels, sections = form.flattened(x[3])
        assert (len(xp), len(mels)) == (sections[0], sections[0])
        xp, mels, sections = form.flattened(x[:0])
        assert (xp.shape, mels.shape, sections.shape) == ((0, form.n_sites), (0,), (0,))


@pytest.mark.parametrize("name", ["terms", "matrices"])
def test_flattened_compiles_few_programs(monkeypatch, name):
    form = forms.some_forms()[name]
    x = forms.states_of(form, 8000)
    capacities = []
    compact = Form.compact

    def spy(self, x, cursor, capacity):
        capacities.append(capacity)
        return compact(self, x, cursor, capacity)

    monkeypatch.setattr(Form, "compact", spy)
    totals = []
    for n_samples in range(4000, 8000, 71):
        _, mels, sections = form.flattened(x[:n_samples])
        assert len(mels) == sections[-1] == np.asarray(form.count(x[:n_samples])).sum()
        assert capacities[-1] <= n_samples * form.max_conn_size
        totals.append(len(mels))
    assert len(set(totals)) > 50
    assert len(set(capacities)) <= 16  # eight for each doubling


def test_flattened_goes_on_where_more_elements_come_than_expected(monkeypatch):
    form = forms.some_forms()["terms"]
    x = forms.states_of(form, 50)
    expected = form.flattened(x)
    monkeypatch.setattr(Form, "_enough", lambda self, rows: 7)
    for found, wanted in zip(form.flattened(x), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_tables_of_two_states_are_terms():
    rng = np.random.default_rng(5)
    *masks, values = random_list(rng, 40)
    form = Terms.from_masks(SITES, *masks, values)
    # Bit i is site i, and the first site of a table is its most significant digit.
    table = forms.from_matrices(SITES, [(range(4, -1, -1), dense(5, *masks, values))], cutoff=1e-13)
    np.testing.assert_allclose(matrix(table), matrix(form), atol=1e-12)
