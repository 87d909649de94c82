"""Determinants of many small matrices."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from ferroket.ffi.primitives import make_primitive, per_sample, without_tangents
from ferroket.ffi.small_matrices import lu_factors, lu_program, smallest
from ferroket.linalg.matrices import flattened, square_matrices, unflattened


class SlogdetResult(NamedTuple):
    """Determinants, as :func:`jax.numpy.linalg.slogdet` gives them."""

    sign: jax.Array
    logabsdet: jax.Array


def slogdet(a: jax.Array) -> SlogdetResult:
    """The sign and the logarithm of the modulus of determinants, as :func:`jax.numpy.linalg.slogdet` gives them.

    On CPUs Rust decomposes as many matrices at once as a vector of the processor has numbers; elsewhere JAX does.
    Batches that are sharded stay so. Derivatives exist in both modes; where a matrix is singular and the
    derivative of the logarithm infinite, it is a large number of the right direction.

    Args:
        a: Matrices, ``(..., n, n)``, real or complex. n up to 64 is fast.

    Returns:
        ``(...)`` each: ``sign``, 1 or −1, or for complex matrices a number of modulus 1, and 0 where the determinant
        is 0; and ``logabsdet``, −∞ there.

    Raises:
        ValueError: The last two dimensions differ.
        TypeError: They aren't float32, float64, complex64 or complex128.
    """
    a = square_matrices(a, "determinants")
    n = a.shape[-1]
    if not n:
        return SlogdetResult(jnp.ones(a.shape[:-2], a.dtype), jnp.zeros(a.shape[:-2], a.real.dtype))
    return SlogdetResult(*factorized(flattened(a), n, inverse=False))


def logdet(a: jax.Array) -> jax.Array:
    """The logarithm of determinants, as a complex number whose imaginary part is the phase.

    It is :func:`netket.jax.logdet_cmplx` for matrices as :func:`slogdet` takes them.

    Args:
        a: Matrices, ``(..., n, n)``.

    Returns:
        ``(...)``, complex: −∞ where the determinant is 0.
    """
    return as_logarithm(*slogdet(a))


def as_logarithm(sign: jax.Array, log_modulus: jax.Array) -> jax.Array:
    """The logarithm of numbers of this sign and modulus: complex, with a phase from −π to π."""
    phase = jnp.angle(sign) if jnp.iscomplexobj(sign) else jnp.where(sign < 0, jnp.pi, 0).astype(log_modulus.dtype)
    return jax.lax.complex(log_modulus, phase)


def factorized(x: jax.Array, n: int, *, inverse: bool) -> list[jax.Array]:
    """:data:`slogdet_p` of matrices ``(..., n n)``."""
    results: list[jax.Array] = slogdet_p(x, *lu_program(n, x.dtype, inverse=inverse), n=n, inverse=inverse)
    return results


def _types(x: Any, *_: Any, n: int, inverse: bool) -> list[Any]:
    results = [per_sample(x, (), x.dtype), per_sample(x, (), jnp.finfo(x.dtype).dtype)]
    return [*results, per_sample(x, (n * n,), x.dtype)] if inverse else results


def _call(x: jax.Array, *program: jax.Array, n: int, inverse: bool) -> list[jax.Array]:
    """In Rust, of matrices ``(..., n n)``."""
    batch = x.shape[:-1]
    pivots, diagonals, *inverses = lu_factors(x.reshape(-1, n * n), *program, inverse=inverse)
    is_exchanged = pivots != jnp.arange(n)
    sign, log_modulus = _of_diagonal(diagonals, is_exchanged)
    return [sign.reshape(batch), log_modulus.reshape(batch), *(one.reshape(*batch, n * n) for one in inverses)]


def _of_diagonal(diagonals: jax.Array, is_exchanged: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sign and modulus of determinants, from the diagonals of U ``(..., n)`` and which rows were exchanged."""
    modulus = jnp.abs(diagonals)
    signs = jnp.where(modulus == 0, 0, diagonals / jnp.where(modulus == 0, 1, modulus))
    signs = jnp.where(is_exchanged, -signs, signs)
    return jnp.prod(signs, axis=-1), jnp.log(modulus).sum(axis=-1)


def _reference(x: jax.Array, *_: jax.Array, n: int, inverse: bool) -> list[jax.Array]:
    """In pure JAX."""
    a = unflattened(x, n)
    lu, pivots, order = jax.lax.linalg.lu(a)
    diagonals = jnp.einsum("...ii->...i", lu)
    results = [*_of_diagonal(diagonals, pivots != jnp.arange(n))]
    if not inverse:
        return results
    tiny = smallest(jnp.finfo(x.dtype).dtype)
    lu = lu + jnp.eye(n) * jnp.where(diagonals == 0, tiny, 0).astype(x.dtype)[..., None]
    identity = jnp.broadcast_to(jnp.eye(n, dtype=x.dtype), a.shape)
    settings: dict[str, Any] = {"left_side": True}
    lower = jax.lax.linalg.triangular_solve(lu, identity, lower=True, unit_diagonal=True, **settings)
    columns = jax.lax.linalg.triangular_solve(lu, lower, lower=False, **settings)
    return [*results, flattened(_put_rows(order, columns.swapaxes(-1, -2)))]


@partial(jnp.vectorize, signature="(n),(n,m)->(n,m)")
def _put_rows(order: jax.Array, rows: jax.Array) -> jax.Array:
    """Rows in another order: what there is comes to rows of these numbers."""
    return jnp.zeros_like(rows).at[order].add(rows, unique_indices=True)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, n: int, inverse: bool) -> tuple[list[Any], list[Any]]:
    """By d ln det A = tr A⁻¹ dA and dA⁻ᵀ = −A⁻ᵀ dAᵀ A⁻ᵀ."""
    x, tangent = primals[0], tangents[0]
    sign, log_modulus, inverses = factorized(x, n, inverse=True)
    results = [sign, log_modulus, *([inverses] if inverse else [])]
    tangent = ad.instantiate_zeros(tangent)
    change = (inverses * tangent).sum(axis=-1)
    of_sign = sign * (change - change.real) if jnp.iscomplexobj(x) else without_tangents([sign])[0]
    of_results = [of_sign, change.real]
    if inverse:
        a = unflattened(inverses, n)
        of_results.append(flattened(-a @ unflattened(tangent, n).swapaxes(-1, -2) @ a))
    return results, of_results


slogdet_p = make_primitive(
    "slogdet",
    _types,
    call=_call,
    reference=_reference,
    is_defined=True,
    any_batch=True,
    dims_along_batch=lambda *, inverse, **_: ["", "", "m"] if inverse else ["", ""],
    jvp=_jvp,
)
"""Of matrices ``(..., n n)``, and what :func:`~ferroket.ffi.small_matrices.lu_program` gives.

The sign and the logarithm of the modulus of the determinants, ``(...)``, and with ``inverse`` ``A⁻ᵀ``, ``(..., n n)``.
Where A is singular, the inverse is that with :func:`~ferroket.ffi.small_matrices.smallest` in the place of pivots that
are 0: times such a determinant it is the adjugate.
"""
