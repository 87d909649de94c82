"""The primitive ``known_local_values``: local values of amplitudes whose ratios are known, on CPUs."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ferroket.ffi.family import Attribute, Family
from ferroket.ffi.primitives import make_primitive, on_one_device


def known_local_values(
    family: Family,
    amplitudes: str,
    x: jax.Array,
    *tables: jax.Array,
    of_amplitudes: Sequence[jax.Array],
    **attributes: Attribute,
) -> jax.Array:
    """The local values of samples, without their connected configurations.

    Args:
        family: The form of the operator.
        amplitudes: What they are: the family must have a handler that ends so.
        x: The samples, of shape ``(Ns, N)``. They may not be sharded, except by :func:`jax.shard_map`.
        tables: The operator's numbers.
        of_amplitudes: The numbers of the amplitudes, all of float32 or float64.
        attributes: Static numbers, and tuples of them, for the handler.

    Returns:
        The local values, ``(Ns,)`` of complex128, or of complex64 where JAX has no other.
    """
    args = (x, *tables, *of_amplitudes)
    (local,) = known_local_values_p(*args, family=family, amplitudes=amplitudes, attributes=attributes)
    return local


def _types(x: Any, *_: Any, **__: Any) -> list[Any]:
    return [on_one_device(x, x.shape[:1], jax.dtypes.canonicalize_dtype(np.complex128))]


known_local_values_p = make_primitive(
    "known_local_values", _types, target=lambda family, amplitudes, **_: family.handler(f"_{amplitudes}")
)
