"""Local energies of determinants, and of their products with other amplitudes, against NetKet's and closed forms."""

import re
from typing import Any

import jax
import netket as nk
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ferroket as fk
from ferroket._compat.netket import FermiHubbard
from ferroket.local_energy import known_model
from support.determinants import BALANCED, FERMIONS, MODELS, SPINLESS, hilbert_of, random_operator
from support.mpi import FULL
from support.variational_states import is_single, make_state, netkets_values, values_by


def compare(model: Any, theirs: Any, x: Any = None, *, scale: float = 0.7, tolerance: float = 1e-10) -> None:
    """Local values by ratios, against NetKet's."""
    hilbert = theirs.hilbert
    state, ours = make_state(model, hilbert, scale=scale), fk.accelerate(theirs)
    x = hilbert.all_states() if x is None else x
    assert known_model.find(state, ours) == (known_model.find(state, ours)[0], [])
    found = values_by(nk.vqs.get_local_kernel(state, ours), state._apply_fun, state.variables, x, ours)
    expected = netkets_values(state._apply_fun, state.variables, x, theirs)
    assert found.dtype == expected.dtype
    tolerance = 3e-4 if is_single(state.variables) else tolerance
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.quick("unrestricted", "generalized, complex", "sum, restricted, complex", "Jastrow", "product of products")
@pytest.mark.parametrize("name", MODELS)
def test_every_model(name: str) -> None:
    compare(MODELS[name], random_operator(hilbert_of(MODELS[name]), 1))


@pytest.mark.parametrize(
    "name", ["unrestricted", "generalized, complex", "sum", "spinless"] if FULL else ["generalized"]
)
@settings(max_examples=20 if FULL else 5, deadline=None)
@given(seed=st.integers(0, 1000))
def test_random_operators(name: str, seed: int) -> None:
    compare(MODELS[name], random_operator(hilbert_of(MODELS[name]), seed))


def test_exchange_of_spins() -> None:
    """Orbitals of no definite spin: an exchange takes a minor of two rows."""
    orbitals = BALANCED.n_orbitals
    terms = [((i + orbitals, 1), (i, 0), (j, 1), (j + orbitals, 0)) for i in range(orbitals) for j in range(orbitals)]
    operator = nk.operator.FermionOperator2ndJax(BALANCED, terms, np.arange(1.0, 17.0))
    compare(nk.models.Slater2nd(BALANCED, generalized=True, param_dtype=complex), operator)


def test_sixty_modes() -> None:
    """Many modes, of which twenty-eight are occupied; the orbitals are nearly those of a free Fermi sea."""
    hilbert = nk.hilbert.SpinOrbitalFermions(60, n_fermions=28)
    hops = [term for i in range(60) for term in (((i, 1), ((i + 1) % 60, 0)), (((i + 1) % 60, 1), (i, 0)))]
    operator = nk.operator.FermionOperator2ndJax(hilbert, hops, np.ones(len(hops)))
    x = hilbert.random_state(jax.random.key(2), 40)
    compare(nk.models.Slater2nd(hilbert, param_dtype=complex), operator, x, tolerance=1e-9)


def fermi_sea() -> tuple[Any, Any, Any, float]:
    """A free Hubbard model, the model of its ground state, the orbitals, and the energy."""
    graph = nk.graph.Chain(6)
    hilbert = nk.hilbert.SpinOrbitalFermions(6, s=1 / 2, n_fermions_per_spin=(3, 3))
    hops = np.zeros((6, 6))
    for i, j in graph.edges():
        hops[i, j] = hops[j, i] = -1.0
    energies, orbitals = np.linalg.eigh(hops)
    return FermiHubbard(hilbert, graph, t=1.0, U=0.0), hilbert, orbitals[:, :3], 2 * energies[:3].sum()


def test_a_free_fermi_sea_has_no_variance() -> None:
    operator, hilbert, orbitals, energy = fermi_sea()
    state = nk.vqs.MCState(
        fk.sampler.MetropolisFermionHop(hilbert, graph=nk.graph.Chain(6), n_chains=16),
        nk.models.Slater2nd(hilbert),
        n_samples=512,
        seed=1,
    )
    state.variables = {"params": {"M": orbitals}}
    assert known_model.find(state, fk.accelerate(operator))[0] is not None
    found = state.expect(fk.accelerate(operator))
    np.testing.assert_allclose(found.mean, energy, atol=1e-10)
    np.testing.assert_allclose(found.variance, 0, atol=1e-18)


