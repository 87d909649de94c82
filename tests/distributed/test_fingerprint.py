"""Which programs in MLIR have the same number, and which have not."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from ferroket.distributed.fingerprint import fingerprint

MESH = jax.sharding.AbstractMesh((2,), ("S",), axis_types=(AxisType.Auto,))
X = np.ones(4, np.float32)
"""Of NumPy: where NetKet has set a mesh, an array of JAX would have it."""


def of(function: Callable[..., Any], *arguments: Any) -> int:
    return fingerprint(module_of(jax.jit(function), *(arguments or (X, X)))).number


def module_of(function: Any, *arguments: Any) -> Any:
    # NetKet, if another test has imported it, has set a mesh in this thread.
    with ThreadPoolExecutor(1) as thread:
        lowered = thread.submit(lambda: function.trace(*arguments).lower(lowering_platforms=("cpu",)))
        return lowered.result().compiler_ir("stablehlo")


def on_each(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.shard_map(function, mesh=MESH, in_specs=P("S"), out_specs=P("S"), check_vma=False)


def loss_of_rank_0(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


def loss_of_rank_1(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


SAME: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "other constants": (lambda x, y: (jnp.sin(x) * 2, y + 1), lambda x, y: (jnp.sin(x) * 3, y + 5)),
    "another order of independent operations": (
        lambda x, y: (jnp.sin(x) * 2, jnp.cos(x) + y),
        lambda x, y: tuple(reversed((jnp.cos(x) + y, jnp.sin(x) * 2))),
    ),
    "another name of a function": (
        lambda x, y: jax.jit(loss_of_rank_0)(x) + y,
        lambda x, y: jax.jit(loss_of_rank_1)(x) + y,
    ),
    "another name of a result": (lambda x, y: {"rank 0": x, "z": y}, lambda x, y: {"rank 1": x, "z": y}),
    "another address": (
        lambda x, y: jax.ffi.ffi_call("some", X)(x, pointer=2**40),
        lambda x, y: jax.ffi.ffi_call("some", X)(x, pointer=2**41),
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_same(case: str) -> None:
    first, second = SAME[case]
    assert of(first) == of(second)


OTHERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "operands": (lambda x, y: x - y, lambda x, y: y - x),
    "composition": (lambda x, y: jnp.sin(jnp.exp(x)), lambda x, y: jnp.exp(jnp.sin(x))),
    "one operand for another": (
        lambda x, y: (jnp.sin(x) * 2, jnp.cos(x) + 1),
        lambda x, y: (jnp.sin(x) * 2, jnp.sin(x) + 1),
    ),
    "order of results": (lambda x, y: (x * 2, y + 1), lambda x, y: (y + 1, x * 2)),
    "a result": (lambda x, y: (x + y, x), lambda x, y: (x + y, y)),
    "branches": (
        lambda x, y: lax.cond(x[0] > 0, lambda: jnp.sin(x), lambda: y),
        lambda x, y: lax.cond(x[0] > 0, lambda: y, lambda: jnp.sin(x)),
    ),
    "the body of a loop": (
        lambda x, y: lax.fori_loop(0, 5, lambda i, s: jnp.sin(s) + y, x),
        lambda x, y: lax.fori_loop(0, 5, lambda i, s: jnp.sin(y) + s, x),
    ),
    "a function that is called": (
        lambda x, y: jax.jit(jnp.sin)(x) + y,
        lambda x, y: jax.jit(jnp.cos)(x) + y,
    ),
    "pairs of a permutation": (
        on_each(lambda x, y: lax.ppermute(x, "S", [(0, 0)])),
        on_each(lambda x, y: lax.ppermute(x, "S", [])),
    ),
    "dimension numbers": (
        lambda x, y: jnp.tensordot(jnp.outer(x, y), jnp.outer(y, x), (0, 0)),
        lambda x, y: jnp.tensordot(jnp.outer(x, y), jnp.outer(y, x), (0, 1)),
    ),
    "an axis": (lambda x, y: jnp.cumsum(jnp.outer(x, y), 0), lambda x, y: jnp.cumsum(jnp.outer(x, y), 1)),
    "a foreign call": (
        lambda x, y: jax.ffi.ffi_call("some", X)(x, name="a"),
        lambda x, y: jax.ffi.ffi_call("some", X)(x, name="b"),
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_others(case: str) -> None:
    first, second = OTHERS[case]
    assert of(first) != of(second)


def test_shapes_types_and_shardings() -> None:
    def double(x: jax.Array) -> jax.Array:
        return x + x

    found = [of(double, x) for x in (X, np.ones(5, np.float32), X.astype(np.int32), X[:, None])]
    sharding = jax.NamedSharding(jax.make_mesh((1,), ("S",)), P("S"))
    found.append(fingerprint(module_of(jax.jit(double, in_shardings=sharding), X)).number)
    assert len(set(found)) == 5


def total(x: jax.Array) -> jax.Array:
    return lax.psum(x, "S")


@pytest.mark.parametrize(
    ("function", "n_places"),
    [
        (lambda x, y: total(x) + y, 0),
        (lambda x, y: lax.cond(x[0] > 0, lambda: total(x), lambda: total(y)), 2),
        (lambda x, y: lax.cond(x[0] > 0, lambda: total(x), lambda: y), 1),
        (lambda x, y: lax.cond(x[0] > 0, lambda: x, lambda: y), 0),
        (lambda x, y: lax.cond(x[0] > 0, lambda: jax.jit(total)(x), lambda: y), 1),
        (lambda x, y: lax.fori_loop(0, 3, lambda i, s: total(s) + y, x), 1),
        (lambda x, y: jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, s: total(s) / 2, x))(x) + y, 1),
        (lambda x, y: lax.fori_loop(0, 3, lambda i, s: lax.cond(i > 1, lambda: total(s), lambda: s), x), 2),
    ],
)
def test_places(function: Callable[..., Any], n_places: int) -> None:
    """The branches and loops in which devices communicate, each with a number of its own."""
    _, places = fingerprint(module_of(jax.jit(on_each(function)), X, X))
    assert len(places) == n_places
    assert len({number for _, number in places}) == n_places


def test_places_are_those_of_the_part_for_each_device() -> None:
    """Elsewhere XLA decides where devices communicate, and all of them take the same branch."""
    sharded = jax.ShapeDtypeStruct((4,), float, sharding=jax.NamedSharding(MESH, P("S")))

    def function(x: jax.Array) -> jax.Array:
        return lax.cond(x.sum() > 0, x.sum, lambda: on_each(total)(x).max())

    assert fingerprint(module_of(jax.jit(function), sharded)).places == []
