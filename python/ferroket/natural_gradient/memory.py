"""How much memory log-derivatives take: it is known beforehand, and has a limit.

The factors and the rows of all samples of a device are kept until an update is made, or for as long as a quantum
geometric tensor is multiplied with vectors. Above the limit NetKet's own code does it, which computes them anew for
each chunk and each product.
"""

import math
from collections.abc import Callable
from typing import Any

import jax

from ferroket.ansatz.verification import cached_answer, shapes_of
from ferroket.natural_gradient.log_derivatives import MEMORY, LogDerivatives, log_derivatives
from ferroket.natural_gradient.structure import read

UPDATE = 1 << 33
"""How many bytes the factors and rows of a device's samples may take for an update, and for products without chunks."""
UPDATE_IN_CHUNKS = 1 << 31
"""The same for an update where the caller has asked for chunks of samples."""
PRODUCTS_IN_CHUNKS = MEMORY
"""The same for products with vectors, where the caller has asked for chunks of samples."""


def limit_of_update(chunk_size: int | None) -> int:
    """That of an update in chunks of so many samples, or without any."""
    return UPDATE if chunk_size is None else UPDATE_IN_CHUNKS


def bytes_of_log_derivatives(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: Any, mode: str) -> int:
    """What the log-derivatives of the samples of one device take.

    Args:
        log_psi: ``log_psi({"params": parameters, **state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        state: Other collections of variables.
        samples: Those of all devices, ``(Ns, N)``, or their shape.
        mode: ``real`` or ``complex``.
    """
    subject = log_psi, samples.shape[1:], str(samples.dtype), mode
    sample = jax.ShapeDtypeStruct((1, *samples.shape[1:]), samples.dtype)

    def answer() -> int:
        return bytes_of(log_derivatives_of_sample(log_psi, parameters, state, sample, mode))

    n_bytes: int = cached_answer("bytes of log-derivatives", subject, (parameters, state), answer)
    return -(-int(samples.shape[0]) // jax.device_count()) * n_bytes


def log_derivatives_of_sample(
    log_psi: Callable[..., Any], parameters: Any, state: Any, sample: Any, mode: str, is_holomorphic: bool | None = None
) -> LogDerivatives:
    """The log-derivatives of one sample ``(1, N)``, as shapes; ``is_holomorphic`` as in ``ntk.log_derivatives_of``."""

    def made(parameters: Any, state: Any, samples: jax.Array) -> LogDerivatives:
        network = read(log_psi, parameters, state, samples[0], is_holomorphic)
        return log_derivatives(network, mode, None, jax.tree.leaves(parameters), state, samples)

    found: LogDerivatives = jax.eval_shape(made, *shapes_of((parameters, state, sample)))
    return found


def bytes_of(arrays: Any) -> int:
    """What a pytree of arrays takes."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(arrays))


def excess_of(n_bytes: int, limit: int) -> str | None:
    """Why so much is too much, as the end of a sentence; None if it isn't."""
    if n_bytes <= limit:
        return None
    return (
        f"the factors and rows of a device's samples take {n_bytes / 2**30:.3g} GiB, more than {limit / 2**30:.3g} GiB"
    )
