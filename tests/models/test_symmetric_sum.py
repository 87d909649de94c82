"""Projections of any model onto representations of groups."""

import itertools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk

SQUARE = nk.graph.Square(4)
SPACE = nk.hilbert.Spin(0.5, 16, total_sz=0)


class CNN(nn.Module):
    """Invariant under translations."""

    dtype: Any = float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(-1, 4, 4, 1).astype(self.dtype)
        x = nn.Conv(3, (3, 3), padding="CIRCULAR", param_dtype=self.dtype)(x)
        return nk.nn.activation.log_cosh(x).sum(axis=(1, 2, 3))


class SinglePrecisionOfBytes(nn.Module):
    """A third of an int8 is a number of single precision, and of an int64 one of double precision."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return self.param("a", nn.initializers.normal(), (1,), float)[0] * (x / 3 * 100).max(axis=-1)


class Symmetric(nn.Module):
    """Of all symmetries of the lattice and flips of all spins."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        image = x.reshape(-1, 4, 4)
        near = sum(image * jnp.roll(image, 1, axis) for axis in (1, 2))
        return self.param("a", nn.initializers.normal(), (1,), float)[0] * near.sum(axis=(1, 2))


def of_all_elements(model: Any, variables: Any, samples: np.ndarray, group: np.ndarray, weights: np.ndarray) -> Any:
    """The sum, written out."""
    return sum(
        weight * np.exp(np.asarray(model.apply(variables, samples[:, row])).astype(complex))
        for row, weight in zip(group, weights, strict=True)
    )


@pytest.mark.parametrize("dtype", [float, complex, np.float32])
@pytest.mark.parametrize("parity", [None, 1])
def test_sums_are_those_over_all_elements(dtype: Any, parity: int | None) -> None:
    """Translations, which the network has, are left out: 8 of 128 summands are left, 16 with flips."""
    group, model = SQUARE.space_group().to_array(), CNN(dtype)
    found = fk.models.symmetrise(model, SPACE, group, parity=parity)
    assert len(np.asarray(found.symmetries)) == 8 * (1 if parity is None else 2)
    samples = np.asarray(SPACE.random_state(jax.random.key(1), 5))
    variables = found.init(jax.random.key(2), samples)
    inner = {"params": variables["params"]["module"]}
    expected = of_all_elements(model, inner, samples, group, np.ones(128))
    if parity is not None:
        expected = expected + parity * of_all_elements(model, inner, -samples, group, np.ones(128))
    rtol = 1e-4 if dtype is np.float32 else 1e-10
    np.testing.assert_allclose(np.exp(np.asarray(found.apply(variables, samples)).astype(complex)), expected, rtol=rtol)


@pytest.mark.parametrize("momentum", [(0, 0), (1, 0), (2, 2), (1, 3)])
def test_characters_of_translations(momentum: tuple[int, int]) -> None:
    """Momenta in units of π / 2, as NetKet's sum."""
    group = SQUARE.translation_group()
    shifts = np.stack(np.divmod(group.to_array()[:, 0], 4), axis=1)
    characters = np.exp(0.5j * np.pi * shifts @ momentum)
    model = nk.models.RBM(alpha=1, param_dtype=complex)
    ours = fk.models.symmetrise(model, SPACE, group, characters=characters)
    assert len(np.asarray(ours.symmetries)) == 16  # a bare RBM has no symmetry
    theirs = nk.nn.blocks.SymmExpSum(model, group, characters=nk.utils.HashableArray(characters))
    samples = SPACE.random_state(jax.random.key(1), 6)
    variables = ours.init(jax.random.key(2), samples)
    expected = 16 * np.exp(np.asarray(theirs.apply(variables, samples)))
    np.testing.assert_allclose(np.exp(ours.apply(variables, samples)), expected, rtol=1e-9, atol=1e-9)


def test_a_model_with_all_symmetries_is_evaluated_once() -> None:
    group = SQUARE.space_group().to_array()
    found = fk.models.symmetrise(Symmetric(), SPACE, group, parity=1)
    np.testing.assert_array_equal(found.symmetries, np.arange(16)[None])
    np.testing.assert_array_equal(found.characters, [256])
    told = fk.models.symmetrise(CNN(), SPACE, group, invariant_under=SQUARE.translation_group())
    assert len(np.asarray(told.symmetries)) == 8
    found = fk.models.symmetrise(SinglePrecisionOfBytes(), SPACE, group)
    assert len(np.asarray(found.symmetries)) == 1
    with pytest.raises(ValueError, match="nothing of it is in this representation"):
        fk.models.symmetrise(Symmetric(), SPACE, group, parity=-1)


