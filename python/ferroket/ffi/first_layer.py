"""The primitive ``connected_sums``: a network's first layer of connected configurations, on CPUs."""

from typing import Any, NamedTuple

import jax
import numpy as np

from ferroket.ffi.family import Attribute
from ferroket.ffi.primitives import make_primitive, on_one_device


class FirstLayerTables(NamedTuple):
    """A first layer that is a sum over the sites: a constant, and a vector for each site and local state but the first.

    Its numbers are float32 or float64.
    """

    constant: Any
    """``(H,)``."""
    table: Any
    """``(N, D - 1, H)``, with D the most local states of a site."""


def connected_sums(
    x: jax.Array, samples: jax.Array, sample: jax.Array, kind: jax.Array, layer: FirstLayerTables, **sites: Attribute
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
    (sums,) = connected_sums_p(x, samples, sample.astype(np.int32), kind, *layer, attributes=sites)
    return sums


def _types(x: Any, *args: Any, **_: Any) -> list[Any]:
    constant = args[-2]
    return [on_one_device(x, (x.shape[0], *constant.shape), constant.dtype)]


connected_sums_p = make_primitive("connected_sums", _types, target="ferroket_first_layer")
