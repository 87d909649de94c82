"""Pfaffians of many small matrices, which neither NumPy nor JAX has."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from ferroket.ffi.primitives import make_primitive, per_sample, without_tangents
from ferroket.ffi.small_matrices import pfaffian_factors, pfaffian_program
from ferroket.linalg.determinants import as_logarithm, factorized
from ferroket.linalg.matrices import flattened, square_matrices, unflattened


def slogpfaffian(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    r"""The sign and the logarithm of the modulus of Pfaffians, :math:`\mathrm{Pf}(A)^2 = \det A`.

    They are computed as B. N. Parlett and J. K. Reid, BIT 10, 386 (1970), have it, with pivots: M. Wimmer, ACM Trans.
    Math. Softw. 38, 30 (2012). On CPUs Rust takes as many matrices at once as a vector of the processor has
    numbers; elsewhere JAX does it. Batches that are sharded stay so. Derivatives exist in both modes,
    as for :func:`slogdet`.

    Args:
        a: Skew-symmetric matrices, ``(..., n, n)`` with an even n, real or complex. Only what is below the diagonal is
            read; derivatives are those of matrices that stay skew-symmetric. n up to 64 is fast.

    Returns:
        ``(...)`` each: the sign, 1 or −1, or for complex matrices a number of modulus 1, and 0 where the Pfaffian is
        0; and the logarithm, −∞ there.

    Raises:
        ValueError: The last two dimensions differ, or are odd: such Pfaffians are 0.
        TypeError: They aren't float32, float64, complex64 or complex128.
    """
    a = square_matrices(a, "Pfaffians")
    n = a.shape[-1]
    if n % 2:
        raise ValueError(f"Pfaffians are those of matrices with an even number of rows, but these have {n}")
    if not n:
        return jnp.ones(a.shape[:-2], a.dtype), jnp.zeros(a.shape[:-2], a.real.dtype)
    sign, log_modulus = slogpfaffian_p(flattened(a), n=n)
    return sign, log_modulus


def logpfaffian(a: jax.Array) -> jax.Array:
    """The logarithm of Pfaffians, as a complex number whose imaginary part is the phase.

    Args:
        a: Skew-symmetric matrices, ``(..., n, n)``, as for :func:`slogpfaffian`.

    Returns:
        ``(...)``, complex: −∞ where the Pfaffian is 0.
    """
    return as_logarithm(*slogpfaffian(a))


def _factor_types(x: Any, *_: Any, n: int) -> list[Any]:
    return [per_sample(x, (n // 2,), x.dtype)]


def _call(x: jax.Array, *program: jax.Array, n: int) -> list[jax.Array]:
    """In Rust, of matrices ``(..., n n)``."""
    return [pfaffian_factors(x.reshape(-1, n * n), *program).reshape(*x.shape[:-1], n // 2)]


def _factors(x: jax.Array, *_: jax.Array, n: int) -> list[jax.Array]:
    """In pure JAX: two rows and columns at a time are brought to the end, and left out."""
    below = jnp.tril(unflattened(x, n), -1)
    a = below - below.swapaxes(-1, -2)
    numbers = jnp.arange(n)
    factors = []
    for first in range(0, n, 2):
        second = first + 1
        size = jnp.abs(a[..., first].real) + jnp.abs(a[..., first].imag)
        pivot = jnp.argmax(jnp.where(numbers >= second, size, -1), axis=-1)[..., None]
        order = jnp.where(numbers == second, pivot, jnp.where(numbers == pivot, second, numbers))
        a = jnp.take_along_axis(jnp.take_along_axis(a, order[..., :, None], axis=-2), order[..., None, :], axis=-1)
        factor = a[..., first, second]
        factors.append(jnp.where(pivot[..., 0] == second, factor, -factor))
        inverse = jnp.where(factor == 0, 0, 1 / jnp.where(factor == 0, 1, factor))
        tau = a[..., first, :] * inverse[..., None]
        outer = tau[..., :, None] * a[..., second, None, :]
        a = a + outer.swapaxes(-1, -2) - outer
    return [jnp.stack(factors, axis=-1)]


pfaffian_factors_p = make_primitive(
    "pfaffian_factors",
    _factor_types,
    call=_call,
    reference=_factors,
    any_batch=True,
    dims_along_batch=lambda **_: ["m"],
)
"""Of skew-symmetric matrices ``(..., n n)``, and what :func:`~ferroket.ffi.small_matrices.pfaffian_program` gives.

Numbers ``(..., n / 2)``, whose product is the Pfaffian.
"""


def _types(x: Any, *, n: int) -> list[Any]:
    return [per_sample(x, (), x.dtype), per_sample(x, (), jnp.finfo(x.dtype).dtype)]


def _definition(x: jax.Array, *, n: int) -> list[jax.Array]:
    (factors,) = pfaffian_factors_p(x, *pfaffian_program(n, x.dtype), n=n)
    modulus = jnp.abs(factors)
    signs = jnp.where(modulus == 0, 0, factors / jnp.where(modulus == 0, 1, modulus))
    return [jnp.prod(signs, axis=-1), jnp.log(modulus).sum(axis=-1)]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, n: int) -> tuple[list[Any], list[Any]]:
    """By d ln Pf A = tr A⁻¹ dA / 2."""
    (x,), (tangent,) = primals, tangents
    sign, log_modulus = slogpfaffian_p.bind(x, n=n)
    *_, inverses = factorized(x, n, inverse=True)
    change = (inverses * ad.instantiate_zeros(tangent)).sum(axis=-1) / 2
    of_sign = sign * (change - change.real) if jnp.iscomplexobj(x) else without_tangents([sign])[0]
    return [sign, log_modulus], [of_sign, change.real]


slogpfaffian_p = make_primitive(
    "slogpfaffian",
    _types,
    reference=_definition,
    any_batch=True,
    dims_along_batch=lambda **_: ["", ""],
    jvp=_jvp,
)
"""Of skew-symmetric matrices ``(..., n n)``: sign and logarithm of the modulus of the Pfaffian, ``(...)``."""
