"""Amplitudes whose ratios are known, as the kernels take them.

They are functions of n: n_i is 0 where site i has its first local state, and 1 where it has its second one.
Constant factors of ψ don't matter.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket.ffi import Attribute, log_determinants
from ferroket.ffi.primitives import planes
from ferroket.linalg import logpfaffian
from ferroket.models.fermions import occupied_rows
from ferroket.models.pair_sums import log_sum

if TYPE_CHECKING:
    from ferroket.operator.compiled import LocalStates

DTYPES = tuple(np.dtype(dtype) for dtype in (np.float32, np.float64, np.complex64, np.complex128))
"""The dtypes that parameters may have."""
_MULTIPLE = 16
"""The kernels take rows whose length is a multiple of this."""


class Amplitudes(ABC):
    """ψ as a function of n."""

    kernel: str
    """The end of the names of their kernels in Rust."""

    @property
    def is_sum(self) -> bool:
        """Whether ψ is a sum, whose terms may cancel."""
        return False

    @abstractmethod
    def arrays(self) -> list[jax.Array]:
        """The arrays that the kernels take.

        The first dimension is 1 for real numbers, and 2 for real and imaginary parts.
        """

    def attributes(self) -> dict[str, Attribute]:
        """The static attributes that the kernels take."""
        return {}

    @abstractmethod
    def log_psi(self, n: jax.Array) -> jax.Array:
        """Ln ψ up to a constant, ``(b,)`` for n of shape ``(b, N)``: what the kernels compute, in JAX."""

    @abstractmethod
    def log_modulus(self) -> "Amplitudes":
        """Amplitudes with the same modulus, and without the phase where that saves work: for Metropolis sampling."""

    def for_kernels(self) -> "Amplitudes":
        """The same amplitudes, as kernels of that name take them."""
        return self


@dataclass(frozen=True)
class RBMAmplitudes(Amplitudes):
    """ln ψ = Σ_i n_i a_i + Σ_j ln cosh θ_j with θ_j = t_j + Σ_i n_i δ_ij.

    Args:
        theta: t, of shape ``(M,)``.
        delta: δ, ``(N, M)``.
        bias: a, ``(N,)``.
    """

    theta: jax.Array
    delta: jax.Array
    bias: jax.Array

    kernel = "rbm"

    def arrays(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        return _planes(_padded(self.theta), _padded(self.delta), self.bias)

    def attributes(self) -> dict[str, Attribute]:
        """See :class:`Amplitudes`."""
        return {"pairs": False}

    def log_psi(self, n: jax.Array) -> jax.Array:
        """See :class:`Amplitudes`."""
        return n @ self.bias + nk.nn.activation.log_cosh(self.theta + n @ self.delta).sum(axis=-1)

    def log_modulus(self) -> Amplitudes:
        """Itself: for complex θ, the modulus of cosh θ depends on both parts of θ."""
        return self


@dataclass(frozen=True)
class ModulusAndPhase(Amplitudes):
    """A modulus and a phase φ: ln ψ = ``ln |ψ|`` + i φ, each the logarithm of an RBM with real parameters.

    Args:
        modulus: The RBM of ``ln |ψ|``.
        phase: The RBM of φ, with as many hidden units.
    """

    modulus: RBMAmplitudes
    phase: RBMAmplitudes

    kernel = "rbm"

    def arrays(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        both = zip(self.modulus.arrays(), self.phase.arrays(), strict=True)
        return [jnp.concatenate(arrays) for arrays in both]

    def attributes(self) -> dict[str, Attribute]:
        """See :class:`Amplitudes`."""
        return {"pairs": True}

    def log_psi(self, n: jax.Array) -> jax.Array:
        """See :class:`Amplitudes`."""
        return self.modulus.log_psi(n) + 1j * self.phase.log_psi(n)

    def log_modulus(self) -> Amplitudes:
        """See :class:`Amplitudes`."""
        return self.modulus


@dataclass(frozen=True)
class JastrowAmplitudes(Amplitudes):
    """ln ψ = Σ_i n_i f_i + Σ_{i<j} n_i p_ij n_j.

    Args:
        linear: f, of shape ``(N,)``.
        pairs: p, ``(N, N)``, symmetric and without a diagonal.
    """

    linear: jax.Array
    pairs: jax.Array

    kernel = "jastrow"

    def arrays(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        return _planes(_padded(self.linear), _padded(self.pairs))

    def log_psi(self, n: jax.Array) -> jax.Array:
        """See :class:`Amplitudes`."""
        return n @ self.linear + ((n @ self.pairs) * n).sum(axis=-1) / 2

    def log_modulus(self) -> Amplitudes:
        """See :class:`Amplitudes`."""
        return JastrowAmplitudes(self.linear.real, self.pairs.real)


@dataclass(frozen=True)
class DoublonHolonAmplitudes(Amplitudes):
    """ln ψ = Σ_s Σ_i [D_i α_s(h_s(i)) + H_i β_s(d_s(i))], on sites i with two modes, i and i + L.

    D_i is 1 at doubly occupied sites, and H_i at empty ones; h_s(i) and d_s(i) are the numbers of empty and of doubly
    occupied sites among the neighbours of site i in shell s.

    Args:
        alpha: α and β of each shell with z neighbours, ``(2, z + 1)``.
        shells: For each shell the neighbours of each site, ``(L, z)``. A site may have another one twice, or itself.
    """

    alpha: tuple[jax.Array, ...]
    shells: tuple[np.ndarray, ...]

    kernel = "doublon_holon"

    def arrays(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        return _planes(jnp.concatenate([of_shell.ravel() for of_shell in self.alpha]))

    def attributes(self) -> dict[str, Attribute]:
        """See :class:`Amplitudes`."""
        return {"shells": tuple(int(n) for shell in self.shells for n in (shell.shape[1], *shell.ravel()))}

    def log_psi(self, n: jax.Array) -> jax.Array:
        """See :class:`Amplitudes`."""
        fermions = (n > 0).reshape(len(n), 2, -1).sum(axis=1)
        doubly_occupied, empty = fermions == 2, fermions == 0  # noqa: PLR2004
        log_psi = jnp.zeros(len(n))
        for (alpha, beta), shell in zip(self.alpha, self.shells, strict=True):
            log_psi += (doubly_occupied * alpha[empty[:, shell].sum(axis=-1)]).sum(axis=-1)
            log_psi += (empty * beta[doubly_occupied[:, shell].sum(axis=-1)]).sum(axis=-1)
        return log_psi

    def log_modulus(self) -> Amplitudes:
        """See :class:`Amplitudes`."""
        return DoublonHolonAmplitudes(tuple(alpha.real for alpha in self.alpha), self.shells)

    def for_kernels(self) -> Amplitudes:
        """A product of this one: kernels take it as a factor."""
        return ProductAmplitudes((self,))


@dataclass(frozen=True)
class SlaterAmplitudes(Amplitudes):
    """ψ = Σ_d Π_s det M_ds[R_s], with the modes R_s of sector s that are occupied, in order.

    Args:
        orbitals: M for each sector, ``(D, L, n)`` of D determinants, L modes and n fermions.
        holes: From this site on, a mode counts as occupied where it is empty; None for none.
    """

    orbitals: tuple[jax.Array, ...]
    holes: int | None = None

    kernel = "slater"

    @property
    def is_sum(self) -> bool:
        """See :class:`Amplitudes`."""
        return len(self.orbitals[0]) > 1

    def arrays(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        return _planes(jnp.concatenate([sector.reshape(len(sector), -1) for sector in self.orbitals], axis=1))

    def attributes(self) -> dict[str, Attribute]:
        """See :class:`Amplitudes`."""
        fermions = tuple(sector.shape[-1] for sector in self.orbitals)
        return {"fermions": fermions, "holes": -1 if self.holes is None else self.holes}

    def log_psi(self, n: jax.Array) -> jax.Array:
        """See :class:`Amplitudes`."""
        return jax.nn.logsumexp(self.log_each(n), axis=0)

    def log_each(self, n: jax.Array) -> jax.Array:
        """The logarithms of the determinants, ``(D, b)``."""
        n = n > 0
        if self.holes is not None:
            n ^= jnp.arange(n.shape[-1]) >= self.holes
        return jnp.stack([log_determinants(n, orbitals) for orbitals in zip(*self.orbitals, strict=True)])

    def log_modulus(self) -> Amplitudes:
        """Itself: the modulus of a determinant depends on the phases of the orbitals."""
        return self


@dataclass(frozen=True)
class CorrelatedAmplitudes(Amplitudes):
    """ψ(n) = Σ_d ψ_d(n) φ(T_d n): determinants, each times a restricted Boltzmann machine where the sites are moved.

    Args:
        determinants: ψ_d.
        rbm: φ, of real numbers.
        permutations: Where each site goes, ``(D, N)`` of integers.
    """

    determinants: SlaterAmplitudes
    rbm: RBMAmplitudes
    permutations: np.ndarray

    kernel = "correlated"

    @property
    def is_sum(self) -> bool:
        """See :class:`Amplitudes`."""
        return self.determinants.is_sum

    def arrays(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        return self.determinants.arrays() + self.rbm.arrays()

    def attributes(self) -> dict[str, Attribute]:
        """See :class:`Amplitudes`."""
        return {**self.determinants.attributes(), "permutations": tuple(self.permutations.ravel().tolist())}

    def log_psi(self, n: jax.Array) -> jax.Array:
        """See :class:`Amplitudes`."""
        moved = n[:, np.argsort(self.permutations, axis=1)].swapaxes(0, 1)
        return jax.nn.logsumexp(self.determinants.log_each(n) + jax.vmap(self.rbm.log_psi)(moved), axis=0)

    def log_modulus(self) -> Amplitudes:
        """Itself: the modulus of a sum depends on the phases of its summands."""
        return self

    def for_kernels(self) -> Amplitudes:
        """A product of this one: kernels take it as a factor."""
        return ProductAmplitudes((self,))


@dataclass(frozen=True)
class PfaffianAmplitudes(Amplitudes):
    """ψ = Σ_d w_d Pf F_d[R, R], with the modes R that are occupied, in order.

    Args:
        pairs: F, ``(D, N, N)`` of N modes, skew-symmetric.
        weights: w, ``(D,)``.
        fermions: How many modes are occupied, an even number.
    """

    pairs: jax.Array
    weights: jax.Array
    fermions: int

    kernel = "pfaffian"

    @property
    def is_sum(self) -> bool:
        """See :class:`Amplitudes`."""
        return len(self.weights) > 1

    def arrays(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        return _planes(self.pairs, self.weights)

    def attributes(self) -> dict[str, Attribute]:
        """See :class:`Amplitudes`."""
        return {"fermions": self.fermions}

    def log_psi(self, n: jax.Array) -> jax.Array:
        """See :class:`Amplitudes`."""
        rows = occupied_rows(self.pairs, n[:, None] > 0, self.fermions)
        log_psi = logpfaffian(occupied_rows(rows.swapaxes(-1, -2), n[:, None] > 0, self.fermions))
        return log_sum(log_psi, self.weights)

    def log_modulus(self) -> Amplitudes:
        """Itself: the modulus of a Pfaffian depends on the phases of the pairs."""
        return self


@dataclass(frozen=True)
class ProductAmplitudes(Amplitudes):
    """ψ = Π_a ψ_a.

    Args:
        factors: The amplitudes ψ_a.
    """

    factors: tuple[Amplitudes, ...]

    kernel = "product"

    @property
    def is_sum(self) -> bool:
        """See :class:`Amplitudes`."""
        return any(factor.is_sum for factor in self.factors)

    @property
    def _flat(self) -> list[Amplitudes]:
        """The factors, with those of factors that are products themselves in their place."""
        parts = [factor._flat if isinstance(factor, ProductAmplitudes) else [factor] for factor in self.factors]
        return [factor for part in parts for factor in part]

    def arrays(self) -> list[jax.Array]:
        """See :class:`Amplitudes`."""
        return [array for factor in self._flat for array in factor.arrays()]

    def attributes(self) -> dict[str, Attribute]:
        """See :class:`Amplitudes`."""
        of_factors = {
            f"{number}_{name}": value
            for number, factor in enumerate(self._flat)
            for name, value in factor.attributes().items()
        }
        return {"factors": " ".join(factor.kernel for factor in self._flat), **of_factors}

    def log_psi(self, n: jax.Array) -> jax.Array:
        """See :class:`Amplitudes`."""
        return sum((factor.log_psi(n) for factor in self._flat), jnp.zeros(len(n)))

    def log_modulus(self) -> Amplitudes:
        """See :class:`Amplitudes`."""
        return ProductAmplitudes(tuple(factor.log_modulus() for factor in self.factors))


def first_and_step(sites: "LocalStates", dtype: Any) -> tuple[jax.Array, jax.Array]:
    """The first local state of each site, and how much the second one exceeds it, ``(N,)`` of real numbers.

    Args:
        sites: The sites.
        dtype: The results are as precise as this one.
    """
    real = jnp.finfo(dtype).dtype
    kind = sites.kind if sites.kind.size else np.zeros(sites.n_sites, np.int32)
    return jnp.asarray(sites.starts, real)[kind], jnp.asarray(sites.steps, real)[kind]


def _padded(array: jax.Array) -> jax.Array:
    """With zeros at the end of each row."""
    more = -array.shape[-1] % _MULTIPLE
    return jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, more)])


def _planes(*arrays: jax.Array) -> list[jax.Array]:
    """The planes of arrays of one dtype."""
    dtype = jnp.result_type(*arrays)
    return [planes(array.astype(dtype)) for array in arrays]
