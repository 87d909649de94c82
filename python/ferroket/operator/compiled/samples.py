"""Checks of samples before the kernels read them."""

from typing import Any

import jax.numpy as jnp


def check_samples(x: Any, n_sites: int, local_states: tuple[float, ...]) -> None:
    """Checks shape and dtype of samples; their values are checked where they are read.

    Raises:
        ValueError: If the last dimension isn't that of the sites, or the dtype can't hold the local states.
        TypeError: If the dtype is none of numbers.
    """
    if x.ndim == 0 or x.shape[-1] != n_sites:
        found = f"{x.shape[-1]} sites in their last dimension" if x.ndim else "no dimension"
        raise ValueError(
            f"the samples, of shape {x.shape}, have {found}, but the Hilbert space has {n_sites} sites: "
            f"samples have shape (..., {n_sites})"
        )
    if x.dtype != bool and not (jnp.issubdtype(x.dtype, jnp.number) and x.dtype.itemsize * 8 in (8, 16, 32, 64, 128)):
        raise TypeError(f"the samples have dtype {x.dtype}, but must be numbers")
    if x.dtype == bool:
        low, high = 0, 1
    elif jnp.issubdtype(x.dtype, jnp.integer):
        low, high = int(jnp.iinfo(x.dtype).min), int(jnp.iinfo(x.dtype).max)
    else:
        return  # floats hold all local states
    for state in sorted(local_states):
        if not (float(state).is_integer() and low <= state <= high):
            raise ValueError(
                f"the samples have dtype {x.dtype}, which can't hold the local state {state:g} of the Hilbert space: "
                "convert them to a signed or a floating dtype"
            )
