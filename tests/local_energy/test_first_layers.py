"""Local values of networks whose first layer is updated, against NetKet's kernel and the network itself."""

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from netket.vqs.mc.kernels import local_value_kernel_jax

import ferroket as fk
from ferroket.bench import models
from ferroket.ffi import connected_sums
from ferroket.ffi.first_layer import FirstLayerTables
from ferroket.local_energy import local_values
from ferroket.local_energy.any_network import updated_factors
from support.constrained_spaces import Blockade

LATTICE = nk.graph.Square(4)
SPINS = nk.hilbert.Spin(0.5, 16)


class Embedding(nn.Module):
    """A vector for each local state of each site, of sites with up to four of them."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Embed(4, 3, param_dtype=float)(x.astype(int))
        return jnp.tanh(nn.Dense(5, param_dtype=float)(y.reshape(len(x), -1))).sum(axis=-1)


class NeedsConfiguration(nn.Module):
    """A network that needs the configuration beside its first layer, and gives a complex number."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nk.nn.activation.log_cosh(nn.Dense(6, param_dtype=complex)(x)).sum(axis=-1)
        return y + 0.1 * (x[:, :-1] * x[:, 1:]).sum(axis=-1)


NETWORKS = {
    "MLP": (models.MLP((6, 5)), 6),
    "unknown function": (nk.models.MLP(hidden_dims=(6, 5), hidden_activations=jnp.sin, param_dtype=float), 6),
    "one hidden layer": (models.MLP((7,)), 7),
    "single": (nk.models.MLP(hidden_dims=(6,), param_dtype=np.float32), 6),
    "convolutions": (models.ResCNN((4, 4)), 64),
    "attention": (models.ViT((4, 4)), 64),
    "complex, and σ itself": (NeedsConfiguration(), 16),  # the sums are σ
}


def compare(operator: Any, model: Any, width: int | None, *, dtype: Any = np.int8, n_samples: int = 40) -> None:
    """The local values are NetKet's, and those of the whole network; so many sums of a first layer are updated."""
    x = operator.hilbert.random_state(jax.random.key(1), n_samples, dtype=dtype)
    variables = model.init(jax.random.key(0), x[:1])
    evaluate = partial(local_values, model.apply, chunk_size=32, updates=model.apply)
    jaxpr = str(jax.make_jaxpr(evaluate)(variables, x, operator))
    assert ("connected_sums" in jaxpr) == (width is not None)
    if width is not None:
        assert f",{width}] = connected_sums" in jaxpr
    assert updated_factors(model.apply, variables, operator, dtype).reason is None
    tolerance = 1e-5 if x.dtype == np.float32 or "float32" in str(model) else 1e-12
    found = jax.jit(evaluate)(variables, x, operator)
    expected = jax.jit(local_value_kernel_jax, static_argnums=0)(model.apply, variables, x, operator)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.quick("MLP", "complex, and σ itself")
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str) -> None:
    model, width = NETWORKS[name]
    compare(fk.operator.Heisenberg(SPINS, LATTICE), model, width)
    state = nk.vqs.MCState(nk.sampler.MetropolisLocal(SPINS), model, n_samples=16)
    found = fk.explain(state, fk.operator.Heisenberg(SPINS, LATTICE))
    assert "evaluated in Rust" in found.rest


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float32, float])
def test_dtypes_of_samples(dtype: Any) -> None:
    compare(fk.operator.Ising(SPINS, LATTICE, h=0.7), models.MLP((6, 5)), 6, dtype=dtype)


def ladder_operators(hilbert: Any) -> Any:
    chain = nk.graph.Chain(hilbert.size)
    return fk.accelerate(nk.operator.BoseHubbardJax(hilbert, chain, U=1.0, J=0.8))


def hops(hilbert: Any) -> Any:
    """Terms that change as many as four sites, more than the half of them."""
    strings = ["XXXXII", "IIYYXX", "ZXIIIX", "XIXIXI", "IIIIXZ", "ZZIIII"]
    return fk.operator.PauliStrings(hilbert, strings, np.arange(1.0, 7.0))


def blockade() -> Any:
    hilbert = nk.hilbert.Spin(0.5, 8, constraint=Blockade())
    return fk.accelerate(
        nk.operator.LocalOperator(hilbert) + sum(nk.operator.spin.sigmax(hilbert, i) for i in range(8))
    )


def test_sites_with_more_states() -> None:
    compare(ladder_operators(nk.hilbert.Fock(3, 6, n_particles=5)), Embedding(), 5)
    compare(ladder_operators(nk.hilbert.Fock(2, 5)), models.MLP((6,)), 6)


