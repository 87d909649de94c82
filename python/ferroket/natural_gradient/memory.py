"""How much memory an update takes: it is known beforehand, and kept below a limit.

The factors and rows of all samples of a device are kept until an update is made, or for as long as a quantum geometric
tensor is multiplied with vectors. Where they would take too much beside the matrix of the linear system they are
:class:`~ferroket.natural_gradient.in_chunks.DerivativesInChunks`.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ferroket import limits
from ferroket.ansatz.verification import shapes_of
from ferroket.natural_gradient.log_derivatives import LogDerivatives, by_xla, is_complex
from ferroket.natural_gradient.structure import read

ELSEWHERE = 1 << 33
"""The limit on devices other than CPUs, for which nobody says it."""
LEAST = 1 / 8
"""How much of the limit log-derivatives may take in any case, whatever the matrix does."""
COPIES = 4
"""How many chunks' log-derivatives a device holds: those of rows, of columns, and copies that products are made of."""


def limit() -> int:
    """How many bytes a device may hold for an update: see :func:`ferroket.limits.memory_for_updates`."""
    if jax.default_backend() != "cpu":
        return ELSEWHERE
    return limits.memory_for_updates() // jax.local_device_count()


def room_beside(matrix: int) -> int:
    """The bytes that log-derivatives may take beside those of a matrix."""
    whole = limit()
    return max(whole - matrix, int(LEAST * whole))


def chunk_of(of_sample: Any, n_samples: int, bytes_of_matrix: int) -> int | None:
    """How many samples' log-derivatives a device holds at once; None for all of its own.

    Args:
        of_sample: Those of one sample, or their shapes.
        n_samples: How many there are on all devices.
        bytes_of_matrix: The bytes of what a device holds besides.
    """
    of_each, room = bytes_of(of_sample), room_beside(bytes_of_matrix)
    return None if bytes_of_device(of_sample, n_samples) <= room else max(1, room // (COPIES * of_each))


def bytes_of_device(of_sample: Any, n_samples: int) -> int:
    """What the log-derivatives of a device's samples take, of so many on all devices."""
    return -(-n_samples // jax.device_count()) * bytes_of(of_sample)


def bytes_of_kernel(of_sample: LogDerivatives, n_samples: int, is_formed: bool) -> int:
    """What a device holds of the neural tangent kernel of so many samples, and for its solution.

    On one CPU it is half of it, or, where it is formed, that and the whole of it. Several devices share it: each has
    its rows, and where it is formed also what the others send of the other triangle, and a copy that is factored.

    Args:
        of_sample: The log-derivatives of a sample, or their shapes.
        n_samples: Those of all devices.
        is_formed: Whether CPUs form it.
    """
    n_components = 1 if of_sample.is_holomorphic else of_sample.n_components
    numbers = (n_samples * n_components) ** 2 * (1 + of_sample.is_holomorphic)
    whole = numbers * int(jnp.finfo(of_sample.network.dtype).dtype.itemsize)
    is_formed |= jax.default_backend() != "cpu"
    if (n_devices := jax.device_count()) > 1:
        return (3 if is_formed else 1) * whole // n_devices
    return 3 * whole // 2 if is_formed else whole // 2


def bytes_of_tensor(of_sample: LogDerivatives) -> int:
    """What each device holds of the quantum geometric tensor and for its solution: it and a copy that is factored."""
    splits = not of_sample.is_holomorphic
    size = sum(math.prod(leaf.shape) * (1 + (splits and is_complex(leaf))) for leaf in of_sample.network.leaves)
    numbers = size**2 * (1 + of_sample.is_holomorphic)
    return 2 * numbers * int(jnp.finfo(of_sample.network.dtype).dtype.itemsize)


def log_derivatives_of_sample(
    log_psi: Callable[..., Any], parameters: Any, state: Any, sample: Any, mode: str, is_holomorphic: bool | None = None
) -> LogDerivatives:
    """The log-derivatives of one sample ``(1, N)``, as shapes; ``is_holomorphic`` as in ``ntk.log_derivatives_of``."""

    def made(parameters: Any, state: Any, samples: jax.Array) -> LogDerivatives:
        network = read(log_psi, parameters, state, samples[0], is_holomorphic)
        return by_xla(network, mode, None, jax.tree.leaves(parameters), state, samples)

    found: LogDerivatives = jax.eval_shape(made, *shapes_of((parameters, state, sample)))
    return found


def bytes_of(arrays: Any) -> int:
    """What a pytree of arrays takes."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(arrays))
