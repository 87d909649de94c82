"""Types under :func:`jax.shard_map`: over which manual mesh axes a value varies.

JAX has moved these names twice between 0.7 and 0.10; this module is where that shows.
"""

from collections.abc import Sequence
from typing import Any

import jax


def varying_axes(x: Any) -> frozenset[Any]:
    """The manual mesh axes over which ``x`` varies."""
    aval = jax.typeof(x)
    mat = getattr(aval, "mat", None)
    axes: frozenset[Any] = aval.vma if mat is None else mat.varying
    return axes


def _cast(x: jax.Array, axes: tuple[Any, ...]) -> jax.Array:
    if not axes:
        return x
    lax: Any = jax.lax
    cast: jax.Array = lax.pcast(x, axes, to="varying") if hasattr(lax, "pcast") else lax.pvary(x, axes)
    return cast


def align(args: Sequence[jax.Array]) -> list[jax.Array]:
    """Makes all ``args`` vary over the axes over which any of them does.

    The transpose of that cast is a sum over the axes: it is what makes the gradient by a replicated
    coefficient right when the samples are sharded.
    """
    of_each = [varying_axes(x) for x in args]
    union = frozenset().union(*of_each)
    return [_cast(x, tuple(union - axes)) for x, axes in zip(args, of_each, strict=True)]
