"""Stochastic reconfiguration of determinants: their rows come from Rust, wherever they are in a network."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from test_updates import UPDATES, with_energies

import ferroket as fk
from ferroket._compat.netket import FermiHubbard
from ferroket.natural_gradient.jacobian import jacobian
from ferroket.natural_gradient.signs import is_real_up_to_signs
from ferroket.natural_gradient.structure import read
from support.determinants import BALANCED, FERMIONS, MODELS, hilbert_of
from support.variational_states import is_single, make_state, random_like

GRAPH = nk.graph.Chain(4)
HUBBARD = FermiHubbard(BALANCED, GRAPH, t=1.0, U=4.0)


class DeterminantsAndNetwork(nn.Module):
    """A sum of determinants beside a network."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        determinants = nk.models.MultiSlater2nd(FERMIONS, n_determinants=2, restricted=False)(x)
        hidden = jnp.tanh(nn.Dense(3, param_dtype=float)(x.astype(float)))
        return determinants + nn.Dense(1, param_dtype=float)(hidden)[..., 0]


class Moved(nn.Module):
    """A sum over the translations of a chain, with the same orbitals."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        slater = nk.models.Slater2nd(BALANCED, param_dtype=complex)
        both = [slater(jnp.roll(x.reshape(-1, 2, 4), shift, axis=2).reshape(-1, 8)) for shift in range(4)]
        return nk.jax.logsumexp_cplx(jnp.stack(both), axis=0)


ALL = {**MODELS, "beside a network": DeterminantsAndNetwork(), "translations": Moved()}
SPACES = {"beside a network": FERMIONS, "translations": BALANCED}


def arguments(name: str) -> tuple[Any, ...]:
    model = ALL[name]
    hilbert = SPACES[name] if name in SPACES else hilbert_of(model)
    samples = hilbert.random_state(jax.random.key(2), 12)
    variables = random_like(jax.eval_shape(model.init, jax.random.key(0), samples), 0.7)
    return with_energies(model.apply, variables, samples)


def is_real(name: str) -> bool:
    return not any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(arguments(name)[2])) and "ModPhase" not in name


@pytest.mark.parametrize("name", ALL)
def test_the_jacobian_is_netkets(name: str) -> None:
    log_psi, _, parameters, state, samples = arguments(name)
    network = read(log_psi, parameters, state, samples[0])
    assert network.is_real == is_real(name)
    of_determinants = {product.leaf for product in network.products if product.is_determinant}
    assert bool(of_determinants) != ("pairs" in name)
    assert of_determinants.isdisjoint(network.direct)
    tolerance = 1e-3 if is_single(parameters) else 1e-10
    modes = ["real", "complex", *(["holomorphic"] if network.is_holomorphic else [])]
    for mode in modes:
        found = jacobian(log_psi, parameters, samples, mode=mode, dense=True)
        expected = nk.jax.jacobian(log_psi, parameters, samples, mode=mode, dense=True)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("kind", UPDATES)
@pytest.mark.parametrize(
    "name", ["unrestricted", "sum, restricted, complex", "Jastrow", "Jastrow, complex", "times RBM", "pairs, projected"]
)
def test_updates_are_netkets(name: str, kind: str) -> None:
    """With real orbitals the system has half as many unknowns; with ``proj_reg`` it has as many as NetKet's."""
    args = arguments(name)
    ours, theirs = UPDATES[kind]
    for settings in ({}, {"proj_reg": 1.0}, {"momentum": 0.5}):
        common = {"diag_shift": 1e-2, "solver_fn": nk.optimizer.solver.cholesky, "mode": "complex", **settings}
        old, expected_old = None, None
        for _ in range(2):
            found, old, _ = ours(*args, old_updates=old, **common)
            expected, expected_old, _ = theirs(*args, old_updates=expected_old, **common)
            for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * max(np.abs(b).max(), 1e-3))