def test_sites_of_several_kinds() -> None:
    hilbert = nk.hilbert.Spin(1.0, 3) * nk.hilbert.Spin(0.5, 3) * nk.hilbert.Fock(3, 2)
    matrices = [np.random.default_rng(site).normal(size=2 * (hilbert.size_at_index(site),)) for site in range(8)]
    terms = [nk.operator.LocalOperator(hilbert, m + m.T, [site]) for site, m in enumerate(matrices)]
    compare(fk.accelerate(sum(terms[1:], terms[0])), models.MLP((6,)), 6)


def test_terms_that_change_most_of_the_sites() -> None:
    compare(hops(nk.hilbert.Qubit(6)), models.MLP((6,)), 6)


def test_constraints_of_a_users_own() -> None:
    compare(blockade(), models.MLP((6,)), 6)


def test_what_takes_longer_to_update_is_computed() -> None:
    few = fk.operator.PauliStrings(nk.hilbert.Qubit(6), ["XIIIIX", "ZZIIII"], [1.0, 0.5])
    compare(few, models.MLP((6,)), None)
    halves = nk.models.MLP(hidden_dims=(6,), param_dtype=jnp.bfloat16)
    x = SPINS.random_state(jax.random.key(1), 4)
    operator = fk.operator.Heisenberg(SPINS, LATTICE)
    evaluate = partial(local_values, halves.apply, updates=halves.apply)
    jaxpr = jax.make_jaxpr(evaluate)(halves.init(jax.random.key(0), x), x, operator)
    assert "connected_sums" not in str(jaxpr)


class Half(nn.Module):
    """A first layer of numbers of 16 bits, whose sums longer ones are made of."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        wide = nn.initializers.normal(0.5)
        y = nn.Dense(24, dtype=jnp.bfloat16, param_dtype=np.float32, kernel_init=wide)(x)
        return nn.Dense(1, dtype=np.float32, param_dtype=np.float32)(nn.gelu(y.astype(np.float32)))[..., 0]


def test_sums_of_16_bits_are_those_of_the_network() -> None:
    """Updated ones would be those of rounded differences."""
    hilbert = nk.hilbert.Spin(0.5, 60)
    operator = fk.operator.Ising(hilbert, nk.graph.Chain(60), h=1.0)
    x = hilbert.random_state(jax.random.key(3), 200)
    variables = Half().init(jax.random.key(0), x[:1])
    found = jax.jit(partial(local_values, Half().apply))(variables, x, operator)
    expected = jax.jit(local_value_kernel_jax, static_argnums=0)(Half().apply, variables, x, operator)
    np.testing.assert_allclose(found, expected, atol=1e-3 * float(np.abs(expected).max()))


def test_gradients_are_those_of_the_network() -> None:
    model, operator = models.MLP((6, 5)), fk.operator.Heisenberg(SPINS, LATTICE)
    x = SPINS.random_state(jax.random.key(1), 12)
    variables = model.init(jax.random.key(0), x[:1])

    def of(kernel: Any) -> Any:
        return jax.jit(jax.grad(lambda variables: jnp.sin(kernel(model.apply, variables, x, operator)).sum()))

    found, expected = of(partial(local_values, updates=model.apply))(variables), of(local_value_kernel_jax)(variables)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), found, expected)


def test_no_samples() -> None:
    model, operator = models.MLP((6,)), fk.operator.Heisenberg(SPINS, LATTICE)
    x = jnp.zeros((0, 16))
    variables = model.init(jax.random.key(0), jnp.ones((1, 16)))
    assert local_values(model.apply, variables, x, operator).shape == (0,)


def test_what_explain_says() -> None:
    state = nk.vqs.MCState(nk.sampler.MetropolisLocal(SPINS), models.MLP((6, 5)), n_samples=16)
    found = fk.explain(state, fk.operator.Heisenberg(SPINS, LATTICE))
    assert (found.path, found.first_layer) == ("any network", 6)
    assert "its first layer, 6 sums over the sites, is updated and not computed" in str(found)
    few = fk.operator.PauliStrings(SPINS, ["X" + 15 * "I"], [1.0])
    assert fk.explain(state, few).first_layer is None


def test_wrong_configurations_are_named() -> None:
    layer = FirstLayerTables(jnp.zeros(2), jnp.ones((3, 1, 2)))
    states = {"starts": (0.0,), "steps": (1.0,), "sizes": (2,)}
    call = partial(connected_sums, samples=jnp.zeros((1, 3)), kind=jnp.zeros(0, jnp.int32), layer=layer, **states)
    x = jnp.array([[0.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
    np.testing.assert_array_equal(call(x, sample=jnp.zeros(2, jnp.int32)), [[1.0, 1.0], [3.0, 3.0]])
    with pytest.raises(
        (ValueError, jax.errors.JaxRuntimeError), match="site 1 has the value 2, but the local states are 0 and 1"
    ):
        call(2 * x[:1], sample=jnp.zeros(1, jnp.int32))
    with pytest.raises(
        (ValueError, jax.errors.JaxRuntimeError), match="a configuration is of sample 1, but there are 1"
    ):
        call(x, sample=jnp.ones(2, jnp.int32))
