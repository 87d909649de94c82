"""Restricted Boltzmann machines, in whichever way their parameters are given.

See ``rust/kernels/src/rbm.rs`` for the formula.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ferroket.local_energy.family import of_amplitudes, planes
from ferroket.operator.compiled import Terms

_UNITS = 16
"""The kernel takes hidden units in multiples of this."""


@dataclass(frozen=True)
class Machine:
    """ln ψ(σ) = Σ_i a_i(σ_i) + Σ_j ln cosh θ_j(σ), in which each θ_j is a sum of functions of single sites.

    Args:
        theta: θ of each sample, of shape ``(Ns, M)``.
        delta: How much θ changes if a site goes from its first to its second local state, ``(N, M)``.
        bias: How much Σ a_i changes, ``(N,)``.
    """

    theta: jax.Array
    delta: jax.Array
    bias: jax.Array

    def tables(self) -> list[jax.Array]:
        """What the kernel takes."""
        more = -self.theta.shape[-1] % _UNITS
        theta, delta = (jnp.pad(table, ((0, 0), (0, more))) for table in (self.theta, self.delta))
        dtype = jnp.result_type(theta, delta, self.bias)
        numbers = [theta, _tanh(theta), delta, jnp.cosh(delta), jnp.sinh(delta), self.bias]
        return [planes(number.astype(dtype)) for number in numbers]


def _tanh(z: jax.Array) -> jax.Array:
    """tanh(x + iy) = (t + i (1 - t²) sin y cos y) / (cos² y + t² sin² y) with t = tanh x: half of XLA's time."""
    if not jnp.issubdtype(z.dtype, jnp.complexfloating):
        return jnp.tanh(z)
    t, s, c = jnp.tanh(z.real), jnp.sin(z.imag), jnp.cos(z.imag)
    return jax.lax.complex(t, (1 - t * t) * s * c) / (c * c + t * t * s * s)


def local_values(form: Terms, samples: jax.Array, machine: Machine, phase: Machine | None = None) -> jax.Array:
    """The local values of samples ``(Ns, N)``.

    Args:
        form: The operator.
        samples: They may not be sharded.
        machine: ln ψ, or its real part.
        phase: The imaginary part of ln ψ: a machine with real numbers, as is the other one, and with as many hidden
            units.
    """
    tables = machine.tables()
    if phase is not None:
        tables = [jnp.concatenate(both) for both in zip(tables, phase.tables(), strict=True)]
    return of_amplitudes("rbm", tables, form, samples, pairs=phase is not None)
