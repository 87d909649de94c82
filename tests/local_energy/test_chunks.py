"""How many configurations a network sees at once."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.local_energy.chunks import chunk_size_of

HILBERT = nk.hilbert.Spin(0.5, 20)
FORM: Any = fk.operator.Ising(HILBERT, nk.graph.Chain(20), h=1.0)._form
MANY = 1 << 20
X = jax.ShapeDtypeStruct((1, 20), np.int8)


def wide(n: int, dtype: Any = float) -> Any:
    """A network whose largest activation is n numbers."""

    def logpsi(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.jit(lambda x: jnp.tanh(x @ w).sum(axis=-1))(x.astype(w.dtype))

    return logpsi, jnp.ones((20, n), dtype)


@pytest.mark.parametrize(
    ("n", "dtype", "expected"),
    [
        # 4 MiB by 8 KiB, 4 KiB and 16 KiB, and what is too large or too small to be limited by it.
        (1024, np.float64, 512),
        (1024, np.float32, 1024),
        (1024, np.complex128, 256),
        (1000, np.float64, 512),
        (100_000, np.float64, 64),
        (20, np.float64, 2048),
    ],
)
def test_activations_stay_in_the_cache(n: int, dtype: Any, expected: int) -> None:
    assert chunk_size_of(None, MANY, FORM, *wide(n, dtype), X) == expected


def test_what_is_made_of_parameters_does_not_count() -> None:
    def logpsi(w: jax.Array, x: jax.Array) -> jax.Array:
        return x @ jnp.outer(w, w) @ jnp.ones(len(w))

    assert chunk_size_of(None, MANY, FORM, logpsi, jnp.ones(20), X) == 2048
    large = jnp.ones(4000)
    assert chunk_size_of(None, MANY, FORM, lambda w, x: (x @ jnp.outer(w, w)[:20, :20]).sum(-1), large, X) == 2048


def test_what_a_user_says_and_how_many_there_are() -> None:
    assert chunk_size_of(1000, MANY, FORM, *wide(1024), X) == 1000
    assert chunk_size_of(1000, 1, FORM, *wide(1024), X) == 256
    # 21 elements each: a sixteenth of them all.
    assert chunk_size_of(None, 400, FORM, *wide(20), X) == 525
