"""How matrices are compiled, against Kronecker products."""

import jax
import netket as nk
import numpy as np
import pytest

import reference
from ferroket.operator.compiled import Matrices, local_states
from support import compiled_forms as forms

SPINS = local_states(nk.hilbert.Spin(1, 3))


@pytest.mark.parametrize(
    ("hilbert", "acting_on"),
    [
        (nk.hilbert.Spin(1, 3), [[0], [2, 0], [1], [0, 1, 2]]),
        (forms.MIXED, [[4], [3, 0], [0, 4, 2]]),
        (nk.hilbert.DoubledHilbert(nk.hilbert.Spin(0.5, 2)), [[0, 2], [3, 1]]),
    ],
    ids=str,
)
def test_matrices_by_definition(hilbert, acting_on):
    rng = np.random.default_rng(0)
    sites = local_states(hilbert)
    terms = []
    for where in acting_on:
        rows = int(np.prod(sites.sizes_of_sites[where]))
        dense = rng.normal(size=(rows, rows)) + 1j * rng.normal(size=(rows, rows))
        terms.append((where, dense * (rng.random((rows, rows)) < 0.4)))
    by_definition = reference.Local(forms.values_of_sites(sites), [(dense, where) for where, dense in terms])
    np.testing.assert_allclose(forms.matrix(forms.from_matrices(sites, terms)), by_definition.kronecker(), atol=1e-12)


def test_arrays():
    matrix = np.array([[0, 0.5, 0], [1.0, 2.0, 0], [3.0, 1e-9, 0]])
    form = forms.from_matrices(SPINS, [([1], matrix), ([2, 0], np.eye(9)), ([0], matrix.copy())], cutoff=1e-8)
    assert form.first_site.tolist() == [0, 1, 3, 4]
    assert form.acting_on.tolist() == [1, 2, 0, 0]
    assert form.table.tolist() == [0, 1, 0]  # equal matrices are one
    assert form.first_row.tolist() == [0, 3, 12]
    assert form.first_entry.tolist() == [0, 1, 3, *range(4, 14)]
    assert form.columns[:4].tolist() == [1, 1, 0, 0]  # the diagonal comes first
    assert form.values[:4].tolist() == [0.5, 2.0, 1.0, 3.0]
    assert (form.diagonal, form.support, form.max_conn_size) == (True, 2, 3)


def test_max_conn_size():
    shift, number = np.eye(3, k=1), np.diag([1.0, 0.0, -1.0])
    sizes = [
        ([([0], shift)], None, 1),
        ([([0], shift), ([2], shift)], None, 2),
        ([([0], shift + number), ([2], shift)], None, 3),
        ([([0], number), ([2], number)], None, 1),
        ([([0], shift)], True, 2),
        ([([0], 0 * shift)], None, 1),
        ([], None, 1),
        ([([], np.array([[2.0]]))], None, 1),
    ]
    for terms, diagonal, expected in sizes:
        assert forms.from_matrices(SPINS, terms, diagonal=diagonal).max_conn_size == expected
    assert forms.from_matrices(SPINS, sizes[1][0], diagonal=False, most=7).max_conn_size == 7


def test_rows_without_entries():
    lower = np.eye(3, k=-1)
    form = forms.from_matrices(SPINS, [([i], lower) for i in range(3)], diagonal=False)
    # The first row of the matrix is empty: the state of index 0 everywhere has no elements.
    xp, mels = form.padded(np.array([[2, 2, 2], [-2, 2, 0]], np.int8))
    np.testing.assert_array_equal(mels, [[0, 0, 0], [1, 1, 0]])
    np.testing.assert_array_equal(xp[0], [[2, 2, 2]] * 3)
    np.testing.assert_array_equal(xp[1], [[0, 2, 0], [-2, 2, 2], [-2, 2, 0]])


@pytest.mark.parametrize("dtype", ["float32", "complex64", None])
def test_dtypes(dtype):
    terms = [([0], np.eye(3, dtype=int)), ([1], 1j * np.eye(3))]
    if dtype == "float32":
        terms = terms[:1]
    form = forms.from_matrices(SPINS, terms, dtype=dtype)
    assert form.dtype == (dtype or "complex128")
    assert form.mels(np.zeros((2, 3), np.int8)).dtype == form.dtype


def test_traced_coefficients():
    form = forms.some_forms()["matrices"]
    x = forms.states_of(form, 5)
    arrays = [form.first_site, form.acting_on, form.table, form.first_row, form.first_entry, form.columns]

    def mels(values):
        return Matrices.from_arrays(form.sites, *arrays, values).mels(x)

    np.testing.assert_array_equal(jax.jit(mels)(form.values), form.mels(x))