def nearly_singular(distance: float) -> Any:
    """A state whose determinant is this small where the first three modes are occupied, and no smaller elsewhere."""
    state = make_state(nk.models.Slater2nd(SPINLESS), SPINLESS, scale=0.7)
    orbitals = np.array(state.variables["params"]["M"])
    orbitals[2] = orbitals[0] + orbitals[1] + distance * orbitals[2]
    state.variables = {"params": {"M": orbitals}}
    return state


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9])
def test_nearly_singular_determinants(distance: float) -> None:
    """Ratios are large and right, up to what the determinant itself is exact to."""
    state, theirs = nearly_singular(distance), random_operator(SPINLESS, 3)
    orbitals = np.asarray(state.variables["params"]["M"])
    x = np.array([[1, 1, 1, 0, 0, 0, 0]], np.int8)
    ours = fk.accelerate(theirs)
    found = values_by(nk.vqs.get_local_kernel(state, ours), state._apply_fun, state.variables, x, ours)
    xp, mels = (np.asarray(array) for array in theirs.get_conn(x[0]))
    psi = np.array([np.linalg.det(orbitals[row.astype(bool)]) for row in [*x, *xp]])
    expected = (mels * psi[1:]).sum() / psi[0]
    np.testing.assert_allclose(found[0], expected, rtol=1e-14 / distance)
    assert abs(found[0]) > 0.01 / distance


def test_a_sum_where_one_determinant_vanishes() -> None:
    """What it adds elsewhere isn't known from what it is here."""
    model = nk.models.MultiSlater2nd(SPINLESS, n_determinants=2)
    state, theirs = make_state(model, SPINLESS, scale=0.7), random_operator(SPINLESS, 4)
    ours = fk.accelerate(theirs)
    for distance in (0.0, 1e-14, 1e-9):
        (inner,) = state.variables["params"]
        orbitals = np.array(state.variables["params"][inner]["M"])
        orbitals[0, 2] = orbitals[0, 0] + orbitals[0, 1] + distance
        variables = {"params": {inner: {"M": orbitals}}}
        x = np.array([[1, 1, 1, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0]], np.int8)
        found = values_by(nk.vqs.get_local_kernel(state, ours), state._apply_fun, variables, x, ours)
        expected = netkets_values(state._apply_fun, variables, x, theirs)
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_a_sample_without_amplitude() -> None:
    """Local values there are none, as NetKet's."""
    state = nearly_singular(0.0)
    orbitals = np.array(state.variables["params"]["M"])
    orbitals[2] = 0
    variables = {"params": {"M": orbitals}}
    x, ours = np.array([[1, 1, 1, 0, 0, 0, 0]], np.int8), fk.accelerate(random_operator(SPINLESS, 3))
    assert state._apply_fun(variables, x)[0].real == -np.inf
    found = values_by(nk.vqs.get_local_kernel(state, ours), state._apply_fun, variables, x, ours)
    assert not np.isfinite(found).any()


def test_samples_with_other_numbers_of_fermions_are_refused() -> None:
    state, ours = make_state(MODELS["unrestricted"], FERMIONS), fk.accelerate(random_operator(FERMIONS, 1))
    x = np.array(FERMIONS.all_states()[:3])
    x[1, 0] = 1 - x[1, 0]
    message = "sector 0 has [24] fermions, but the determinant has 3 orbitals there"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(
            values_by(nk.vqs.get_local_kernel(state, ours), state._apply_fun, state.variables, x, ours)
        )


def test_another_space_than_the_models() -> None:
    other = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(2, 3))
    state = make_state(MODELS["unrestricted"], other)
    found, (reason,) = known_model.find(state, fk.accelerate(random_operator(other, 1)))
    assert found is None
    assert re.fullmatch(
        r"its determinants are those of .*\(3, 2\)\), and the state's Hilbert space is .*\(2, 3\)\)", reason
    )


def test_products_of_unknown_models_are_no_known_ones() -> None:
    model = fk.models.Product((MODELS["unrestricted"], nk.models.MLP(hidden_dims=(3,))))
    found, (reason,) = known_model.find(make_state(model, FERMIONS), fk.accelerate(random_operator(FERMIONS, 1)))
    assert found is None
    assert reason.startswith("of the product's factors, netket's MLP is none of the models")
    with pytest.raises(TypeError, match="a Product is one of linen modules"):
        fk.models.Product(())
    with pytest.raises(TypeError, match="but got"):
        fk.models.Product((np.sum,))


def test_the_jastrow_factor_by_definition() -> None:
    model = fk.models.SlaterJastrow(FERMIONS, restricted=False, jastrow_dtype=complex)
    state = make_state(model, FERMIONS, scale=0.7)
    params, x = state.variables["params"], FERMIONS.all_states()
    slater = nk.models.Slater2nd(FERMIONS, restricted=False).apply({"params": params["slater"]}, x)
    n = x[:, :4] + x[:, 4:]
    expected, place = np.asarray(slater, complex), 0
    for i in range(4):
        expected = expected + np.asarray(params["gutzwiller"])[i] * x[:, i] * x[:, 4 + i]
        for j in range(i):
            expected = expected + np.asarray(params["jastrow"])[place] * n[:, i] * n[:, j]
            place += 1
    np.testing.assert_allclose(np.exp(state.log_value(x)), np.exp(expected), rtol=1e-12)


@pytest.mark.parametrize("options", [{}, {"n_fermions": 3}])
def test_spaces_without_fixed_sectors_are_netkets_errors(options: Any) -> None:
    hilbert = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, **options)
    with pytest.raises((TypeError, ValueError)):
        fk.models.SlaterJastrow(hilbert, restricted=True).init(jax.random.key(0), hilbert.all_states())
