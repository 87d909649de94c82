"""Numbers of configurations, beside NetKet's."""

import netket as nk
import numpy as np
import pytest

from ferroket.operator.algebra import numbering

SPACES = [
    nk.hilbert.Spin(0.5, 5),
    nk.hilbert.Spin(0.5, 6, total_sz=0),
    nk.hilbert.Spin(1, 4, total_sz=1),
    nk.hilbert.Spin(1.5, 3),
    nk.hilbert.Qubit(4),
    nk.hilbert.Fock(n_max=3, N=4, n_particles=5),
    nk.hilbert.Spin(0.5, 3) * nk.hilbert.Fock(n_max=2, N=2),
    nk.hilbert.DoubledHilbert(nk.hilbert.Spin(0.5, 2)),
    nk.hilbert.SpinOrbitalFermions(3, s=1 / 2, n_fermions_per_spin=(2, 1)),
    nk.hilbert.Spin(0.5, 20, total_sz=8),
    nk.hilbert.SpinOrbitalFermions(70, n_fermions=2),
]


@pytest.mark.parametrize("limit", [0, 1 << 24])
@pytest.mark.parametrize("hilbert", SPACES, ids=repr)
def test_as_netkets(hilbert, limit, monkeypatch):
    monkeypatch.setattr(numbering, "_TABLE", limit)
    states = np.asarray(hilbert.all_states())
    order = np.random.default_rng(0).integers(0, len(states), 100)
    np.testing.assert_array_equal(numbering.states_to_numbers(hilbert, states[order]), order)
    np.testing.assert_array_equal(hilbert.states_to_numbers(states[order]), order)


@pytest.mark.parametrize("limit", [0, 1 << 24])
def test_configurations_outside(limit, monkeypatch):
    monkeypatch.setattr(numbering, "_TABLE", limit)
    hilbert = nk.hilbert.Spin(0.5, 4, total_sz=0)
    with pytest.raises(ValueError, match=r"the configuration \[1, 1, 1, -1\] isn't one of Spin"):
        numbering.states_to_numbers(hilbert, np.array([[1, -1, 1, -1], [1, 1, 1, -1]]))
