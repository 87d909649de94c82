"""Each collective of JAX beside its definition in numpy, data for each dtype, and what XLA refuses.

What the ranks hold is one array with the mesh's dimensions in front: `data[x, y]` belongs to the rank at (x, y).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import ml_dtypes
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

Axes = tuple[str, ...]

DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    **{f"{kind}{bits}": np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    **{name: np.dtype(name) for name in ("float32", "float64", "complex64", "complex128")},
}


@dataclass(frozen=True)
class Collective:
    """A collective among n ranks, as JAX does it and as it is defined.

    `jax(x, axes, n)` gets one rank's operand. `numpy(x, i)` gets those of all ranks of the group, `x[j]` that of the
    j-th, and returns what the i-th gets. With `pieces` an operand is `(n, ...)`, one piece for each rank.
    """

    jax: Callable[[jax.Array, Axes, int], jax.Array]
    numpy: Callable[[np.ndarray, int], np.ndarray]
    pieces: bool = False


def _sum(x: np.ndarray) -> np.ndarray:
    """Integers wrap around, and bools are counted, as in JAX."""
    return x.sum(0, dtype=np.int32 if x.dtype == bool else x.dtype)


def _mean(x: np.ndarray) -> np.ndarray:
    total = _sum(x)
    if np.issubdtype(total.dtype, np.integer):
        total = total.astype(np.float64 if total.dtype.itemsize == 8 else np.float32)
    return total / np.asarray(len(x), total.dtype)


def _shift(n: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % n) for i in range(n)]


COLLECTIVES = {
    "psum": Collective(lambda x, axes, n: lax.psum(x, axes), lambda x, i: _sum(x)),
    "pmin": Collective(lambda x, axes, n: lax.pmin(x, axes), lambda x, i: x.min(0)),
    "pmax": Collective(lambda x, axes, n: lax.pmax(x, axes), lambda x, i: x.max(0)),
    "pmean": Collective(lambda x, axes, n: lax.pmean(x, axes), lambda x, i: _mean(x)),
    "all_gather": Collective(lambda x, axes, n: lax.all_gather(x, axes), lambda x, i: x),
    "psum_scatter": Collective(lambda x, axes, n: lax.psum_scatter(x, axes), lambda x, i: _sum(x)[i], pieces=True),
    "all_to_all": Collective(lambda x, axes, n: lax.all_to_all(x, axes, 0, 0), lambda x, i: x[:, i], pieces=True),
    "ppermute": Collective(lambda x, axes, n: lax.ppermute(x, axes, _shift(n)), lambda x, i: x[i - 1]),
}

# What doesn't reach MPI, and what JAX or XLA say of it. All other pairs of a dtype and a collective work.
_COMPLEX = ("pmin pmax", "UNIMPLEMENTED: Unsupported reduction computation")
REFUSED = {
    "complex64": _COMPLEX,
    "complex128": _COMPLEX,
    "bool": ("psum_scatter", "add does not accept dtype bool"),
    "float16": (
        "psum pmin pmax pmean all_gather psum_scatter",
        "of float16 over ranks, which XLA's MPI collectives can't do",
    ),
}


def is_refused(collective: str, dtype: str) -> bool:
    return collective in REFUSED.get(dtype, ("", ""))[0].split()


# Longer data repeat themselves after this many values, a prime number, so that no two pieces of them are alike.
_PERIOD = 65521


def values(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Any integers, or multiples of 1/8 below 8, whose sums over four ranks are exact even in bfloat16."""
    count = min(int(np.prod(shape)), _PERIOD)

    def eighths() -> np.ndarray:
        return rng.integers(-63, 64, count).astype(dtype) / np.asarray(8, dtype)

    if dtype.kind == "b":
        period = rng.integers(0, 2, count).astype(bool)
    elif dtype.kind in "iu":
        period = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, count, dtype, endpoint=True)
    else:
        period = eighths() + np.asarray(1j, dtype) * eighths() if dtype.kind == "c" else eighths()
    return np.resize(period, shape)


def make_mesh(shape: tuple[int, ...], axes: Axes, order: Any = None) -> Mesh:
    """A mesh over all ranks; `order` is a permutation of the devices."""
    devices = np.array(jax.devices())
    return Mesh((devices if order is None else devices[np.asarray(order)]).reshape(shape), axes)


def own_position(mesh: Mesh) -> tuple[int, ...]:
    """This rank's coordinates."""
    (position,) = np.argwhere(mesh.devices == jax.local_devices()[0])
    return tuple(int(i) for i in position)


def each(mesh: Mesh, f: Callable[[tuple[int, ...]], np.ndarray]) -> np.ndarray:
    """What all ranks hold, from what `f` says of each position."""
    ranks = [f(position) for position in np.ndindex(mesh.devices.shape)]
    return np.stack(ranks).reshape(*mesh.devices.shape, *ranks[0].shape)


def per_rank(mesh: Mesh, f: Callable[..., Any], *data: Any) -> Any:
    """What `f`, jitted and mapped over the mesh, returns on this rank; `data` holds the ranks' operands."""
    before = (0,) * mesh.devices.ndim
    spec = P(*mesh.axis_names)

    def body(*blocks: Any) -> Any:
        return jax.tree.map(lambda y: y[(None,) * len(before)], f(*jax.tree.map(lambda x: x[before], blocks)))

    mapped = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    result = mapped(*jax.tree.map(lambda x: scattered(mesh, x), data))
    return jax.tree.map(lambda y: np.asarray(y.addressable_shards[0].data)[before], result)


def scattered(mesh: Mesh, data: np.ndarray) -> jax.Array:
    """The array whose first dimensions are the mesh's, distributed over it."""
    sharding = NamedSharding(mesh, P(*mesh.axis_names))
    return jax.make_array_from_callback(data.shape, sharding, lambda index: data[index])


def group_size(mesh: Mesh, axes: Axes) -> int:
    return int(np.prod([mesh.shape[axis] for axis in axes]))


def expected(collective: str, mesh: Mesh, axes: Axes, data: np.ndarray, position: tuple[int, ...]) -> np.ndarray:
    """What the rank at `position` gets from a collective over `axes`, by definition."""
    group = data[tuple(slice(None) if name in axes else i for name, i in zip(mesh.axis_names, position, strict=True))]
    remaining = [name for name in mesh.axis_names if name in axes]
    group = np.moveaxis(group, [remaining.index(axis) for axis in axes], range(len(axes)))
    coordinates = [position[mesh.axis_names.index(axis)] for axis in axes]
    place = int(np.ravel_multi_index(coordinates, group.shape[: len(axes)]))
    return COLLECTIVES[collective].numpy(group.reshape(-1, *group.shape[len(axes) :]), place)


def same(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """Asserts equality of dtype, shape and each value, and says what it is about."""
    assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{what}: {got.dtype}{got.shape}"
    different = np.argwhere(got != want)
    assert len(different) == 0, (
        f"{what}: {len(different)} of {want.size} values are wrong, the first at {different[0]}: "
        f"{got[tuple(different[0])]} instead of {want[tuple(different[0])]}"
    )
