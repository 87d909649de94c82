"""Which labels the elements of values depend on, against what really changes where an input is changed.

The readable twin of the rules: change all elements of one label, and see which results change.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ferroket.ansatz.dependence import NONE, SEVERAL, UNKNOWN, results_of
from ferroket.models.pairs import sum_over_pairs

N = 4
RNG = np.random.default_rng(0)
W = RNG.normal(size=(5, 3))
KERNEL = RNG.normal(size=(3, 2, 2))
TABLE = RNG.normal(size=(7, 2))
ORDER = np.array([2, 0, 3, 1])


def conv(x: jax.Array) -> jax.Array:
    y = jnp.stack([x, x**2], axis=-1)
    return jax.lax.conv_general_dilated(y, KERNEL, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))


def scan(x: jax.Array) -> jax.Array:
    carry, steps = jax.lax.scan(lambda c, s: (jnp.tanh(c + s), c * s), jnp.zeros(N), x.T)
    return carry[:, None] + steps.T


def while_loop(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, y: jnp.sin(y) + x, x)


FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "elementwise": lambda x: jnp.tanh(x) * 2 + jnp.where(x > 0, x, 0.1),
    "scalars": lambda x: jnp.clip(x, -0.5, 0.5) ** 3,
    "transpose": lambda x: x.T.reshape(-1, 2),
    "other axes first": lambda x: jax.lax.reshape(x, (x.size // 2, 2), (1, 0)),
    "roll": lambda x: jnp.roll(x, 1, axis=0) + jnp.roll(x, 2, axis=1)[:, ::-1],
    "pad": lambda x: jax.lax.pad(x, 0.0, ((-1, 2, 1), (1, -1, 0))),
    "concatenate": lambda x: jnp.concatenate([jnp.zeros((1, 5)), x, x[1:3]], axis=0),
    "stack": lambda x: jnp.stack([x, 2 * x], axis=1),
    "unstack": lambda x: jnp.stack(jnp.unstack(x, axis=1)[::-1]),
    "tile": lambda x: jnp.tile(x, (2, 3)),
    "slice": lambda x: x[::2, 1:4][::-1],
    "split": lambda x: jnp.concatenate(jnp.split(x, 2, axis=0)[::-1], axis=0),
    "broadcast": lambda x: x[:, None, :] * jnp.ones((1, 3, 1)),
    "sum over features": lambda x: x.sum(axis=1),
    "sum over all": lambda x: x.sum(axis=0),
    "mean taken off": lambda x: x - x.mean(axis=0),
    "maximum": lambda x: x.max(axis=1) + x.argmax(axis=1),
    "cumulative sum": lambda x: jnp.cumsum(x, axis=1),
    "cumulative sum of labels": lambda x: jnp.cumsum(x, axis=0) + jax.lax.cummax(x, axis=0, reverse=True)[:, :1],
    "cumulative from the end": lambda x: jax.lax.cumsum(x, axis=0, reverse=True),
    "sort": lambda x: jnp.sort(x, axis=1),
    "dense": lambda x: x @ W,
    "products of labels": lambda x: x @ x.T,
    "pairs of features": lambda x: sum_over_pairs(x, jnp.arange(10.0)),
    "pairs of labels": lambda x: sum_over_pairs(x.T, jnp.arange(6.0)),
    "batched products": lambda x: jnp.einsum("ni,nj->nij", x, x),
    "convolution": conv,
    "taken from a table": lambda x: jnp.asarray(TABLE)[(jnp.abs(x * 10) % 7).astype(int)],
    "taken along an axis": lambda x: jnp.take_along_axis(x, (jnp.abs(x * 10) % 5).astype(int), axis=1),
    "fixed columns": lambda x: x[:, ORDER],
    "fixed rows": lambda x: x[ORDER],
    "set": lambda x: x.at[:, 1].set(3.0).at[:, 2].add(x[:, 0]),
    "sliced where": lambda x: jax.lax.dynamic_slice_in_dim(x, 1, 2, axis=1),
    "updated where": lambda x: jax.lax.dynamic_update_slice(x, x[:, :2] * 2, (0, 3)),
    "scan": scan,
    "while": while_loop,
    "cond": lambda x: jax.lax.cond(True, lambda y: y * 2, lambda y: y.sum(axis=1, keepdims=True) + y, x),
    "custom derivative": jax.nn.relu,
    "jit": jax.jit(lambda x: jnp.exp(x) @ W),
    "vmap": jax.vmap(lambda row: jnp.linalg.slogdet(jnp.outer(row[:3], row[2:]) + jnp.eye(3))[1]),
    "places of what isn't zero": jax.vmap(lambda row: jnp.nonzero(row > 0, size=1, fill_value=7)[0]),
    "places in a sorted list": lambda x: jnp.searchsorted(jnp.linspace(-2, 2, 20), x),
    "times powers of two": lambda x: jnp.ldexp(x, 2),
    "FFT": lambda x: jnp.fft.fft(x, axis=1).real,
    "nothing": lambda x: jnp.ones((N, 2)) * x.shape[0],
}
EXACT = set(FUNCTIONS) - {"updated where", "sliced where", "fixed rows", "while", "cond", "taken along an axis", "set"}
"""Those whose labels are just what changes, for random numbers: the other rules say that they may be any."""


def changes(function: Callable[[jax.Array], jax.Array]) -> np.ndarray:
    """Whether each result changes with the inputs of each label, ``(N, *results)``."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(N, 5))
    found = []
    for label in range(N):
        ways = [
            function(jnp.asarray(np.where(np.arange(N)[:, None] == label, rng.normal(size=(N, 5)), x)))
            for _ in range(12)
        ]
        found.append(np.any([np.asarray(way != function(jnp.asarray(x))) for way in ways], axis=0))
    return np.stack(found)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_labels_are_what_changes(name: str) -> None:
    function = FUNCTIONS[name]
    jaxpr = jax.make_jaxpr(function)(jax.ShapeDtypeStruct((N, 5), float))
    (labels,) = results_of(jaxpr, [np.broadcast_to(np.arange(N, dtype=np.int32)[:, None], (N, 5))])
    changed = changes(function)
    assert labels.shape == changed.shape[1:]
    several = changed.sum(axis=0) > 1
    if name == "places of what isn't zero":  # `PairProduct` finds fermions so
        assert not (labels == UNKNOWN).any()
    for label in range(N):
        assert (labels[changed[label]] >= UNKNOWN).all() or (
            (labels[changed[label]] == label) | (labels[changed[label]] >= UNKNOWN)
        ).all()
    assert (labels[several] >= UNKNOWN).all()
    if name in EXACT:
        expected = np.where(several, SEVERAL, np.where(changed.any(axis=0), changed.argmax(axis=0), NONE))
        is_known = labels != UNKNOWN
        np.testing.assert_array_equal(labels[is_known], expected[is_known])


def test_an_unknown_primitive_says_nothing_for_sure() -> None:
    def called_back(x: Any) -> Any:
        return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    jaxpr = jax.make_jaxpr(called_back)(jax.ShapeDtypeStruct((N, 5), float))
    (labels,) = results_of(jaxpr, [np.broadcast_to(np.arange(N, dtype=np.int32)[:, None], (N, 5))])
    assert (labels == UNKNOWN).all()
