"""Lanczos steps: states made better by powers of the Hamiltonian, without new parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket._compat.netket import log_psi_of
from ferroket.ansatz.importance import power_of_samples, samples_of_power, weights_of_power
from ferroket.operator.algebra.combining import power

_DEGENERATE = 1e-12
"""Directions whose part of all Krylov vectors is smaller, in the square, are rounding."""


class LanczosStep:
    r"""The energy of a state after steps of the Lanczos algorithm.

    .. math::

        |\psi_p\rangle = \sum_{k=0}^{p} c_k H^k |\psi\rangle, \qquad
        E = \frac{\langle w^* n \rangle}{\langle |w|^2 \rangle}, \quad
        w = \sum_k c_k e_k, \quad n = \sum_k c_k e_{k+1}

    with the local values :math:`e_k(\sigma) = \langle\sigma|H^k|\psi\rangle / \langle\sigma|\psi\rangle` in samples of
    :math:`|\psi|^2`: n / w is the local energy of :math:`\psi_p`, and the samples are weighted with :math:`|w|^2`. For
    coefficients that were chosen without these samples, E is variational, and its statistical error vanishes where
    :math:`\psi_p` is an eigenstate. The formula is that of S. Sorella, Phys. Rev. B 64, 024512 (2001), with samples of
    the state before the steps.

    :math:`H^{p+1}` is made as an operator once, and costs as many connected elements: steps pay where ratios of
    amplitudes are known.

    Args:
        hamiltonian: H, an operator of :mod:`ferroket.operator` that can be multiplied by itself.
        steps: p, at least 1.

    Raises:
        ValueError: There isn't a step.
        TypeError: Powers of the operator aren't single operators, as in a space with a constraint of a user's own.
    """

    def __init__(self, hamiltonian: Any, steps: int = 1) -> None:
        if steps < 1:
            raise ValueError(f"steps={steps} must be at least 1")
        self.steps = steps
        self.powers = [hamiltonian, *(power(hamiltonian, exponent) for exponent in range(2, steps + 2))]

    def coefficients(self, state: Any, *, machine_pow: float | None = None) -> np.ndarray:
        """Those of the lowest energy in the present samples of a state, or in others.

        Their own energy in the same samples is too low: take new samples for :meth:`expect`.

        Args:
            state: A variational state with samples, :class:`netket.vqs.MCState`.
            machine_pow: p, for new samples of ``|ψ|^p`` with weights ``|ψ|^(2−p)``: with p below 2 there are more where
                ψ is small, and the state after the steps isn't. By default the present samples of the state's
                sampler, which have weights if its own ``machine_pow`` isn't 2.

        Returns:
            c of 1, H, …, ``(steps + 1,)``, up to a factor; 1, 0, … for an eigenstate, up to rounding.

        Raises:
            TypeError: The state has no samples.
            ValueError: ``machine_pow`` isn't positive.
        """
        values, mass = self._local_values(state, machine_pow)
        energy = float((mass * values[1].real).sum())
        spread = float(jnp.sqrt((mass * jnp.abs(values[1] - energy) ** 2).sum()))
        if spread <= np.sqrt(np.finfo(values[1].dtype).eps) * float(jnp.abs(values[1]).max()):
            return np.eye(self.steps + 1)[0]  # An eigenstate: what is left is rounding.
        centred = _powers_of_difference(self.steps + 1, energy, spread)
        krylov = jnp.tensordot(jnp.asarray(centred), jnp.stack(values), axes=1)
        products = np.asarray(jnp.einsum("...,i...,j...->ij", mass, krylov[:-1].conj(), krylov))
        gram, matrix = products[:, :-1], products[:, 1:]
        lengths, directions = np.linalg.eigh((gram + gram.conj().T) / 2)
        directions = directions[:, lengths > _DEGENERATE * lengths[-1]]
        lengths = lengths[lengths > _DEGENERATE * lengths[-1]]
        directions = directions / np.sqrt(lengths)
        projected = directions.conj().T @ (matrix + matrix.conj().T) @ directions / 2
        _, vectors = np.linalg.eigh(projected)
        found: np.ndarray = centred[:-1, :-1].T @ (directions @ vectors[:, 0])
        return found

    def expect(self, state: Any, coefficients: Any, *, machine_pow: float | None = None) -> nk.stats.Stats:
        """The energy of ``Σ c_k H^k |ψ⟩``, in the present samples of a state, or in others.

        Args:
            state: A variational state with samples, :class:`netket.vqs.MCState`.
            coefficients: c, ``(steps + 1,)``, up to a factor; those of :meth:`coefficients`, from other samples.
            machine_pow: As there.

        Returns:
            The energy; its error, propagated to first order through the weights; and the variance of H in the new
            state.

        Raises:
            TypeError: The state has no samples.
            ValueError: There is another number of coefficients; ``machine_pow`` isn't positive.
        """
        c = np.asarray(coefficients)
        if c.shape != (self.steps + 1,):
            raise ValueError(f"{self.steps} steps have {self.steps + 1} coefficients, but their shape is {c.shape}")
        values, mass = self._local_values(state, machine_pow)
        weight = sum(c[k] * values[k] for k in range(self.steps + 1))
        image = sum(c[k] * values[k + 1] for k in range(self.steps + 1))
        norm = (mass * jnp.abs(weight) ** 2).sum()
        energy = (mass * (weight.conj() * image).real).sum() / norm
        difference = image - energy * weight
        statistics = nk.stats.statistics(energy + mass.size * mass * (weight.conj() * difference).real / norm)
        return statistics.replace(variance=(mass * jnp.abs(difference) ** 2).sum() / norm)

    def _local_values(self, state: Any, machine_pow: float | None) -> tuple[list[Any], jax.Array]:
        """``e_k`` of the samples for k from 0 on, and the weights, with a sum of 1; each ``(chains, length)``."""
        if not isinstance(state, nk.vqs.MCState):
            raise TypeError(f"Lanczos steps take samples: give an MCState, and no {type(state).__name__}")
        power = power_of_samples(state, machine_pow)
        with samples_of_power(state, power):
            values = [jnp.asarray(state.local_estimators(operator)) for operator in self.powers]
            samples = state.samples.reshape(-1, state.hilbert.size)
        ones = jnp.ones_like(values[0])
        if power is None:
            return [ones, *values], ones.real / ones.size
        weights = weights_of_power(log_psi_of(state), state.variables, samples, power, state.chunk_size)
        return [ones, *values], weights.reshape(ones.shape)


def _powers_of_difference(highest: int, centre: float, scale: float) -> np.ndarray:
    """``((H − centre) / scale)^k`` by powers of H: the coefficients, ``(highest + 1, highest + 1)``."""
    polynomials = [np.polynomial.Polynomial([-centre / scale, 1 / scale]) ** k for k in range(highest + 1)]
    return np.array([np.pad(p.coef, (0, highest + 1 - len(p.coef))) for p in polynomials])
