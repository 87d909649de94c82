"""The primitive ``pair_sums``: sums of Pfaffians whose pairs have parameters in common, and their derivatives."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from jax.interpreters import ad

from ferroket.ffi import PairArguments
from ferroket.ffi.primitives import call_rust, make_primitive, per_sample, planes
from ferroket.linalg import logpfaffian
from ferroket.models.fermions import occupied_rows


def log_pair_sum(n: jax.Array, arguments: PairArguments, fermions: int) -> jax.Array:
    r"""The logarithm of :math:`\psi = \sum_{gr} w_{gr} \mathrm{Pf}\, F_{gr}[R, R]`, with the modes R that are occupied.

    .. math::

        F_{gr}[a, b] = s_g(a)\, s_g(b) \sum_t c_r[g(a), g(b), t]\, p[k[g(a), g(b), t]]

    for symmetries g and rotations r. Rust inverts F between the occupied modes, which gives the derivatives by all
    parameters p; elsewhere than on CPUs JAX does. Batches that are sharded stay so. A summand that is 0 has its
    derivatives; if ψ is 0 they are large numbers.

    Args:
        n: Which modes are occupied, ``(..., N)`` of bool.
        arguments: ``parameters`` p, ``(K,)``; ``weights`` w, ``(G R,)`` of the same dtype, G-major; ``index`` k,
            integers ``(N, N, T)``, of which those above the diagonal count; ``factors`` c, ``(R, N, N, T)``;
            ``permutations`` g, integers ``(G, N)``; ``signs`` s, ``(G, N)``. It is differentiated by p alone.
        fermions: How many modes are occupied, an even number.

    Returns:
        Complex ``(...)``; −∞ where ψ is 0.
    """
    (log_psi,) = pair_sums_p(n, *arguments, fermions=fermions, rows=False)
    return log_psi


def pair_matrices_of(arguments: PairArguments) -> jax.Array:
    """F of all summands, ``(G R, N, N)``."""
    parameters, _, index, factors, permutations, signs = arguments
    upper = jnp.triu((factors * parameters[index]).sum(axis=-1), k=1).astype(parameters.dtype)
    pairs = upper - upper.swapaxes(-1, -2)
    moved = pairs[:, permutations[:, :, None], permutations[:, None, :]].swapaxes(0, 1)
    both = (signs[:, :, None] * signs[:, None, :]).astype(parameters.dtype)
    return (moved * both[:, None]).reshape(-1, *pairs.shape[1:])


def log_sum(log_psi: jax.Array, weights: jax.Array) -> jax.Array:
    """The logarithm of Σ_d w_d ψ_d, complex ``(...)``, from those of ψ_d, ``(..., D)``."""
    if len(weights) == 1:
        return log_psi[..., 0] + jnp.log(weights[0].astype(log_psi.dtype))
    result: jax.Array = nk.jax.logsumexp_cplx(log_psi, b=weights, axis=-1)
    return result


def _types(n: Any, parameters: Any, weights: Any, *_: Any, fermions: int, rows: bool) -> list[Any]:
    if parameters.dtype != weights.dtype:
        raise TypeError(f"weights have the dtype of the parameters, {parameters.dtype}, but got {weights.dtype}")
    found = [per_sample(n, (), jnp.promote_types(parameters.dtype, np.complex64))]
    return [*found, per_sample(n, parameters.shape, parameters.dtype)] if rows else found


def _call(n: jax.Array, *args: jax.Array, fermions: int, rows: bool) -> list[jax.Array]:
    """In Rust."""
    parameters, weights, index, factors, permutations, signs = args
    batch, count = n.shape[:-1], int(np.prod(n.shape[:-1]))
    results = [jax.ShapeDtypeStruct((count,), jnp.promote_types(parameters.dtype, np.complex64))]
    results += [jax.ShapeDtypeStruct((count, *parameters.shape), parameters.dtype)] if rows else []
    found = call_rust(
        "ferroket_pair_sums",
        results,
        n.reshape(count, n.shape[-1]),
        planes(parameters),
        planes(weights),
        index.astype(np.int32),
        factors.astype(np.float64),
        permutations.astype(np.int32),
        signs.astype(np.float64),
        fermions=fermions,
        rows=rows,
    )
    return [result.reshape(*batch, *result.shape[1:]) for result in found]


def _reference(n: jax.Array, *args: jax.Array, fermions: int, rows: bool) -> list[jax.Array]:
    """In pure JAX."""

    def log_psi(parameters: jax.Array, n: jax.Array) -> jax.Array:
        arguments = PairArguments(parameters, *args[1:])
        occupied = occupied_rows(pair_matrices_of(arguments), n[..., None, :], fermions)
        occupied = occupied_rows(occupied.swapaxes(-1, -2), n[..., None, :], fermions)
        return jnp.where((n != 0).sum(axis=-1) == fermions, log_sum(logpfaffian(occupied), args[1]), -jnp.inf)

    found = [log_psi(args[0], n)]
    if not rows:
        return found
    is_complex = jnp.iscomplexobj(args[0])

    def of_one(parameters: jax.Array, n: jax.Array) -> jax.Array:
        one = log_psi(parameters, n)
        return one if is_complex else one.real

    derivative = jnp.vectorize(jax.grad(of_one, holomorphic=is_complex), signature="(k),(n)->(k)")
    return [*found, derivative(args[0], n)]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, fermions: int, rows: bool) -> tuple[list[Any], list[Any]]:
    n, parameters, *others = primals
    tangent = ad.instantiate_zeros(tangents[1])
    if rows:

        def of_parameters(parameters: jax.Array) -> list[jax.Array]:
            return _reference(n, parameters, *others, fermions=fermions, rows=True)

        return jax.jvp(of_parameters, [parameters], [tangent])
    log_psi, derivatives = pair_sums_p(*primals, fermions=fermions, rows=True)
    return [log_psi], [(derivatives @ tangent).astype(log_psi.dtype)]


pair_sums_p = make_primitive(
    "pair_sums",
    _types,
    call=_call,
    reference=_reference,
    any_batch=True,
    dims_along_batch=lambda *, rows, **_: ["", "k"] if rows else [""],
    jvp=_jvp,
)
"""Of ``n (..., N)``, uint8, and :class:`~ferroket.ffi.PairArguments`: ``(...)``.

With ``rows=True`` it also gives the derivatives by the parameters, ``(..., K)``.
"""
