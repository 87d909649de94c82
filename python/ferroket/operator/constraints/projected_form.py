"""Compiled forms of operators projected on the configurations that constraints of a user's own allow: P O P.

The kernels know of conserved sums alone. Any other constraint is a function in JAX, which is evaluated on the connected
configurations, in the same program.
"""

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.operator.compiled import Form, Terms
from ferroket.operator.constraints.hilbert import Constraints, allowed, constraint_functions, user_constraints

# So many configurations are looked at together where their number depends on the samples.
_BLOCK = 1 << 16


@functools.partial(jax.tree_util.register_dataclass, data_fields=("form",), meta_fields=("constraints",))
@dataclass(frozen=True, eq=False)
class Projected(Form):
    """A form without the elements that lead to configurations that aren't allowed. Samples are allowed ones.

    Args:
        form: The form, whichever it is.
        constraints: What is allowed, besides what the form leaves alone.
    """

    form: Form
    constraints: Constraints

    @property
    def sites(self) -> Any:  # type: ignore[override]
        """The local states of the sites."""
        return self.form.sites

    @property
    def values(self) -> Any:
        """The coefficients."""
        return self.form.values

    @property
    def diagonal(self) -> bool:  # type: ignore[override]
        """Whether the first connected element is the diagonal."""
        return self.form.diagonal

    @property
    def max_conn_size(self) -> int:  # type: ignore[override]
        """K, the largest number of elements of a sample, those that lead out among them."""
        return self.form.max_conn_size

    def replace_values(self, values: Any) -> Self:
        """The form with other coefficients, of the same shape; they may be traced."""
        return dataclasses.replace(self, form=self.form.replace_values(values))

    def mels(self, x: Any) -> jax.Array:
        """The matrix elements of samples ``(..., N)``, of shape ``(..., K)``."""
        return _padded(self, x)[1]

    def on_diagonal(self, x: Any) -> jax.Array:
        """The matrix elements ⟨x|O|x⟩ of samples ``(..., N)``, of shape ``(...)``."""
        return self.form.on_diagonal(x)

    def padded(self, x: Any) -> tuple[jax.Array, jax.Array]:
        """The connected elements of samples ``(..., N)``: in the place of those that lead out, the sample and 0."""
        xp, mels = _padded(self, x)
        return xp, mels

    def count(self, x: Any, off_diagonal_only: bool = False) -> jax.Array:
        """How many matrix elements aren't zero: int32 ``(...)``."""
        return _count(self, x, off_diagonal_only=off_diagonal_only)

    def compact(
        self, x: Any, cursor: Any, capacity: int, off_diagonal_only: bool = False
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The connected elements that aren't zero, sample by sample: see :meth:`Form.compact`.

        Those that lead out take room, so that rows may be unused though there are more elements. Unused rows hold the
        first sample.
        """
        xp, mels, sample, following = _compact(self, x, cursor, capacity=capacity, off_diagonal_only=off_diagonal_only)
        return xp, mels, sample, following

    def flattened(self, x: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The connected elements that aren't zero, one after the other: see :meth:`Form.flattened`."""
        xp, mels, ends = self.form.flattened(x)
        inside = np.empty(len(xp), bool)
        # In few lengths, of which each is a program.
        block = min(1 << len(xp).bit_length(), _BLOCK)
        for start in range(0, len(xp), block):
            piece = xp[start : start + block]
            padded = np.pad(piece, [(0, block - len(piece)), (0, 0)], mode="edge")
            inside[start : start + block] = np.asarray(_allowed(self.constraints, padded))[: len(piece)]
        return xp[inside], mels[inside], np.concatenate([[0], np.cumsum(inside)])[ends]


_allowed = jax.jit(allowed, static_argnums=0)


@jax.jit
def _padded(form: Projected, x: Any) -> tuple[jax.Array, jax.Array]:
    x = jnp.asarray(x)
    xp, mels = form.form.padded(x)
    inside = allowed(form.constraints, xp)
    if form.diagonal:
        inside = inside.at[..., 0].set(True)
    # A product, so that what is no number stays so.
    return jnp.where(inside[..., None], xp, x[..., None, :]), mels * inside.astype(mels.dtype)


@functools.partial(jax.jit, static_argnames="off_diagonal_only")
def _count(form: Projected, x: Any, *, off_diagonal_only: bool) -> jax.Array:
    xp, mels = _padded(form, x)
    counted = mels != 0
    if off_diagonal_only:
        counted &= (xp != jnp.asarray(x)[..., None, :]).any(axis=-1)
    return counted.sum(axis=-1, dtype=jnp.int32)


@functools.partial(jax.jit, static_argnames=("capacity", "off_diagonal_only"))
def _compact(form: Projected, x: Any, cursor: Any, *, capacity: int, off_diagonal_only: bool) -> tuple[jax.Array, ...]:
    x = jnp.asarray(x)
    xp, mels, sample, cursor = form.form.compact(x, cursor, capacity, off_diagonal_only)
    inside = (sample < len(x)) & allowed(form.constraints, xp)
    order = jnp.argsort(~inside, stable=True)
    used = inside[order]
    unused = x[0] if len(x) else xp[0]
    xp = jnp.where(used[:, None], xp[order], unused)
    return xp, jnp.where(used, mels[order], 0), jnp.where(used, sample[order], len(x)), cursor


def projected(form: Form, hilbert: Any) -> Form:
    """A form without the elements that constraints forbid; as it is, if they are all in it.

    Non-branching terms know the conserved numbers and the limits of the sites, other forms the conserved numbers.
    """
    if isinstance(form, Projected):
        return form
    constraints = user_constraints(hilbert) if isinstance(form, Terms) else constraint_functions(hilbert)
    return Projected(form, constraints) if constraints else form
