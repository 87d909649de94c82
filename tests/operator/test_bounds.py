"""How many connected elements a sample can have, against a count with sets, and against all samples."""

import netket as nk
import numpy as np
import pytest

from ferroket.operator.algebra import bounds
from ferroket.operator.compiled.masks import Runs, site_bits, words_of
from ferroket.operator.constraints.hilbert import conserved_charges
from ferroket.operator.sums.term_list import TermList
from reference import bounds as reference

SPACES = {
    "one sector": nk.hilbert.SpinOrbitalFermions(7, n_fermions=3),
    "two sectors": nk.hilbert.SpinOrbitalFermions(4, s=0.5, n_fermions_per_spin=(2, 1)),
    "a sector and free sites": nk.hilbert.SpinOrbitalFermions(5, n_fermions=2) * nk.hilbert.Qubit(2),
    "no sector": nk.hilbert.Qubit(7),
}


def random_terms(n_sites: int, n_terms: int, rng: np.random.Generator) -> list[reference.Term]:
    """Terms that look at some sites, with few flips, so that there are several terms of most."""
    flips = [frozenset(rng.choice(n_sites, 2, replace=False).tolist()) for _ in range(max(n_terms // 3, 1))]
    found = []
    for _ in range(n_terms):
        looked_at = rng.choice(n_sites, rng.integers(0, 5), replace=False).tolist()
        split = rng.integers(0, len(looked_at) + 1)
        particles, holes = frozenset(looked_at[:split]), frozenset(looked_at[split:])
        found.append(reference.Term(flips[rng.integers(len(flips))], particles, holes))
    return found


def as_list(terms: list[reference.Term], n_sites: int) -> TermList:
    bits = site_bits(n_sites)

    def words(sets: list[frozenset[int]]) -> np.ndarray:
        return np.concatenate([words_of(np.array([sorted(sites)], int), bits) for sites in sets])

    flip, particles = words([term.flip for term in terms]), words([term.particles for term in terms])
    mask = particles | words([term.holes for term in terms])
    return TermList(n_sites, flip, mask, particles, np.zeros_like(flip), np.ones(len(terms)))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("n_terms", [1, 6, 30, 90])
def test_no_sample_has_more_elements(space, n_terms):
    hilbert = SPACES[space]
    occupied = [frozenset(np.flatnonzero(row).tolist()) for row in np.asarray(hilbert.all_states())]
    for seed in range(10):
        terms = random_terms(hilbert.size, n_terms, np.random.default_rng(seed))
        most = bounds.most_elements(as_list(terms, hilbert.size), hilbert)
        assert max(reference.n_active(terms, sites) for sites in occupied) <= most <= len({t.flip for t in terms})


@pytest.mark.parametrize("space", ["one sector", "two sectors", "a sector and free sites"])
@pytest.mark.parametrize("n_terms", [1, 6, 30, 90])
def test_the_count_of_particles_and_holes(space, n_terms):
    hilbert = SPACES[space]
    conserved = conserved_charges(hilbert)[0]
    for seed in range(10):
        terms = random_terms(hilbert.size, n_terms, np.random.default_rng(100 + seed))
        as_terms = as_list(terms, hilbert.size)
        found = bounds._most_by_particles(as_terms, Runs.of(as_terms.flip), conserved)
        assert found == reference.most_by_particles(terms, [(frozenset(s.sites), s.total) for s in conserved])


def test_a_bound_that_is_reached():
    """Ten hops of one particle away from each of five sites: only those from where the particle is are there."""
    hilbert = nk.hilbert.SpinOrbitalFermions(5, n_fermions=1)
    hops = [
        reference.Term(frozenset({i, j}), frozenset({i}), frozenset({j})) for i in range(5) for j in range(5) if i != j
    ]
    assert bounds.most_elements(as_list(hops, 5), hilbert) == 4


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_runs_are_sorted_rows(width):
    rows = np.random.default_rng(width).integers(0, 3, size=(200, width)).astype(np.uint32) << np.uint32(30)
    runs = Runs.of(rows)
    assert runs.order.tolist() == sorted(range(200), key=lambda i: (tuple(rows[i].tolist()), i))
    distinct, numbers, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(rows[runs.first], distinct)
    np.testing.assert_array_equal(runs.run_of_row, numbers.reshape(-1))
    np.testing.assert_array_equal(runs.lengths, counts)
    np.testing.assert_array_equal(runs.sums(np.ones(200)), counts)
