"""Amplitudes whose ratios are known, as the kernels take them.

All are functions of n: n_i is 0 where site i has its first local state, and 1 where it has its second one.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ferroket.ffi import Attribute, known_local_values
from ferroket.operator.compiled import Terms

_MULTIPLE = 16
"""The kernels take rows with a multiple of so many numbers."""


class Amplitudes(ABC):
    """ψ as a function of n."""

    kernel: str
    """What the compiled half calls them."""

    @abstractmethod
    def tables(self) -> list[jax.Array]:
        """What the kernel takes, with real numbers, or with the planes of complex ones, as first dimension."""

    def attributes(self) -> dict[str, Attribute]:
        """What else it takes."""
        return {}

    @abstractmethod
    def log_modulus(self) -> "Amplitudes":
        """Amplitudes of the same modulus, without a phase if that is less to compute: what chains are made of."""

    def local_values(self, form: Terms, samples: jax.Array) -> jax.Array:
        """The local values ``(Ns,)`` of samples ``(Ns, N)``, which may not be sharded; complex."""
        return known_local_values(
            form.family,
            self.kernel,
            samples,
            *map(jnp.asarray, form.with_weights().tables),
            of_amplitudes=self.tables(),
            **form.attributes,
            **self.attributes(),
        )


@dataclass(frozen=True)
class Machine(Amplitudes):
    """ln ψ = Σ_i n_i a_i + Σ_j ln cosh θ_j with θ_j = t_j + Σ_i n_i δ_ij; see ``rust/kernels/src/rbm.rs``.

    Args:
        theta: t, of shape ``(M,)``.
        delta: δ, ``(N, M)``.
        bias: a, ``(N,)``.
    """

    theta: jax.Array
    delta: jax.Array
    bias: jax.Array

    kernel = "rbm"

    def tables(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        return _planes(_padded(self.theta), _padded(self.delta), self.bias)

    def attributes(self) -> dict[str, Attribute]:
        """See :class:`Amplitudes`."""
        return {"pairs": False}

    def log_modulus(self) -> Amplitudes:
        """Itself: with complex numbers, modulus and phase of cosh θ depend on both parts of θ."""
        return self


@dataclass(frozen=True)
class ModulusAndPhase(Amplitudes):
    """``ln ψ = ln |ψ| + i φ``, of which each is a machine's; both have real numbers, and as many hidden units.

    Args:
        modulus: The machine of ``ln |ψ|``.
        phase: That of ``φ``.
    """

    modulus: Machine
    phase: Machine

    kernel = "rbm"

    def tables(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        both = zip(self.modulus.tables(), self.phase.tables(), strict=True)
        return [jnp.concatenate(tables) for tables in both]

    def attributes(self) -> dict[str, Attribute]:
        """See :class:`Amplitudes`."""
        return {"pairs": True}

    def log_modulus(self) -> Amplitudes:
        """See :class:`Amplitudes`."""
        return self.modulus


@dataclass(frozen=True)
class Quadratic(Amplitudes):
    """ln ψ = Σ_i n_i f_i + Σ_{i<j} n_i p_ij n_j; see ``rust/kernels/src/jastrow.rs``.

    Args:
        linear: f, of shape ``(N,)``.
        pairs: p, ``(N, N)``, symmetric and without a diagonal.
    """

    linear: jax.Array
    pairs: jax.Array

    kernel = "jastrow"

    def tables(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        return _planes(_padded(self.linear), _padded(self.pairs))

    def log_modulus(self) -> Amplitudes:
        """See :class:`Amplitudes`."""
        return Quadratic(self.linear.real, self.pairs.real)


def _padded(table: jax.Array) -> jax.Array:
    """With zeros at the end of each row."""
    more = -table.shape[-1] % _MULTIPLE
    return jnp.pad(table, [(0, 0)] * (table.ndim - 1) + [(0, more)])


def _planes(*tables: jax.Array) -> list[jax.Array]:
    """Tables of one type: real numbers, or real and imaginary parts, along a new first dimension."""
    dtype = jnp.result_type(*tables)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return [jnp.stack([table.real, table.imag]) for table in (table.astype(dtype) for table in tables)]
    return [table.astype(dtype)[None] for table in tables]
