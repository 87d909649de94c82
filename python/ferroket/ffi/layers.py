"""The primitive ``dense_layers``: what a network of dense layers makes of its first one, on CPUs."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ferroket.ffi.compact import on_one_device
from ferroket.ffi.primitives import batched
from ferroket.ffi.varying import align


def dense_layers(sums: jax.Array, tables: Sequence[jax.Array], activations: Sequence[str]) -> jax.Array:
    """``ln ψ = W_L f_L(... W_1 f_1(s) + b_1 ...) + b_L`` of the sums s of a first layer.

    Args:
        sums: s, float32 or float64 ``(C, H)``. They may not be sharded, except by :func:`jax.shard_map`.
        tables: The matrix ``(inputs, outputs)`` and the bias ``(outputs,)`` of each layer, of the same dtype, the last
            one with one output.
        activations: The functions f by name, as :data:`ferroket.ansatz.layers.ACTIVATIONS` has them.

    Returns:
        ln ψ, ``(C,)``.
    """
    (log_psi,) = dense_layers_p.bind(*align([sums, *tables]), activations=names_of(activations))
    return log_psi


def names_of(activations: Sequence[str]) -> str:
    """The names of functions as the handlers take them."""
    return ",".join(activations)


dense_layers_p = Primitive("dense_layers")
dense_layers_p.multiple_results = True
dense_layers_p.def_impl(jax.jit(dense_layers_p.bind, static_argnames=("activations",)))


def _types(sums: Any, *_: Any, activations: str) -> list[Any]:
    return [on_one_device(sums, sums.shape[:1], sums.dtype)]


def _call(sums: jax.Array, *tables: jax.Array, activations: str) -> list[Any]:
    log_psi = jax.ShapeDtypeStruct(sums.shape[:1], sums.dtype)
    call = jax.ffi.ffi_call("ferroket_layers", [log_psi])
    return list(call(sums, *tables, activations=activations))


dense_layers_p.def_abstract_eval(_types)
batching.primitive_batchers[dense_layers_p] = batched(dense_layers_p, any_batch=False)
mlir.register_lowering(dense_layers_p, mlir.lower_fun(_call, multiple_results=True), platform="cpu")
