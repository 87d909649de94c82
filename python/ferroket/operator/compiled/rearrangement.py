"""The form of operators that put the sites, or their local states, in another order: one connected element each.

The rearrangement is a single gather, which XLA does as fast as anything; the kernels check the samples.
"""

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.operator.compiled.form import Form
from ferroket.operator.compiled.local_states import local_states
from ferroket.operator.compiled.matrices import Matrices
from ferroket.operator.compiled.terms import Terms


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("identity", "order", "values"),
    meta_fields=("fermions", "reflected"),
)
@dataclass(frozen=True, eq=False)
class Rearrangement(Form):
    """The compiled form: σ' has at site i what σ has at site ``order[i]``.

    Args:
        identity: The form of the identity, whose kernel checks the samples.
        order: Where the sites of σ' come from, int32 ``(N,)``.
        values: The matrix element, ``(1,)``.
        fermions: Whether it has the sign of reordering the fermions of σ.
        reflected: Whether the local states are reversed besides.
    """

    identity: Form
    order: Any
    values: Any
    fermions: bool
    reflected: bool

    diagonal: ClassVar[bool] = False  # type: ignore[misc]
    max_conn_size: ClassVar[int] = 1  # type: ignore[misc]

    @property
    def sites(self) -> Any:  # type: ignore[override]
        """The local states of the sites."""
        return self.identity.sites

    def mels(self, x: Any) -> jax.Array:
        """The matrix elements of samples ``(..., N)``, of shape ``(..., 1)``."""
        return _padded(self, x)[1]

    def padded(self, x: Any) -> tuple[jax.Array, jax.Array]:
        """The connected elements of samples ``(..., N)``: configurations ``(..., 1, N)`` and elements ``(..., 1)``."""
        return _padded(self, x)

    def on_diagonal(self, x: Any) -> jax.Array:
        """The matrix elements ⟨x|O|x⟩, ``(...)``: those of samples that stay what they are."""
        xp, mels = _padded(self, x)
        return jnp.where((xp[..., 0, :] == jnp.asarray(x)).all(axis=-1), mels[..., 0], 0)

    def count(self, x: Any, off_diagonal_only: bool = False) -> jax.Array:
        """How many matrix elements aren't zero: int32 ``(...)``."""
        return _kept(self, x, off_diagonal_only)[2].astype(jnp.int32)

    def compact(
        self, x: Any, cursor: Any, capacity: int, off_diagonal_only: bool = False
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The connected elements that aren't zero, sample by sample: see :meth:`Form.compact`."""
        if np.ndim(x) != 2:  # noqa: PLR2004
            raise ValueError(
                f"the samples have shape {np.shape(x)}, but the compact form takes a list of them, of shape "
                f"(Ns, {self.n_sites}): reshape them"
            )
        return _compact(self, x, jnp.asarray(cursor[0], jnp.int32), capacity, off_diagonal_only)


@jax.jit
def _padded(form: Rearrangement, x: Any) -> tuple[jax.Array, jax.Array]:
    x = jnp.asarray(x)
    mels = form.identity.mels(x) * form.values
    moved = x.astype(jnp.uint8)[..., form.order].astype(bool) if x.dtype == bool else x[..., form.order]
    if form.reflected:
        states = form.sites
        # Of all kinds alike, since only spins are reflected.
        moved = jnp.asarray(2 * states.starts[0] + (states.sizes[0] - 1) * states.steps[0]).astype(x.dtype) - moved
    if form.fermions:
        # Each pair of fermions that comes to stand the other way round is a sign.
        source = jnp.argsort(form.order)
        ahead = np.triu(np.ones((form.n_sites, form.n_sites), bool), 1)
        swapped = (ahead & (source[:, None] > source[None, :])).astype(jnp.float32)
        occupied = (x == 1).astype(jnp.float32)
        pairs = jnp.einsum("...i,ij,...j->...", occupied, swapped, occupied, precision="highest")
        mels = jnp.where(pairs[..., None] % 2 == 1, -mels, mels)
    return moved[..., None, :], mels


def _kept(form: Rearrangement, x: Any, off_diagonal_only: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    xp, mels = _padded(form, x)
    xp, mels = xp[..., 0, :], mels[..., 0]
    kept = mels != 0
    if off_diagonal_only:
        kept &= (xp != x).any(axis=-1)
    return xp, mels, kept


@functools.partial(jax.jit, static_argnums=(3, 4))
def _compact(
    form: Rearrangement, x: Any, begin: jax.Array, capacity: int, off_diagonal_only: bool
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    x = jnp.asarray(x)
    n_samples = len(x)
    xp, mels, kept = _kept(form, x, off_diagonal_only)
    kept &= jnp.arange(n_samples) >= begin
    # One more than wanted, to know where to go on.
    sample = jnp.flatnonzero(kept, size=capacity + 1, fill_value=n_samples).astype(jnp.int32)
    following = jnp.stack([sample[-1], jnp.zeros((), jnp.int32)])
    sample = sample[:-1]
    used = sample < n_samples
    first = jnp.asarray(local_values(form)).astype(x.dtype)
    if not n_samples:
        return jnp.tile(first, (capacity, 1)), jnp.zeros(capacity, mels.dtype), sample, following
    row = jnp.minimum(sample, n_samples - 1)
    return jnp.where(used[:, None], xp[row], first), jnp.where(used, mels[row], 0), sample, following


def local_values(form: Form) -> np.ndarray:
    """The first local state of each site."""
    starts = np.asarray(form.sites.starts)
    kind = form.sites.kind
    return jnp.asarray(starts)[kind] if np.size(kind) else np.full(form.n_sites, starts[0])


def rearrangement(
    hilbert: Any, order: Any, value: float, dtype: Any, *, fermions: bool, reflected: bool
) -> Rearrangement:
    """The compiled form of such an operator on a Hilbert space; see :class:`Rearrangement`."""
    sites = local_states(hilbert)
    nothing = np.zeros(0, int)
    one = np.ones(1, jnp.dtype(dtype))
    if set(sites.sizes) == {2}:
        no_words = [0]
        identity: Form = Terms.from_masks(sites, no_words, no_words, no_words, no_words, one)
    else:
        zero = np.zeros(1, int)
        identity = Matrices.from_arrays(
            sites, np.zeros(2, int), nothing, zero, np.arange(2), np.arange(2), zero, one, diagonal=True
        )
    with jax.ensure_compile_time_eval():
        return Rearrangement(identity, jnp.asarray(order, jnp.int32), jnp.asarray(value * one), fermions, reflected)
