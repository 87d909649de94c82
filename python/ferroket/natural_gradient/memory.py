"""How much memory log-derivatives take: it is known beforehand, and has a limit.

The factors and the rows of all samples of a device are kept until an update is made, or for as long as a quantum
geometric tensor is multiplied with vectors. Above the limit NetKet's own code does it, which computes them anew for
each chunk and each product.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from ferroket.natural_gradient.log_derivatives import MEMORY, log_derivatives
from ferroket.natural_gradient.structure import read

UPDATE = 1 << 33
"""How many bytes the factors and rows of a device's samples may take for an update, and for products without chunks."""
UPDATE_IN_CHUNKS = 1 << 31
"""The same for an update where the caller has asked for chunks of samples."""
PRODUCTS_IN_CHUNKS = MEMORY
"""The same for products with vectors, where the caller has asked for chunks of samples."""


def bytes_of_log_derivatives(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: Any, mode: str) -> int:
    """What the log-derivatives of the samples of one device take.

    Args:
        log_psi: ``log_psi({"params": parameters, **state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        state: Other collections of variables.
        samples: Those of all devices, ``(Ns, N)``, or their shape.
        mode: ``real`` or ``complex``.
    """
    sample = jax.ShapeDtypeStruct((1, *samples.shape[1:]), samples.dtype)
    leaves, treedef = jax.tree.flatten((parameters, state, sample))
    key = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    return -(-int(samples.shape[0]) // jax.device_count()) * _bytes_of_sample(log_psi, treedef, key, mode)


@lru_cache(maxsize=64)
def _bytes_of_sample(log_psi: Callable[..., Any], treedef: Any, key: tuple[Any, ...], mode: str) -> int:
    shapes = jax.tree.unflatten(treedef, [jax.ShapeDtypeStruct(*leaf) for leaf in key])

    def made(parameters: Any, state: Any, samples: jax.Array) -> Any:
        network = read(log_psi, parameters, state, samples[0])
        return log_derivatives(network, mode, None, jax.tree.leaves(parameters), state, samples)

    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(jax.eval_shape(made, *shapes)))


def excess_of(n_bytes: int, limit: int) -> str | None:
    """Why so much is too much, as the end of a sentence; None if it isn't."""
    if n_bytes <= limit:
        return None
    return (
        f"the factors and rows of a device's samples take {n_bytes / 2**30:.3g} GiB, more than {limit / 2**30:.3g} GiB"
    )
