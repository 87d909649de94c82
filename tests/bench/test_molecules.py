"""Chains of hydrogen atoms: integrals and energies as published, in hartree, and as PySCF computes them."""

import numpy as np
import pytest

import ferroket as fk
from ferroket.bench import molecules


def ground_state_energy(operator):
    # Ferroket's matrix is NetKet's (tests/operator), without the seconds that NetKet compiles for.
    return np.linalg.eigvalsh(fk.accelerate(operator).to_dense())[0]


def test_integrals_of_the_hydrogen_molecule():
    """As in Szabo and Ostlund, section 3.5.2."""
    integrals = molecules.atomic_integrals(np.array([0.0, 1.4]))
    assert integrals.nuclear_repulsion == pytest.approx(1 / 1.4)
    published = {
        "overlap": [[1.0, 0.6593], [0.6593, 1.0]],
        "kinetic": [[0.7600, 0.2365], [0.2365, 0.7600]],
        "attraction": [[-1.8804, -1.1948], [-1.1948, -1.8804]],
    }
    for name, expected in published.items():
        np.testing.assert_allclose(getattr(integrals, name), expected, atol=6e-5)
    repulsion = integrals.repulsion
    found = [repulsion[0, 0, 0, 0], repulsion[0, 0, 1, 1], repulsion[1, 0, 0, 0], repulsion[1, 0, 1, 0]]
    np.testing.assert_allclose(found, [0.7746, 0.5697, 0.4441, 0.2970], atol=5e-5)


def test_energies_of_the_hydrogen_molecule():
    """As in Szabo and Ostlund: of restricted Hartree-Fock and of full configuration interaction."""
    operator = molecules.hydrogen_chain(2, 1.4)
    matrix = fk.accelerate(operator).to_dense()
    # Both electrons are in the sum of the two orbitals: each of the four configurations has the amplitude 1/2.
    assert matrix.shape == (4, 4)
    assert matrix.sum() / 4 == pytest.approx(-1.1167, abs=1e-4)
    assert np.linalg.eigvalsh(matrix)[0] == pytest.approx(-1.1373, abs=1e-4)


@pytest.mark.parametrize(("atoms", "expected"), [(3, -1.5709210877), (4, -2.1754111410), (6, -3.2445173338)])
def test_energies_of_chains(atoms, expected):
    """Full configuration interaction at 1.8 bohr, by PySCF 2.14."""
    assert ground_state_energy(molecules.hydrogen_chain(atoms, 1.8)) == pytest.approx(expected, abs=1e-8)


def test_atoms_far_apart_do_not_interact():
    assert ground_state_energy(molecules.hydrogen_chain(4, 1000.0)) == pytest.approx(4 * -0.4666, abs=2e-4)


def test_hermitian():
    operator = molecules.hydrogen_chain(4)
    assert operator.is_hermitian
    matrix = fk.accelerate(operator).to_dense()
    np.testing.assert_allclose(matrix, matrix.conj().T, atol=1e-12)


def test_terms_are_merged():
    """A constant, each hopping of either spin, and each pair of modes to each pair that has its spins."""
    terms = molecules.hydrogen_chain(6).operators
    assert len({tuple(sorted(term)) for term in terms}) == len(terms) == 1 + 2 * 6**2 + 2 * 15**2 + 36**2
    assert min(map(abs, terms.values())) > 1e-12
