"""Limits on how many fermions a site holds: what is allowed, random states, and errors."""

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
import scipy.stats

import ferroket as fk
from support.constrained_spaces import PlainConstraint
from support.limited_sites import SPACES, space

cases = pytest.mark.parametrize("hilbert", SPACES.values(), ids=SPACES)


class _FirstSiteIsFull(PlainConstraint):
    def __call__(self, x: jax.Array) -> jax.Array:
        return x[..., 0] == 1


def test_what_is_allowed() -> None:
    constraint = fk.hilbert.SiteOccupations(2, minimum=[0, 1], maximum=[1, 2])
    x = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [0, 1, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]])
    expected = [True, True, True, False, False, False]
    for dtype in (np.int8, float):
        np.testing.assert_array_equal(constraint(jnp.asarray(x, dtype)), expected)
        np.testing.assert_array_equal(jax.jit(constraint)(x[1].astype(dtype)), True)
    at_most = fk.hilbert.SiteOccupations(2, maximum=1)
    np.testing.assert_array_equal(at_most(x), [True, True, False, True, False, True])
    assert fk.hilbert.SiteOccupations(2)(x).all()


def test_equality() -> None:
    of_all = fk.hilbert.SiteOccupations(3, maximum=1)
    of_each = fk.hilbert.SiteOccupations(3, maximum=[1, 1, 1])
    assert of_all == of_each == pickle.loads(pickle.dumps(of_all))
    assert hash(of_all) == hash(of_each)
    assert of_all != fk.hilbert.SiteOccupations(3, minimum=1, maximum=1)
    assert of_all != fk.hilbert.SiteOccupations(3)
    assert space(3, maximum=1) == space(3, maximum=[1] * 3)


@pytest.mark.quick("t-J", "all kinds of sites")
@cases
def test_random_states_are_uniform(hilbert: Any) -> None:
    states = np.asarray(hilbert.all_states())
    x = np.asarray(hilbert.random_state(jax.random.key(1), 8192))
    assert (x.shape, x.dtype) == ((8192, hilbert.size), np.int8)
    number = {tuple(row): i for i, row in enumerate(states.tolist())}
    counts = np.bincount([number[tuple(row)] for row in x.tolist()], minlength=len(states))
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_random_states_of_large_spaces() -> None:
    """One hole: among random configurations without limits, next to none has no site with two fermions."""
    hilbert = space(64, maximum=1, n_fermions_per_spin=(32, 31))
    x = np.asarray(hilbert.random_state(jax.random.key(1), 100, dtype=float))
    assert x.dtype == float
    assert hilbert.constraint(x).all()
    holes = 1 - x[:, :64] - x[:, 64:]
    assert len(np.unique(holes.argmax(axis=1))) > 30
    assert hilbert.random_state(jax.random.key(1)).shape == (128,)


def test_random_states_with_another_constraint() -> None:
    hilbert = space(3, maximum=1, n_fermions_per_spin=(1, 1), constraint=_FirstSiteIsFull())
    x = np.asarray(hilbert.random_state(jax.random.key(1), 400))
    assert len(np.unique(x, axis=0)) == hilbert.n_states == 2
    assert hilbert.constraint(x).all()


@pytest.mark.filterwarnings("ignore:(?s).*Defaulting to a slow:UserWarning")
def test_netkets_random_states_with_other_constraints() -> None:
    hilbert = nk.hilbert.SpinOrbitalFermions(2, s=0.5, n_fermions_per_spin=(1, 1), constraint=_FirstSiteIsFull())
    assert hilbert.constraint(hilbert.random_state(jax.random.key(1), 5)).all()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: fk.hilbert.SiteOccupations(2, maximum=0.5), TypeError, "maximum is 0.5, but must be an integer"),
        (lambda: fk.hilbert.SiteOccupations(2, maximum=[1, 1, 1]), ValueError, r"shape \(3,\), but there are 2 sites"),
        (lambda: fk.hilbert.SiteOccupations(2, minimum=-1), ValueError, "fewer than 0 fermions"),
        (
            lambda: fk.hilbert.SiteOccupations(2, minimum=[0, 2], maximum=1),
            ValueError,
            "site 1 has minimum 2 and maximum 1",
        ),
        (
            lambda: fk.operator.fermion.hopping(space(4, maximum=1, n_fermions_per_spin=(3, 2)), [(0, 1)]),
            ValueError,
            "no configuration of .* between 0 and 4 fermions together",
        ),
        (
            lambda: space(2, minimum=2, n_fermions_per_spin=(2, 0)).random_state(jax.random.key(0), 3),
            ValueError,
            "no configuration of .* Change the numbers of fermions, or the minimum and maximum",
        ),
        (
            lambda: fk.sampler.MetropolisFermionHop(
                nk.hilbert.SpinOrbitalFermions(4, s=0.5, constraint=fk.hilbert.SiteOccupations(2)),
                graph=nk.graph.Chain(4),
            ),
            ValueError,
            "SiteOccupations of 2 sites, but 4 sites: give both the same n_orbitals",
        ),
    ],
)
def test_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_random_states_keep_sums_beside_limits() -> None:
    """A sum that the space doesn't fix by itself."""
    sums = nk.hilbert.constraint.SumOnPartitionConstraint((1, 1), (4, 4))
    both = nk.hilbert.constraint.ExtraConstraint(fk.hilbert.SiteOccupations(4, maximum=1), sums)
    hilbert = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, constraint=both)
    x = np.asarray(hilbert.random_state(jax.random.key(1), 200))
    np.testing.assert_array_equal(x.reshape(-1, 2, 4).sum(axis=2), 1)
    assert (x.reshape(-1, 2, 4).sum(axis=1) <= 1).all()
    assert len(np.unique(x, axis=0)) == 12


@pytest.mark.parametrize(("number", "error"), [(2.7, TypeError), (0, ValueError), (-1, ValueError)])
def test_numbers_of_sites(number: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        fk.hilbert.SiteOccupations(number)
