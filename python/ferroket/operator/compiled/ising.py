"""The kernel of the transverse-field Ising Hamiltonian, which is faster than the same terms as :class:`Terms`.

Only :class:`ferroket.operator.Ising` knows it, and only for padded elements.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi import Family, IsingArguments, connected_elements
from ferroket.operator.compiled.samples import check_samples


def _matrix_elements(
    x: jax.Array, edges: jax.Array, h: jax.Array, J: jax.Array, *, n_conn: int, first: float, second: float
) -> tuple[jax.Array, jax.Array]:
    """The matrix elements in pure JAX, for the platforms that have no Rust kernel, and the sites that they flip or -1.

    A sample that holds anything but local states has the matrix elements NaN: no error can be raised there.
    """
    one, other = jnp.asarray(first, x.dtype), jnp.asarray(second, x.dtype)
    is_other = x == other
    # One gather, since the XLA of jaxlib 0.8 mixes up two of them from one constant.
    ends = is_other[..., edges]
    diagonal = (J * (2 * (ends[..., 0] == ends[..., 1]) - 1).sum(axis=-1)).astype(J.dtype)
    mels = jnp.where(np.arange(n_conn) == 0, diagonal[..., None], -h)
    if jnp.issubdtype(mels.dtype, jnp.inexact):
        valid = (is_other | (x == one)).all(axis=-1, keepdims=True)
        mels = jnp.where(valid, mels, jnp.nan)
    return mels, jnp.broadcast_to(jnp.arange(-1, n_conn - 1), mels.shape)


def _configurations(x: jax.Array, site: jax.Array, *_: jax.Array, first: float, second: float) -> jax.Array:
    one, other = jnp.asarray(first, x.dtype), jnp.asarray(second, x.dtype)
    return jnp.where((x == other) ^ (site[..., None] == np.arange(x.shape[-1])), other, one)


ISING = Family(
    target="ferroket_ising",
    elements=_matrix_elements,
    configurations=_configurations,
    arguments=IsingArguments,
    coefficients=("h", "J"),
    filler=lambda *_, first, **__: first,
)


def ising_elements(
    x: Any, edges: Any, h: Any, J: Any, *, n_sites: int, local_states: tuple[float, float], n_conn: int
) -> tuple[jax.Array, jax.Array]:
    """The connected elements of samples ``(..., N)``: the diagonal first, then the flips by site, if K is N + 1.

    Args:
        x: The samples.
        edges: The edges, int32 ``(n_edges, 2)``.
        h: The transverse field, a scalar.
        J: The coupling, a scalar of the dtype of the matrix elements.
        n_sites: N.
        local_states: The two local states of the sites.
        n_conn: K, 1 without a field and else N + 1.

    Returns:
        Configurations ``(..., K, N)`` and matrix elements ``(..., K)``.

    Raises:
        ValueError: If the last dimension of ``x`` isn't N, or its dtype can't hold the local states.
    """
    first, second = local_states
    x, h, J = jnp.asarray(x), jnp.asarray(h).astype(J.dtype), jnp.asarray(J)
    check_samples(x, n_sites, local_states)
    arguments = IsingArguments(edges, h, J)
    xp, mels = connected_elements(ISING, x, *arguments, n_conn=n_conn, states=True, first=first, second=second)
    return xp, mels
