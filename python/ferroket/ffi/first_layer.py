"""The primitive ``connected_sums``: a network's first layer of connected configurations, on CPUs."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ferroket.ffi.compact import on_one_device
from ferroket.ffi.family import Attribute, Attributes, for_handler, static
from ferroket.ffi.primitives import as_numbers, batched
from ferroket.ffi.varying import align


class Layer(NamedTuple):
    """A first layer that is a sum over the sites: a constant, and a vector for each site and local state but the first.

    Its numbers are float32 or float64.
    """

    constant: Any
    """``(H,)``."""
    table: Any
    """``(N, D - 1, H)``, with D the most local states of a site."""


def connected_sums(
    x: jax.Array, samples: jax.Array, sample: jax.Array, kind: jax.Array, layer: Layer, **sites: Attribute
) -> jax.Array:
    """What a first layer makes of configurations that differ from samples on a few sites.

    Args:
        x: The configurations, ``(C, N)``. They may not be sharded, except by :func:`jax.shard_map`.
        samples: The samples, ``(Ns, N)``, of the same dtype.
        sample: From which sample each configuration differs, int32 ``(C,)``. Neighbours with the same one are fast.
        kind: The kind of each site, as :class:`ferroket.operator.compiled.LocalStates` has it.
        layer: The first layer.
        sites: ``starts``, ``steps`` and ``sizes`` of the local states of each kind.

    Returns:
        The sums, ``(C, H)``.

    Raises:
        jax.errors.JaxRuntimeError: A configuration holds something else than local states.
    """
    args = align([as_numbers(x), as_numbers(samples), sample, kind, *layer])
    (sums,) = connected_sums_p.bind(*args, attributes=static(sites))
    return sums


connected_sums_p = Primitive("connected_sums")
connected_sums_p.multiple_results = True
connected_sums_p.def_impl(jax.jit(connected_sums_p.bind, static_argnames=("attributes",)))


def _types(x: Any, *args: Any, **_: Any) -> list[Any]:
    constant = args[-2]
    return [on_one_device(x, (x.shape[0], *constant.shape), constant.dtype)]


def _call(x: jax.Array, samples: jax.Array, sample: jax.Array, *args: jax.Array, attributes: Attributes) -> list[Any]:
    constant = args[-2]
    sums = jax.ShapeDtypeStruct((len(x), *constant.shape), constant.dtype)
    call = jax.ffi.ffi_call("ferroket_first_layer", [sums])
    return list(call(x, samples, sample.astype(np.int32), *args, **for_handler(attributes)))


connected_sums_p.def_abstract_eval(_types)
batching.primitive_batchers[connected_sums_p] = batched(connected_sums_p, any_batch=False)
mlir.register_lowering(connected_sums_p, mlir.lower_fun(_call, multiple_results=True), platform="cpu")
