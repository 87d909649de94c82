"""Collectives that XLA first meets in the middle of a program: among parallel work, in a `while_loop`, in a `scan`.

XLA makes a communicator when a group of ranks is first used, from whatever thread the program is on by then. Groups
differ by the order of their ranks too, so that each program here can have groups that no program before it had.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cases import COLLECTIVES, Axes, each, expected, group_size, make_mesh, own_position, per_rank, same
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

_ROUNDS = 3
_PRODUCTS = 48


def _operand(name: str, x: Any, n: int, xp: Any) -> Any:
    return xp.stack([x + i for i in range(n)]) if COLLECTIVES[name].pieces else x


def _result(y: Any, like: Any) -> Any:
    """A collective's result, in the shape and dtype of its operand."""
    return (y.sum(0) if y.ndim > like.ndim else y).astype(like.dtype) + 1


def _step(name: str, x: jax.Array, axes: Axes, n: int) -> jax.Array:
    return _result(COLLECTIVES[name].jax(_operand(name, x, n, jnp), axes, n), x)


def _reference(name: str, x: np.ndarray, axes: Axes, mesh: Mesh) -> np.ndarray:
    """`_step` for what all ranks hold."""
    operands = each(mesh, lambda at: _operand(name, x[at], group_size(mesh, axes), np))
    return each(mesh, lambda at: _result(expected(name, mesh, axes, operands, at), x[at]))


def in_parallel_work(mesh: Mesh, axes: Axes) -> None:
    """Each collective takes a result of many independent products, which XLA spreads over its threads."""
    rng = np.random.default_rng(1)
    data = rng.integers(0, 2, (*mesh.devices.shape, 256, 256)).astype(np.float32)  # whose products are exact
    n = group_size(mesh, axes)

    def program(x: jax.Array) -> list[jax.Array]:
        products = [x @ (x + i) for i in range(_PRODUCTS)]
        return [_step(name, sum(products).astype(jnp.int32) + i, axes, n) for i, name in enumerate(COLLECTIVES)]

    total = (_PRODUCTS * (data @ data) + data.sum(-1, keepdims=True) * sum(range(_PRODUCTS))).astype(np.int32)
    for i, (name, got) in enumerate(zip(COLLECTIVES, per_rank(mesh, program, data), strict=True)):
        want = _reference(name, total + np.int32(i), axes, mesh)[own_position(mesh)]
        same(got, want, f"{name} over {axes} in parallel work")


def _loop_reference(x: np.ndarray, axes: Axes, mesh: Mesh) -> np.ndarray:
    for i in range(_ROUNDS):
        for name in COLLECTIVES:
            x = _reference(name, x + np.int32(i), axes, mesh)
    return x


def _loop_data(mesh: Mesh) -> np.ndarray:
    return np.random.default_rng(2).integers(-1000, 1000, (*mesh.devices.shape, 5), np.int32)


def in_while_loop(mesh: Mesh, axes: Axes) -> None:
    """All collectives one after the other in the loop, and one in its condition."""
    n = group_size(mesh, axes)

    def program(x: jax.Array) -> jax.Array:
        def goes_on(state: tuple[jax.Array, jax.Array]) -> jax.Array:
            return lax.pmax(state[0], axes) < _ROUNDS

        def body(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            i, x = state
            for name in COLLECTIVES:
                x = _step(name, x + i, axes, n)
            return i + 1, x

        return lax.while_loop(goes_on, body, (jnp.int32(0), x))[1]

    data = _loop_data(mesh)
    want = _loop_reference(data, axes, mesh)[own_position(mesh)]
    same(per_rank(mesh, program, data), want, f"a while_loop over {axes}")


def in_scan(mesh: Mesh, axes: Axes) -> None:
    n = group_size(mesh, axes)

    def program(x: jax.Array) -> jax.Array:
        def body(x: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            for name in COLLECTIVES:
                x = _step(name, x + i, axes, n)
            return x, None

        return lax.scan(body, x, jnp.arange(_ROUNDS, dtype=jnp.int32))[0]

    data = _loop_data(mesh)
    want = _loop_reference(data, axes, mesh)[own_position(mesh)]
    same(per_rank(mesh, program, data), want, f"a scan over {axes}")


def in_sharded_arrays(mesh: Mesh, axes: Axes) -> None:
    """Collectives that nobody wrote: XLA inserts them where an array is sharded in one way and needed in another."""

    def program(x: Any, xp: Any) -> dict[str, Any]:
        return {
            "sum": x.sum((0, 1)),
            "prod": x.prod(0),
            "min": x.min(0),
            "max": x.max(0),
            "any": (x > 8).any(1),
            "all": (x > -9).all(1),
            "product": xp.einsum("abi,bcj->acij", x, x),
            "roll": xp.roll(x, 3, 0),
            "transpose": x.swapaxes(0, 1) + x,
            "sort": xp.sort(x, 0),
        }

    data = np.random.default_rng(3).integers(-9, 10, (8, 8, 4), np.int32)
    x = jax.device_put(data, NamedSharding(mesh, P(*axes)))
    want = program(data, np)
    for layout in (P(), P(axes[1])):
        results = jax.jit(partial(program, xp=jnp), out_shardings=NamedSharding(mesh, layout))(x)
        for name, got in results.items():
            (shard,) = got.addressable_shards
            same(np.asarray(shard.data), want[name][shard.index].astype(got.dtype), f"{name} from {axes} to {layout}")


def run_all() -> int:
    """Runs all on four ranks; has to come before any other collective. Returns the number of programs."""
    square, turned, other = [
        make_mesh((2, 2), ("x", "y"), order) for order in ([0, 1, 2, 3], [3, 2, 1, 0], [0, 3, 2, 1])
    ]
    rows = [make_mesh((4,), ("x",), order) for order in ([1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2])]
    programs: list[tuple[Callable[[Mesh, Axes], None], Mesh, Axes]] = [
        (in_parallel_work, rows[0], ("x",)),
        (in_parallel_work, square, ("y",)),
        (in_while_loop, rows[1], ("x",)),
        (in_while_loop, turned, ("x",)),
        (in_while_loop, turned, ("x", "y")),
        (in_scan, rows[2], ("x",)),
        (in_scan, turned, ("y",)),
        (in_scan, other, ("x", "y")),
        (in_sharded_arrays, square, ("x", "y")),
    ]
    for program, mesh, axes in programs:
        program(mesh, axes)
    return len(programs)