def test_it_is_evaluated_in_lanes() -> None:
    lattice = nk.graph.Square(4, max_neighbor_order=2)
    hamiltonian = fk.operator.Heisenberg(SPACE, lattice, J=[1.0, 0.5])
    model = fk.models.symmetrise(CNN(), SPACE, SQUARE.space_group(), parity=1)
    sampler = fk.sampler.MetropolisExchange(SPACE, graph=lattice)
    state = nk.vqs.MCState(sampler, model, n_samples=64, seed=1)
    assert "in Rust, in lanes" in fk.explain(state, hamiltonian).rest
    local = np.asarray(jnp.asarray(state.local_estimators(hamiltonian))).ravel()
    samples = state.samples.reshape(-1, 16)
    rows, mels = nk.operator.Heisenberg(SPACE, lattice, J=[1.0, 0.5]).to_jax_operator().get_conn_padded(samples)
    ratios = np.exp(np.asarray(state.log_value(rows)) - np.asarray(state.log_value(samples))[:, None])
    np.testing.assert_allclose(local, (np.asarray(mels) * ratios).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"symmetries": np.zeros((2, 16), int)}, "must be permutations of 16 sites"),
        ({"symmetries": np.arange(15)[None]}, "must be permutations of 16 sites"),
        ({"characters": np.ones(3)}, r"there are 128 symmetries, but characters have shape \(3,\)"),
        ({"parity": 0}, "parity=0 must be 1 or -1"),
        ({"invariant_under": SQUARE.space_group()}, "the model's amplitudes change under it"),
    ],
)
def test_errors(arguments: dict[str, Any], words: str) -> None:
    arguments = {"symmetries": SQUARE.space_group()} | arguments
    with pytest.raises(ValueError, match=words):
        fk.models.symmetrise(CNN(), SPACE, **arguments)


def test_symmetries_that_are_no_group() -> None:
    group = SQUARE.translation_group().to_array()
    with pytest.raises(ValueError, match="must be a group"):
        fk.models.symmetrise(CNN(), SPACE, group[:3])


def test_parity_of_a_space_without_spins() -> None:
    with pytest.raises(ValueError, match="parity=1 is one of flips of spins"):
        fk.models.symmetrise(CNN(), nk.hilbert.Fock(1, 16), SQUARE.space_group(), parity=1)


def swaps(n_sites: int) -> list[np.ndarray]:
    """Groups of two: nothing, and an exchange of two sites."""
    identity = np.arange(n_sites)
    exchanges = [identity.copy() for _ in range(n_sites * (n_sites - 1) // 2)]
    for row, (i, j) in zip(exchanges, itertools.combinations(range(n_sites), 2), strict=True):
        row[[i, j]] = j, i
    return [np.stack([identity, row]) for row in exchanges]


SMALL: dict[str, tuple[Any, list[np.ndarray], int | None]] = {
    "square": (nk.hilbert.Spin(0.5, 9, total_sz=0.5), [nk.graph.Square(3).space_group().to_array()], None),
    "chain of 4": (nk.hilbert.Spin(0.5, 4), [nk.graph.Chain(4).space_group().to_array()], None),
    "even": (nk.hilbert.Spin(0.5, 8, total_sz=0), [nk.graph.Chain(8).space_group().to_array()], 1),
    "odd": (nk.hilbert.Spin(0.5, 8, total_sz=0), [nk.graph.Chain(8).space_group().to_array()], -1),
    "exchanges": (nk.hilbert.Spin(0.5, 6, total_sz=0), swaps(6), None),
    "one fermion": (nk.hilbert.SpinOrbitalFermions(5, n_fermions=1), swaps(5), None),
}


@pytest.mark.parametrize("name", SMALL)
def test_samples_that_a_symmetry_does_not_change(name: str) -> None:
    """They tell nothing of a model: a network without symmetries keeps all summands but those of equal images."""
    hilbert, groups, parity = SMALL[name]
    model, samples = nk.models.RBM(kernel_init=nn.initializers.normal(0.5)), np.asarray(hilbert.all_states())
    for group in groups:
        found = fk.models.symmetrise(model, hilbert, group, parity=parity)
        variables = found.init(jax.random.key(2), samples)
        inner = {"params": variables["params"]["module"]}
        expected = of_all_elements(model, inner, samples, group, np.ones(len(group)))
        if parity is not None:
            expected = expected + parity * of_all_elements(model, inner, -samples, group, np.ones(len(group)))
        psi = np.exp(np.asarray(found.apply(variables, samples)).astype(complex))
        np.testing.assert_allclose(psi, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_symmetries_that_are_known_although_they_change_few_samples() -> None:
    """All exchanges of sites, under which nothing of one fermion's sum over the modes changes."""
    hilbert = nk.hilbert.SpinOrbitalFermions(5, n_fermions=1)
    group = np.array(list(itertools.permutations(range(5))))
    found = fk.models.symmetrise(SumOfModes(), hilbert, group)
    assert len(np.asarray(found.symmetries)) == 1
    told = fk.models.symmetrise(SumOfModes(), hilbert, group, invariant_under=group)
    assert len(np.asarray(told.symmetries)) == 1


class SumOfModes(nn.Module):
    """Of all symmetries there are."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return self.param("a", nn.initializers.normal(), (1,), float)[0] * x.sum(axis=-1)
