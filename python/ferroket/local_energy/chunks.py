"""How many configurations a network sees at once."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from ferroket.operator.compiled import Form

_LARGEST = 2048
"""Larger chunks are no faster."""
_SMALLEST = 64
"""Smaller chunks don't fill the vectors and threads of a processor."""
_CACHED = 1 << 22
"""An activation of so many bytes, for all configurations of a chunk, stays in the caches of a few cores."""
_N_CHUNKS = 16
"""There are at least so many chunks, since the last one is filled up with what isn't needed."""
_SMALLEST_PART = 256


def chunk_size_of(
    chunk_size: int | None,
    n_samples: int,
    form: Form,
    logpsi: Callable[[Any, jax.Array], jax.Array],
    variables: Any,
    x: Any,
    *,
    in_lanes: bool = False,
) -> int:
    """How many configurations like ``x``, of shape ``(n, N)``, are evaluated at once on a device with so many samples.

    Args:
        chunk_size: What the user says, if anything.
        n_samples: How many samples there are.
        form: The operator.
        logpsi: The network, a function of variables and configurations.
        variables: Its variables.
        x: Anything with a shape and a dtype.
        in_lanes: Whether Rust evaluates it, which keeps activations for a tile alone: then it doesn't matter what the
            user says.
    """
    at_most = -(-n_samples * form.max_conn_size // _N_CHUNKS)
    largest = _LARGEST if in_lanes else chunk_size or _cached(logpsi, variables, x)
    return min(largest, max(at_most, _SMALLEST_PART))


def _cached(logpsi: Callable[[Any, jax.Array], jax.Array], variables: Any, x: Any) -> int:
    """The largest power of two with which the network's largest activation stays in the cache."""
    variables = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), variables)
    few, more = (
        [math.prod(aval.shape) * aval.dtype.itemsize for aval in _results(jaxpr)]
        for jaxpr in (jax.make_jaxpr(logpsi)(variables, _like(x, n)).jaxpr for n in (_SMALLEST, 2 * _SMALLEST))
    )
    # What doesn't grow with the number of configurations is made of the parameters.
    each = max((b - a for a, b in zip(few, more, strict=False)), default=0) // _SMALLEST
    fitting = _CACHED // max(each, 1)
    return int(min(max(1 << (fitting.bit_length() - 1), _SMALLEST), _LARGEST)) if fitting else _SMALLEST


def _like(x: Any, n: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((n, x.shape[-1]), x.dtype)


def _results(jaxpr: Any) -> Iterator[Any]:
    """The types of all intermediate results, those of inner functions too."""
    for equation in jaxpr.eqns:
        yield from (result.aval for result in equation.outvars if hasattr(result.aval, "shape"))
        for parameter in jax.tree.leaves(equation.params, is_leaf=_is_function):
            if _is_function(parameter):
                yield from _results(getattr(parameter, "jaxpr", parameter))


def _is_function(parameter: Any) -> bool:
    return isinstance(parameter, Jaxpr | ClosedJaxpr)
