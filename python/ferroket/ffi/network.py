"""The primitive ``network``: networks as programs of operations, on CPUs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ferroket.ffi.compact import on_one_device
from ferroket.ffi.primitives import batched
from ferroket.ffi.varying import align


def network(inputs: jax.Array, words: Any, tables: jax.Array, n_results: int) -> jax.Array:
    """What a program makes of the numbers of configurations.

    Args:
        inputs: float32 or float64 ``(C, H)``. They may not be sharded, except by :func:`jax.shard_map`.
        words: the program, int32, as :mod:`ferroket.network.program` writes it.
        tables: its numbers, of the same dtype as the inputs.
        n_results: R, how many numbers it gives for each configuration.

    Returns:
        These, ``(C, R)``.
    """
    (values,) = network_p.bind(*align([inputs, jnp.asarray(words, np.int32), tables]), n_results=n_results)
    return values


network_p = Primitive("network")
network_p.multiple_results = True
network_p.def_impl(jax.jit(network_p.bind, static_argnames=("n_results",)))


def _types(inputs: Any, *_: Any, n_results: int) -> list[Any]:
    return [on_one_device(inputs, (inputs.shape[0], n_results), inputs.dtype)]


def _call(inputs: jax.Array, *args: jax.Array, n_results: int) -> list[Any]:
    values = jax.ShapeDtypeStruct((inputs.shape[0], n_results), inputs.dtype)
    return list(jax.ffi.ffi_call("ferroket_network", [values])(inputs, *args))


network_p.def_abstract_eval(_types)
batching.primitive_batchers[network_p] = batched(network_p, any_batch=False)
mlir.register_lowering(network_p, mlir.lower_fun(_call, multiple_results=True), platform="cpu")
