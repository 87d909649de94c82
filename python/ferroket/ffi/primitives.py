"""What the primitives' rules have in common."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.sharding import NamedSharding, PartitionSpec


def as_numbers(x: jax.Array) -> jax.Array:
    """Samples as the handlers take them: a bool is no number there, and 0 or 1 to everyone else."""
    return x.astype(jnp.uint8) if x.dtype == bool else x


def per_sample(x: Any, dims: tuple[int, ...], dtype: Any) -> Any:
    """The type of a result of shape ``(..., *dims)`` for samples ``(..., N)``, sharded as they are."""
    *batch, _ = x.shape
    spec = tuple(x.sharding.spec)[: len(batch)]
    spec += (None,) * (len(batch) - len(spec) + len(dims))
    sharding = NamedSharding(x.sharding.mesh, PartitionSpec(*spec))
    return x.update(shape=(*batch, *dims), dtype=dtype, sharding=sharding, weak_type=False)


def batched(primitive: Primitive, *, any_batch: bool = True) -> Callable[..., tuple[list[Any], list[int]]]:
    """The batching rule of a primitive whose first argument are samples.

    With ``any_batch`` it takes samples of shape ``(..., N)``, and a batch of samples is one more leading dimension.
    All other batches are loops.
    """

    def batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[list[Any], list[int]]:
        front = [arg if dim is None else jnp.moveaxis(arg, dim, 0) for arg, dim in zip(args, dims, strict=True)]
        if any_batch and all(dim is None for dim in dims[1:]):
            results = primitive.bind(*front, **params)
        else:
            mapped = {i: arg for i, (arg, dim) in enumerate(zip(front, dims, strict=True)) if dim is not None}

            def one(mapped: dict[int, jax.Array]) -> list[jax.Array]:
                unbatched = (mapped.get(i, arg) for i, arg in enumerate(front))
                results: list[jax.Array] = primitive.bind(*unbatched, **params)
                return results

            results = jax.lax.map(one, mapped)
        return results, [0] * len(results)

    return batch
