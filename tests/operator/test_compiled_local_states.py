"""Local states of Hilbert spaces, against those that NetKet gives."""

import netket as nk
import numpy as np
import pytest
from netket.hilbert import DiscreteHilbert

from ferroket.operator.compiled import local_states
from support import compiled_forms as forms

SPACES = [
    nk.hilbert.Spin(0.5, 3),
    nk.hilbert.Spin(0.5, 3, inverted_ordering=True),
    nk.hilbert.Spin(1.5, 2, total_sz=0),
    nk.hilbert.Qubit(2),
    nk.hilbert.Fock(4, 3),
    nk.hilbert.Fock(N=3, n_particles=5),
    nk.hilbert.SpinOrbitalFermions(3, s=0.5, n_fermions_per_spin=(1, 2)),
    nk.hilbert.SpinOrbitalFermions(2) * nk.hilbert.Fock(300, 2),
    nk.hilbert.Fock(3, 2) * nk.hilbert.Spin(1, 1) * nk.hilbert.Fock(3, 1),
    nk.hilbert.DoubledHilbert(nk.hilbert.Spin(0.5, 3)),
    nk.hilbert.DoubledHilbert(nk.hilbert.Spin(1, 1) * nk.hilbert.Qubit(2)),
]


class OneByOne(DiscreteHilbert):
    """A space that NetKet knows nothing of, with these local states."""

    def __init__(self, *states):
        super().__init__([len(of_site or ()) for of_site in states])
        self.states = states

    @property
    def size(self):
        return len(self.states)

    def states_at_index(self, i):
        return self.states[i]

    def __repr__(self):
        return f"OneByOne{self.states}"

    @property
    def _attrs(self):
        return self.states


@pytest.mark.parametrize("hilbert", SPACES, ids=str)
def test_spaces_of_netket(hilbert):
    sites = local_states(hilbert)
    assert forms.values_of_sites(sites) == [list(hilbert.states_at_index(i)) for i in range(hilbert.size)]
    np.testing.assert_array_equal(sites.sizes_of_sites, hilbert.shape)
    assert sites.n_sites == hilbert.size
    assert sites.kind.shape == ((hilbert.size,) if len(sites.sizes) > 1 else (0,))
    assert len(set(zip(sites.starts, sites.steps, sites.sizes, strict=True))) == len(sites.sizes)
    every_state = {state for states in forms.values_of_sites(sites) for state in states}
    assert set(sites.extremes) <= every_state
    assert {min(every_state), max(every_state)} <= set(sites.extremes)


def test_kinds():
    sites = local_states(nk.hilbert.Fock(3, 2) * nk.hilbert.Spin(1, 1) * nk.hilbert.Fock(3, 1))
    assert sites.kind.tolist() == [0, 0, 1, 0]
    assert (sites.starts, sites.steps, sites.sizes) == ((0.0, 2.0), (1.0, -2.0), (4, 3))
    assert sites.extremes == (0, 1, 3, 2, -2)


def test_spaces_of_others():
    sites = local_states(OneByOne([0.5, 1.5], [7], [0.5, 1.5]))
    assert forms.values_of_sites(sites) == [[0.5, 1.5], [7], [0.5, 1.5]]


@pytest.mark.parametrize(
    ("hilbert", "message"),
    [
        (nk.hilbert.Fock(N=4), r"Fock\(n_max=FOCK_MAX, N=4\) has sites without a bound.*give a bound.*n_max"),
        (nk.hilbert.Qubit(2) * nk.hilbert.Fock(N=4), r"Qubit\(N=2\)⊗Fock.* without a bound"),
        (nk.hilbert.DoubledHilbert(nk.hilbert.Fock(N=4)), r"DoubledHilbert\(Fock.* without a bound"),
        (OneByOne([0, 1], None), "without a bound"),
        (OneByOne([0, 1], [0, 1, 3]), r"site 1 .* are \[0, 1, 3\], but must be evenly spaced"),
        (nk.graph.Chain(3), "is no discrete Hilbert space"),
        (4, "4 is no discrete Hilbert space: take one of nk.hilbert"),
    ],
    ids=str,
)
def test_spaces_that_no_table_holds(hilbert, message):
    with pytest.raises(TypeError, match=message):
        local_states(hilbert)
