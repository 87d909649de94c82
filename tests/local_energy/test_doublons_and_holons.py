"""Ratios of doublon-holon factors, alone and in mVMC's products of four, against NetKet's local values and chains."""

from typing import Any

import jax
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket._compat.netket import FermiHubbard
from support.variational_states import is_single, make_state, netkets_values, values_by


class AnotherDoublonHolon(fk.models.DoublonHolon):
    """The same function, whose ratios aren't known."""


def shells_of(extent: tuple[int, int], *, odd: bool = False) -> tuple[np.ndarray, ...]:
    """The neighbours of all sites along the axes and the diagonals: on two sites, one twice.

    If odd, shells that no lattice has: of the site itself, of one site twice, and of sites that don't have it.
    """
    sites = np.arange(np.prod(extent)).reshape(extent)
    if odd:
        rng = np.random.default_rng(3)
        first = rng.integers(sites.size, size=(sites.size, 3))
        first[0], first[1, :2] = 0, 1
        return first, np.zeros((sites.size, 0), int), rng.integers(sites.size, size=(sites.size, 1))
    along, across = [(1, 0), (-1, 0), (0, 1), (0, -1)], [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    return tuple(np.stack([np.roll(sites, by, (0, 1)).ravel() for by in shell], axis=1) for shell in (along, across))


def lattice(extent: tuple[int, int]) -> Any:
    edges = [(i, int(j)) for i, there in enumerate(shells_of(extent)[0]) for j in there]
    return nk.graph.Graph(edges=sorted({(min(edge), max(edge)) for edge in edges}))


def hubbard(extent: tuple[int, int]) -> Any:
    """With as many fermions of each spin as half of the sites."""
    sites = int(np.prod(extent))
    hilbert = nk.hilbert.SpinOrbitalFermions(sites, s=1 / 2, n_fermions_per_spin=(sites // 2, sites // 2))
    return FermiHubbard(hilbert, lattice(extent), t=1.0, U=4.0)


def product(hilbert: Any, shells: Any, dtype: Any, kind: Any = fk.models.DoublonHolon) -> Any:
    """MVMC's standard wave function."""
    return fk.models.Product(
        (
            fk.models.PairProduct(hilbert, param_dtype=dtype),
            fk.models.DensityJastrow(hilbert, param_dtype=dtype),
            fk.models.Gutzwiller(hilbert, param_dtype=dtype),
            kind(hilbert, shells, param_dtype=dtype),
        )
    )


def compare(model: Any, theirs: Any) -> None:
    """Local values by ratios, against NetKet's."""
    ours, state = fk.accelerate(theirs), make_state(model, theirs.hilbert, scale=0.5)
    found = fk.explain(state, ours)
    assert (found.path, found.reasons) == ("known ratios", []), found
    x = theirs.hilbert.random_state(jax.random.key(1), 100)
    values = values_by(nk.vqs.get_local_kernel(state, ours), state._apply_fun, state.variables, x, ours)
    expected = netkets_values(state._apply_fun, state.variables, x, theirs)
    tolerance = 1e-4 if is_single(state.variables) else 1e-10
    np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.quick("2x2-shells-float-product", "3x2-odd-complex-product", "4x4-shells-float32-alone")
@pytest.mark.parametrize("alone", [False, True], ids=["product", "alone"])
@pytest.mark.parametrize("dtype", [float, complex, np.float32, np.complex64], ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("odd", [False, True], ids=["shells", "odd"])
@pytest.mark.parametrize("extent", [(2, 2), (3, 2), (4, 4)], ids=["2x2", "3x2", "4x4"])
def test_local_energies_are_netkets(extent: tuple[int, int], odd: bool, dtype: Any, alone: bool) -> None:
    theirs = hubbard(extent)
    shells = shells_of(extent, odd=odd)
    factor = fk.models.DoublonHolon(theirs.hilbert, shells, param_dtype=dtype)
    compare(factor if alone else product(theirs.hilbert, shells, dtype), theirs)


@pytest.mark.quick("complex")
@pytest.mark.parametrize(("dtype", "odd"), [(float, False), (complex, True)], ids=["real", "complex"])
def test_chains_are_those_of_the_network(dtype: Any, odd: bool) -> None:
    """The same moves are accepted where Rust evaluates the product whole."""
    theirs = hubbard((3, 2))
    shells = shells_of((3, 2), odd=odd)
    samples = []
    for kind in (fk.models.DoublonHolon, AnotherDoublonHolon):
        model = product(theirs.hilbert, shells, dtype, kind)
        variables = make_state(model, theirs.hilbert, scale=0.7).variables
        sampler = fk.sampler.MetropolisFermionHop(theirs.hilbert, graph=lattice((3, 2)), n_chains=8, sweep_size=5)
        state = nk.vqs.MCState(sampler, model, n_samples=8 * 50, variables=variables, seed=1, sampler_seed=2)
        assert fk.sampler.explain(state).path == "chains in Rust"
        assert fk.explain(state, fk.accelerate(theirs)).path == ("any network" if samples else "known ratios")
        samples.append(np.asarray(state.samples))
    np.testing.assert_array_equal(*samples)


def test_spins_that_flip_and_sites_that_are_exchanged() -> None:
    """Moves that change both modes of a site, and four modes at once."""
    hilbert = nk.hilbert.SpinOrbitalFermions(6, s=1 / 2, n_fermions=6)
    terms = fk.operator.fermion
    pairs = [(i, j) for i in range(6) for j in range(i)]
    operator = terms.pair_hopping(hilbert, pairs, 0.7) + terms.exchange(hilbert, pairs, 0.4)
    up_to_down = [((i, 1), (j + 6, 0)) for i in range(6) for j in range(6)]
    both_ways = [*up_to_down, *(tuple((mode, 1 - kind) for mode, kind in reversed(term)) for term in up_to_down)]
    flips = nk.operator.FermionOperator2ndJax(hilbert, both_ways, np.ones(len(both_ways)))
    for theirs in (operator, flips):
        compare(fk.models.DoublonHolon(hilbert, shells_of((3, 2), odd=True)), theirs)


def test_what_is_not_known_is_told() -> None:
    theirs = hubbard((2, 2))
    hilbert, ours = theirs.hilbert, fk.accelerate(theirs)
    shells = shells_of((2, 2))

    def reasons(model: Any) -> str:
        return str(fk.explain(make_state(model, hilbert), ours))

    assert "AnotherDoublonHolon is a subclass of DoublonHolon" in reasons(AnotherDoublonHolon(hilbert, shells))
    other = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(1, 1))
    assert f"those of {other}" in reasons(fk.models.DoublonHolon(other, shells))
    pairs = fk.models.Product((fk.models.PairProduct(hilbert), fk.models.DoublonHolon(hilbert, ())))
    assert "of the product's factors, the DoublonHolon has no shells of neighbours" in reasons(pairs)
