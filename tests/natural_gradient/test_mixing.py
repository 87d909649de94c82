"""Whether a log-amplitude mixes samples, and what is looked at to tell."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

from ferroket.ansatz import verification
from ferroket.natural_gradient.verification import mixes_samples

SPINS = nk.hilbert.Spin(0.5, 6)


class Network(nn.Module):
    """Subtracts a part of the mean over the samples."""

    part: float

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Dense(4, param_dtype=float)(x.astype(float))
        return jnp.tanh(y - self.part * y.mean(axis=0) if self.part else y).sum(axis=-1)


class BehindAGate(nn.Module):
    """Mixes samples as soon as a parameter isn't what it is at first, in a way that only values tell."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        gate = self.param("gate", nn.initializers.zeros, (), float)
        y = nn.Dense(4, param_dtype=float)(x.astype(float))
        of_others = jax.pure_callback(lambda y: np.asarray(y).mean(axis=0), jax.ShapeDtypeStruct((4,), float), y)
        return (jnp.tanh(y) + gate * of_others).sum(axis=-1)


def arguments(model: nn.Module, samples: jax.Array) -> tuple[Any, ...]:
    variables = model.init(jax.random.key(1), samples)
    return model.apply, variables["params"], {}, samples


@pytest.mark.parametrize(("part", "mixes"), [(0.0, False), (0.5, True)])
def test_what_mixes(part: float, mixes: bool) -> None:
    samples = SPINS.random_state(jax.random.key(0), 16)
    assert mixes_samples(*arguments(Network(part), samples)) is mixes


def test_a_gate_that_is_closed_at_first() -> None:
    samples = SPINS.random_state(jax.random.key(0), 16)
    assert mixes_samples(*arguments(BehindAGate(), samples)) is True


def test_samples_that_are_alike() -> None:
    """Values tell nothing then, and nothing is kept of that; the program tells."""
    alike = jnp.ones((50, 6), np.int8)
    assert mixes_samples(*arguments(Network(0.25), alike)) is True
    model = BehindAGate()
    for samples, expected in ((alike, False), (alike.at[-1, 2].set(-1), True), (alike, True)):
        assert mixes_samples(*arguments(model, samples)) is expected


def test_only_the_latest_findings_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_MOST", 2)
    samples = SPINS.random_state(jax.random.key(0), 16)
    networks = [arguments(Network(0.5 + part / 16), samples) for part in range(4)]
    for network in networks:
        assert mixes_samples(*network) is True
    assert [key[1][0] for key in verification._known] == [network[0] for network in networks[2:]]
    assert mixes_samples(*networks[0]) is True  # found out anew


def test_parameters_that_are_no_numbers() -> None:
    log_psi, parameters, state, samples = arguments(Network(0.125), SPINS.random_state(jax.random.key(0), 16))
    nothing = jax.tree.map(lambda leaf: leaf * np.nan, parameters)
    assert mixes_samples(log_psi, nothing, state, samples) is True


def test_no_other_configurations_are_evaluated() -> None:
    """A network may know those of the space alone: here two spins and two bosons, in this order."""
    space = nk.hilbert.Spin(0.5, 2) * nk.hilbert.Fock(3, 2)
    samples = space.random_state(jax.random.key(0), 16)
    assert mixes_samples(*arguments(nk.models.LogStateVector(space), samples)) is False
