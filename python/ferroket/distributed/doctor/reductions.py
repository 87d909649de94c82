"""Whether XLA's sums, products and convolutions on CPUs are those of NumPy: some versions of jaxlib aren't right."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

# Relative to the largest number of a result. Wrong ones are off by 1e-2 and more; float32 is 1e-5 in these sizes.
_TOLERANCE = {"float32": 1e-3, "float64": 1e-9}
# Where threads are in each other's way, not each call is wrong.
_CALLS = 10


@dataclass(frozen=True, kw_only=True)
class Computation:
    """A function of arrays, in XLA and in NumPy.

    Attributes:
        name: in the words of a formula.
        dtype: of its arguments.
        wrong: for each rank with a wrong result, what it got.
    """

    name: str
    dtype: str
    wrong: list[str]


def compare(size: int, exchange: Callable[[Any], list[Any]]) -> list[Computation]:
    """Compares some computations with NumPy's, in single and double precision. Collective over all ranks.

    Args:
        size: the number of ranks.
        exchange: gathers an object of each rank on all of them.

    Returns:
        What was compared; nothing on GPUs, where products in single precision are rounded further.
    """
    import jax

    if jax.default_backend() != "cpu":
        return []
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        computations = []
        for dtype, tolerance in _TOLERANCE.items():
            for name, call, expected in (*_on_each_rank(dtype), *_over_ranks(dtype, size)):
                differences = exchange(_difference(call, expected, tolerance))
                wrong = [f"rank {rank} got {text}" for rank, text in enumerate(differences) if text]
                computations.append(Computation(name=name, dtype=dtype, wrong=wrong))
    finally:
        jax.config.update("jax_enable_x64", before)
    return computations


Compared = Iterator[tuple[str, Callable[[], Any], Any]]


def _on_each_rank(dtype: str) -> Compared:
    """Each as its name, a call of XLA's program, and NumPy's result in double precision."""
    import jax
    import jax.numpy as jnp

    normal = partial(_normal, np.random.default_rng(0), dtype)

    def case(name: str, f: Callable[..., Any], expected: Any, *arguments: Any) -> tuple[str, Callable[[], Any], Any]:
        return name, partial(jax.jit(f), *map(jnp.asarray, arguments)), expected

    rows, square = normal(40000, 3), normal(3, 3)
    yield case(
        "sum((M @ row)**2) of 40000 rows, M 3x3",
        jax.vmap(lambda row: jnp.sum((jnp.asarray(square) @ row) ** 2)),
        np.sum((_double(rows) @ _double(square).T) ** 2, axis=1),
        rows,
    )
    column = np.ones((1024, 1), dtype)
    yield case(
        "sum of a column of 1024, broadcast to 2x1024x1024",
        lambda x: jnp.sum(jnp.broadcast_to(x, (2, 1024, 1024))),
        2.0 * 1024 * 1024,
        column,
    )
    batch = normal(300, 16, 16)
    yield case(
        "sum((E @ full_like(E, c)) * E), E 300x16x16",
        lambda e, c: jnp.einsum("bij,bjk,bik->b", e, jnp.full_like(e, c), e),
        np.einsum("bij,bik->b", _double(batch), _double(batch)) * 1.5,
        batch,
        np.asarray(1.5, dtype),
    )
    image = normal(64, 128)
    dilated = np.full((32, 255), -np.inf)
    dilated[:, ::2] = _double(image).reshape(32, 2, 128).max(axis=1)
    yield case(
        "maxima of windows with a base dilation, 64x128",
        lambda x: jnp.exp(
            jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 1), (2, 1), "VALID", base_dilation=(1, 2))
        ),
        np.exp(dilated),
        image,
    )
    samples, kernel, bias = normal(4096, 40), normal(40, 80), normal(80)
    angles = _double(samples) @ _double(kernel) + _double(bias)
    yield case(
        "sum(log(cosh(x @ W + b))), x 4096x40, W 40x80",
        lambda x, w, b: jnp.sum(jnp.logaddexp(x @ w + b, -(x @ w + b)) - jnp.log(2.0).astype(x.dtype), axis=-1),
        np.sum(np.logaddexp(angles, -angles) - np.log(2), axis=1),
        *(samples, kernel, bias),
    )
    yield case("x.T @ x, x 4096x40", lambda x: x.T @ x, _double(samples).T @ _double(samples), samples)
    for axis in (0, 1):
        yield case(
            f"sum(x**2, axis={axis}), x 4096x40",
            lambda x, axis=axis: jnp.sum(x**2, axis=axis),
            np.sum(_double(samples) ** 2, axis=axis),
            samples,
        )
    images, filters = normal(64, 10, 10, 3), normal(3, 3, 3, 4)
    yield case(
        "sum of a convolution 3x3 of 64 images 10x10, periodic",
        lambda x, w: jnp.sum(
            jax.lax.conv_general_dilated(
                jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="wrap"),
                w,
                (1, 1),
                "VALID",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            ** 2,
            axis=(1, 2),
        ),
        np.sum(_convolved(_double(images), _double(filters)) ** 2, axis=(1, 2)),
        *(images, filters),
    )


def _over_ranks(dtype: str, size: int) -> Compared:
    """The same of arrays that are spread over the ranks."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = jax.make_mesh((size,), ("ranks",))
    rng = np.random.default_rng(1)
    whole, matrix = _normal(rng, dtype, 1024 * size, 3), _normal(rng, dtype, 3, 3)
    spread = jax.make_array_from_callback(whole.shape, NamedSharding(mesh, P("ranks")), lambda index: whole[index])
    replicated = NamedSharding(mesh, P())
    for name, f, expected in [
        ("sum(x**2, axis=0), x spread over the ranks", lambda x: jnp.sum(x**2, axis=0), np.sum(_double(whole) ** 2, 0)),
        (
            "sum((x @ M)**2), x spread over the ranks",
            lambda x: jnp.sum((x @ jnp.asarray(matrix)) ** 2),
            np.sum((_double(whole) @ _double(matrix)) ** 2),
        ),
        ("mean(x), x spread over the ranks", lambda x: jnp.mean(1 + x), np.mean(1 + _double(whole))),
    ]:
        program = jax.jit(f, out_shardings=replicated)
        yield name, lambda program=program: program(spread).addressable_data(0), expected  # type: ignore[misc]


def _normal(rng: np.random.Generator, dtype: str, *shape: int) -> Any:
    return rng.normal(size=shape).astype(dtype)


def _double(x: Any) -> Any:
    return np.asarray(x, np.float64)


def _convolved(images: Any, filters: Any) -> Any:
    """A periodic convolution as XLA defines it, a correlation."""
    shifts = [(i, j) for i in range(3) for j in range(3)]
    return sum(np.roll(images, (1 - i, 1 - j), axis=(1, 2)) @ filters[i, j] for i, j in shifts)


def _difference(call: Callable[[], Any], expected: Any, tolerance: float) -> str:
    """The worst number of those that are wrong in some call, if any is. The ranks make the same number of calls."""
    worst, text = 0.0, ""
    expected = np.asarray(expected)
    for _ in range(_CALLS):
        got = np.asarray(call(), np.float64)
        errors = np.nan_to_num(np.abs(got - expected), nan=np.inf)
        place = np.unravel_index(np.argmax(errors), errors.shape)
        if errors[place] > max(worst, tolerance * np.max(np.abs(expected))):
            worst, text = errors[place], f"{got[place]:.9g} in place of {expected[place]:.9g}"
    return text