def drivers(model: Any, **settings: Any) -> tuple[Any, Any]:
    """Ours and NetKet's, which start alike."""
    made = []
    for driver in (fk.driver.VMC_SR, nk.driver.VMC_SR):
        state = make_state(model, BALANCED, scale=0.7)
        operator = HUBBARD if driver is nk.driver.VMC_SR else fk.accelerate(HUBBARD)
        optimizer = nk.optimizer.Sgd(0.05)
        made.append(driver(operator, optimizer, variational_state=state, diag_shift=1e-2, **settings))
    return made[0], made[1]


@pytest.mark.parametrize("use_ntk", [True, False])
def test_steps_are_netkets(use_ntk: bool) -> None:
    ours, theirs = drivers(nk.models.Slater2nd(BALANCED), use_ntk=use_ntk)
    for driver in (ours, theirs):
        driver.run(1, show_progress=False)
    for a, b in zip(*(jax.tree.leaves(driver.state.parameters) for driver in (ours, theirs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)


def test_explanations() -> None:
    ours, _ = drivers(nk.models.Slater2nd(BALANCED), use_ntk=True)
    found = fk.natural_gradient.explain(ours)
    assert found.path == "factors"
    assert found.matrix == f"one real symmetric system of {ours.state.n_samples} unknowns"
    (layer,) = found.layers
    assert layer.found == "orbitals of 2 determinants"
    ours, _ = drivers(fk.models.SlaterJastrow(BALANCED), use_ntk=True)
    forms = {layer.name: layer.form for layer in fk.natural_gradient.explain(ours).layers}
    assert forms["jastrow"] == "closed form"
    ours, _ = drivers(nk.models.Slater2nd(BALANCED, param_dtype=complex), use_ntk=True)
    assert (
        fk.natural_gradient.explain(ours).matrix == f"one complex Hermitian system of {ours.state.n_samples} unknowns"
    )


REAL = {
    "real": lambda a: a.sum(),
    "sign": lambda a: jnp.log(a.astype(complex)).sum(),
    "sum of signed": lambda a: jnp.log(jnp.exp(jnp.log(a[:2].astype(complex))).sum() * a[0]),
    "constant sign": lambda a: a.sum() + jnp.where(a[0] > 0, 0j, 1j * jnp.pi),
    "determinant": lambda a: nk.jax.logdet_cmplx(a[:4].reshape(2, 2)) - a[0],
    "own determinant": lambda a: fk.linalg.logdet(a[:4].reshape(2, 2)) - a[0],
    "Pfaffian": lambda a: (
        fk.linalg.logpfaffian(a[:4].reshape(2, 2)) + jax.lax.complex(a[0], jnp.where(a[1] > 0, 0.0, 3 * jnp.pi))
    ),
}
OTHERS = {
    "phase": lambda a: 1j * a.sum(),
    "phase of the configuration": lambda a: jax.lax.complex(a[0], jnp.where(a[1] > 0, 0.0, a[2])),
    "another phase": lambda a: jax.lax.complex(a[0], jnp.where(a[1] > 0, 0.0, 1.0)),
    "complex sum": lambda a: jnp.log(a[0] + 1j * a[1]),
    "logarithm twice": lambda a: jnp.log(jnp.log(a[0].astype(complex))),
    "product of logarithms": lambda a: jnp.log(a[0].astype(complex)) * jnp.log(a[1].astype(complex)),
    "complex constant": lambda a: jnp.log(a[0] * (1 + 1j)),
    "power": lambda a: a[0].astype(complex) ** 0.5,
}


@pytest.mark.parametrize("name", REAL | OTHERS)
def test_what_is_real_up_to_signs(name: str) -> None:
    function = (REAL | OTHERS)[name]
    assert is_real_up_to_signs(jax.make_jaxpr(function)(jnp.ones(5))) == (name in REAL)
    if name in REAL:
        numbers = jnp.asarray(np.random.default_rng(0).normal(size=5))
        phase = jax.jacrev(lambda a: jnp.asarray(function(a), complex).imag)(numbers)
        np.testing.assert_allclose(phase, 0, atol=1e-12)
