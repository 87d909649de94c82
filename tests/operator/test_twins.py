"""The twins against each other: their rows against matrices built from Kronecker products."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import twins
from generated_operators import FAMILIES, checks, groups


@pytest.mark.parametrize("family", FAMILIES)
@checks(15)
@given(data=st.data())
def test_rows_and_kronecker_products(family, data):
    operator = data.draw(groups(family)).operators[0]
    sites = operator.twin.sites
    if prod(len(states) for states in sites) > 100:
        return
    basis = twins.configurations(sites)
    np.testing.assert_allclose(operator.twin.matrix(basis), operator.twin.kronecker(), rtol=1e-12, atol=1e-12)


def test_permutations_move_fermions():
    """P c†ᵢ = c†_g(i) P, with P the twin and c† from Kronecker products."""
    n, image = 4, [2, 0, 3, 1]
    sites = ((0.0, 1.0),) * n
    basis = twins.configurations(sites)
    permutation = twins.FermionPermutation(sites, image).matrix(basis)
    for i in range(n):
        created = [twins.Fermions(sites, {((orbital, 1),): 1}).kronecker() for orbital in (i, image[i])]
        np.testing.assert_array_equal(permutation @ created[0], created[1] @ permutation)
    vacuum = np.eye(2**n)[0]
    np.testing.assert_array_equal(permutation @ vacuum, vacuum)


def test_permutations_move_local_operators():
    n, image = 3, [1, 2, 0]
    sites = ((1.0, -1.0),) * n
    permutation = twins.Permutation(sites, image).matrix(twins.configurations(sites))
    matrix = np.array([[1, 2], [3, 4]])
    for i in range(n):
        before, after = (twins.Local(sites, [(matrix, [site])]).kronecker() for site in (i, image[i]))
        np.testing.assert_array_equal(permutation @ before, after @ permutation)


def test_spin_flips_exchange_the_spins_of_fermions():
    n = 2
    sites = ((0.0, 1.0),) * (2 * n)
    flip = twins.SpinFlip(sites, fermions=True).matrix(twins.configurations(sites))
    for i in range(2 * n):
        created = [twins.Fermions(sites, {((orbital, 1),): 1}).kronecker() for orbital in (i, (i + n) % (2 * n))]
        np.testing.assert_array_equal(flip @ created[0], created[1] @ flip)


def test_products_sums_and_transposes():
    sites = ((0.0, 1.0, 2.0),) * 2
    basis = twins.configurations(sites)
    rng = np.random.default_rng(0)
    a, b = (twins.Local(sites, [(rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3)), [i])]) for i in range(2))
    A, B = a.kronecker(), b.kronecker()
    np.testing.assert_allclose(twins.Product(a, b).matrix(basis), A @ B)
    np.testing.assert_allclose(twins.Sum([a, b], [2, 1j]).matrix(basis), 2 * A + 1j * B)
    np.testing.assert_allclose(twins.Transposed(a).matrix(basis), A.T)
    np.testing.assert_allclose(twins.Adjoint(a).matrix(basis), A.conj().T)
    embedded = twins.Embedded(((1.0, -1.0), *sites), a, 1)
    np.testing.assert_allclose(embedded.matrix(twins.configurations(embedded.sites)), np.kron(np.eye(2), A))
