"""The primitive ``known_local_values``: local values of amplitudes whose ratios are known, on CPUs."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ferroket.ffi.compact import on_one_device
from ferroket.ffi.family import Attribute, Attributes, Family, for_handler, static
from ferroket.ffi.primitives import as_numbers, batched
from ferroket.ffi.varying import align


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
    args = align([as_numbers(x), *tables, *of_amplitudes])
    (local,) = known_local_values_p.bind(*args, family=family, amplitudes=amplitudes, attributes=static(attributes))
    return local


known_local_values_p = Primitive("known_local_values")
known_local_values_p.multiple_results = True
known_local_values_p.def_impl(
    jax.jit(known_local_values_p.bind, static_argnames=("family", "amplitudes", "attributes"))
)


def _dtype() -> Any:
    return jax.dtypes.canonicalize_dtype(np.complex128)


def _types(x: Any, *_: Any, **__: Any) -> list[Any]:
    return [on_one_device(x, x.shape[:1], _dtype())]


def _call(x: jax.Array, *tables: jax.Array, family: Family, amplitudes: str, attributes: Attributes) -> list[jax.Array]:
    local = jax.ShapeDtypeStruct(x.shape[:1], _dtype())
    return list(jax.ffi.ffi_call(family.handler(f"_{amplitudes}"), [local])(x, *tables, **for_handler(attributes)))


known_local_values_p.def_abstract_eval(_types)
batching.primitive_batchers[known_local_values_p] = batched(known_local_values_p, any_batch=False)
mlir.register_lowering(known_local_values_p, mlir.lower_fun(_call, multiple_results=True), platform="cpu")
