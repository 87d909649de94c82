"""The references against each other: their rows against matrices built from Kronecker products."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from support.generated_operators import FAMILIES, checks, groups


@pytest.mark.parametrize("family", FAMILIES)
@checks(15)
@given(data=st.data())
def test_rows_and_kronecker_products(family, data):
    operator = data.draw(groups(family)).operators[0]
    sites = operator.reference.sites
    if prod(len(states) for states in sites) > 100:
        return
    basis = reference.configurations(sites)
    np.testing.assert_allclose(operator.reference.matrix(basis), operator.reference.kronecker(), rtol=1e-12, atol=1e-12)


def test_permutations_move_fermions():
    """P c†ᵢ = c†_g(i) P, with P the reference and c† from Kronecker products."""
    n, image = 4, [2, 0, 3, 1]
    sites = ((0.0, 1.0),) * n
    basis = reference.configurations(sites)
    permutation = reference.FermionPermutation(sites, image).matrix(basis)
    for i in range(n):
        created = [reference.Fermions(sites, {((orbital, 1),): 1}).kronecker() for orbital in (i, image[i])]
        np.testing.assert_array_equal(permutation @ created[0], created[1] @ permutation)
    vacuum = np.eye(2**n)[0]
    np.testing.assert_array_equal(permutation @ vacuum, vacuum)


def test_permutations_move_local_operators():
    n, image = 3, [1, 2, 0]
    sites = ((1.0, -1.0),) * n
    permutation = reference.Permutation(sites, image).matrix(reference.configurations(sites))
    matrix = np.array([[1, 2], [3, 4]])
    for i in range(n):
        before, after = (reference.Local(sites, [(matrix, [site])]).kronecker() for site in (i, image[i]))
        np.testing.assert_array_equal(permutation @ before, after @ permutation)


def test_spin_flips_exchange_the_spins_of_fermions():
    n = 2
    sites = ((0.0, 1.0),) * (2 * n)
    flip = reference.SpinFlip(sites, fermions=True).matrix(reference.configurations(sites))
    for i in range(2 * n):
        created = [reference.Fermions(sites, {((orbital, 1),): 1}).kronecker() for orbital in (i, (i + n) % (2 * n))]
        np.testing.assert_array_equal(flip @ created[0], created[1] @ flip)


def test_products_sums_and_transposes():
    sites = ((0.0, 1.0, 2.0),) * 2
    basis = reference.configurations(sites)
    rng = np.random.default_rng(0)
    a, b = (reference.Local(sites, [(rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3)), [i])]) for i in range(2))
    A, B = a.kronecker(), b.kronecker()
    np.testing.assert_allclose(reference.Product(a, b).matrix(basis), A @ B)
    np.testing.assert_allclose(reference.Sum([a, b], [2, 1j]).matrix(basis), 2 * A + 1j * B)
    np.testing.assert_allclose(reference.Transposed(a).matrix(basis), A.T)
    np.testing.assert_allclose(reference.Adjoint(a).matrix(basis), A.conj().T)
    embedded = reference.Embedded(((1.0, -1.0), *sites), a, 1)
    np.testing.assert_allclose(embedded.matrix(reference.configurations(embedded.sites)), np.kron(np.eye(2), A))
