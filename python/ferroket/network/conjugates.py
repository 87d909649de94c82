"""Complex conjugates among the elements of what parameters give: Fourier transforms of real ones have such."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ferroket.network.reader import Reader


def of(reader: Reader, eqn: Any, inputs: Sequence[Any]) -> np.ndarray | None:
    """Which element of a result the complex conjugate of each is, by their numbers; None if that isn't known.

    Args:
        reader: what is known of others.
        eqn: what gives it, of what depends on parameters alone.
        inputs: its operands.
    """
    rule = _RULES.get(eqn.primitive.name)
    return None if rule is None else rule(reader, eqn, inputs)


def _of_real_numbers(reader: Reader, eqn: Any, inputs: Sequence[Any]) -> np.ndarray | None:
    """Each is its own."""
    is_complex = [jnp.issubdtype(v.aval.dtype, jnp.complexfloating) for v in (inputs[0], eqn.outvars[0])]
    return np.arange(eqn.outvars[0].aval.size) if is_complex == [False, True] else None


def _of_transform(reader: Reader, eqn: Any, inputs: Sequence[Any]) -> np.ndarray | None:
    """Those of the negative wave numbers, of real numbers."""
    root, _ = reader.origin(inputs[0])
    own = reader.conjugates.get(root)
    if own is None or (own != np.arange(own.size)).any() or getattr(eqn.params["fft_type"], "name", "") != "FFT":
        return None
    shape, n_axes = eqn.outvars[0].aval.shape, len(eqn.params["fft_lengths"])
    where = list(np.indices(shape, sparse=True))
    for axis in range(len(shape) - n_axes, len(shape)):
        where[axis] = -where[axis] % shape[axis]
    found: np.ndarray = np.ravel_multi_index(tuple(np.broadcast_arrays(*where)), shape).ravel()
    return found


def _of_product(reader: Reader, eqn: Any, inputs: Sequence[Any]) -> np.ndarray | None:
    """Those of the conjugate columns of a constant matrix, of real numbers times it."""
    real, constant = inputs[0], reader.constant(inputs[1])
    (_, summed), (batch, _) = eqn.params["dimension_numbers"]
    if constant is None or constant.ndim != 2 or batch or len(summed) != 1 or not np.iscomplexobj(constant):  # noqa: PLR2004
        return None
    if jnp.issubdtype(real.aval.dtype, jnp.complexfloating) or not constant.size:
        return None
    columns = constant if summed[0] == 0 else constant.T
    # By one number of each column, and then by all.
    sums = np.random.default_rng(0).normal(size=len(columns)) @ columns
    conjugate = np.abs(sums[:, None] - sums.conj()).argmin(axis=1)
    tolerance = 1000 * np.finfo(columns.dtype).eps * np.abs(columns).max(initial=0)
    if (np.abs(columns[:, conjugate] - columns.conj()) > tolerance).any():
        return None
    shape = eqn.outvars[0].aval.shape
    numbers = np.arange(eqn.outvars[0].aval.size).reshape(shape)
    return numbers[..., conjugate].ravel()


_RULES = {"convert_element_type": _of_real_numbers, "fft": _of_transform, "dot_general": _of_product}
