"""The primitives ``log_determinants`` and ``determinant_ratios``: determinants of fermions inside of networks."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad

from ferroket.ffi.primitives import call_rust, make_primitive, on_one_device, planes


def log_determinants(n: jax.Array, orbitals: Sequence[jax.Array]) -> jax.Array:
    """The logarithm of Π_s det M_s[R_s], with the modes R_s of sector s that are occupied, in order.

    It can be differentiated by the orbitals as often as one likes, and evaluated for batches of anything.

    Args:
        n: Whether each mode is occupied, ``(Ns, N)`` of bool or numbers. It may not be sharded, except by
            :func:`jax.shard_map`.
        orbitals: M for each sector, ``(L, f)`` of L modes and f fermions, all of one dtype, real or complex.

    Returns:
        The logarithms, complex ``(Ns,)``: the sum of those of the sectors. −∞ where a sector has another number of
        fermions.
    """
    alone = [sector[None] for sector in orbitals]
    (log_psi,) = log_determinants_p((n != 0)[:, None], *alone, rows=False)
    return log_psi[:, 0]


def _types(n: Any, *orbitals: Any, rows: bool) -> list[Any]:
    samples, determinants, _ = n.shape
    found = [on_one_device(n, (samples, determinants), _complex(orbitals))]
    if rows:
        found += [on_one_device(n, (samples, *sector.shape), sector.dtype) for sector in orbitals]
    return found


def _complex(orbitals: Sequence[Any]) -> Any:
    """The dtype of the logarithms."""
    return jnp.promote_types(orbitals[0].dtype, np.complex64)


def _call(n: jax.Array, *orbitals: jax.Array, rows: bool) -> list[jax.Array]:
    samples, determinants, _ = n.shape
    numbers, fermions = _tables(orbitals)
    results = [jax.ShapeDtypeStruct((samples, determinants), _complex(orbitals))]
    if rows:
        results.append(jax.ShapeDtypeStruct((samples, determinants, numbers.shape[-1]), orbitals[0].dtype))
    log_psi, *of_all = call_rust("ferroket_determinants", results, n, numbers, fermions=fermions, holes=-1, rows=rows)
    ends = pairwise(accumulate((sector[0].size for sector in orbitals), initial=0))
    return [
        log_psi,
        *(
            jax.lax.slice_in_dim(all_rows, start, end, axis=2).reshape(samples, *sector.shape)
            for all_rows in of_all
            for sector, (start, end) in zip(orbitals, ends, strict=True)
        ),
    ]


def _tables(orbitals: Sequence[jax.Array]) -> tuple[jax.Array, tuple[int, ...]]:
    """The orbitals as the handlers take them, and how many fermions the sectors have."""
    numbers = jnp.concatenate([sector.reshape(len(sector), -1) for sector in orbitals], axis=1)
    return planes(numbers), tuple(sector.shape[-1] for sector in orbitals)


def _reference(n: jax.Array, *orbitals: jax.Array, rows: bool) -> list[jax.Array]:
    """In pure JAX, where there are no CPUs."""
    log_psi: Any = 0
    derivatives = []
    first = 0
    for sector in orbitals:
        modes, fermions = sector.shape[1:]
        is_empty = n[..., first : first + modes] == 0
        first += modes
        occupied = jnp.argsort(is_empty, axis=-1, stable=True)[..., :fermions]
        matrix = jnp.take_along_axis(sector[None], occupied[..., None], axis=2)
        sign, log_modulus = jnp.linalg.slogdet(matrix)
        fits = (~is_empty).sum(axis=-1) == fermions
        log_modulus = jnp.where(fits, log_modulus, -jnp.inf)
        log_psi += jax.lax.complex(log_modulus, jnp.angle(sign).astype(log_modulus.dtype))
        if rows:
            inverse = jnp.where(fits[..., None, None], jnp.linalg.inv(matrix).swapaxes(-1, -2), 0)
            zeros = jnp.zeros((len(n), *sector.shape), sector.dtype)
            places = jnp.broadcast_to(occupied[..., None], inverse.shape)
            derivatives.append(jnp.put_along_axis(zeros, places, inverse, axis=2, inplace=False))
    return [log_psi, *derivatives]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, rows: bool) -> tuple[list[Any], list[Any]]:
    """By d ln det A = tr A⁻¹ dA, and dA⁻ᵀ = −A⁻ᵀ dAᵀ A⁻ᵀ."""
    log_psi, *derivatives = log_determinants_p.bind(*primals, rows=True)
    of_log_psi = jnp.zeros_like(log_psi)
    of_derivatives = []
    for of_sector, tangent in zip(derivatives, tangents[1:], strict=True):
        if isinstance(tangent, ad.Zero):
            of_derivatives.append(jnp.zeros_like(of_sector))
            continue
        of_log_psi += jnp.einsum("sdlf,dlf->sd", of_sector, tangent)
        change = jnp.einsum("dlf,sdlg->sdfg", tangent, of_sector)
        of_derivatives.append(-jnp.einsum("sdlf,sdfg->sdlg", of_sector, change))
    if rows:
        return [log_psi, *derivatives], [of_log_psi, *of_derivatives]
    return [log_psi], [of_log_psi]


def _batch(args: Sequence[Any], dims: Sequence[int | None], *, rows: bool) -> tuple[list[Any], list[int]]:
    """A batch of configurations alone are more of them; any other are more determinants."""
    n, *orbitals = args
    n_dim, *of_orbitals = dims
    of_all = all(dim is None for dim in of_orbitals)
    size = next(arg.shape[dim] for arg, dim in zip(args, dims, strict=True) if dim is not None)
    axis = 0 if of_all else 1

    def widened(array: jax.Array, dim: int | None, axis: int) -> jax.Array:
        """With the batch there."""
        if dim is not None:
            return jnp.moveaxis(array, dim, axis)
        shape = (*array.shape[:axis], size, *array.shape[axis:])
        return jax.lax.broadcast_in_dim(array, shape, [place + (place >= axis) for place in range(array.ndim)])

    def joined(array: jax.Array, axis: int) -> jax.Array:
        return jax.lax.collapse(array, axis, axis + 2)

    n = joined(widened(n, n_dim, axis), axis)
    if not of_all:
        orbitals = [joined(widened(sector, dim, 0), 0) for sector, dim in zip(orbitals, of_orbitals, strict=True)]
    results = log_determinants_p.bind(n, *orbitals, rows=rows)
    split = [
        result.reshape(*result.shape[:axis], size, result.shape[axis] // size, *result.shape[axis + 1 :])
        for result in results
    ]
    return split, [axis] * len(split)


log_determinants_p = make_primitive(
    "log_determinants", _types, call=_call, reference=_reference, batch=_batch, jvp=_jvp
)
"""Of ``n (Ns, D, N)``, uint8, and ``orbitals (D, L, f)`` of each sector: ``(Ns, D)``.

With ``rows=True`` it also gives the derivatives by the orbitals, ``(Ns, D, L, f)`` of each sector.
"""


def determinant_ratios(n: jax.Array, samples: jax.Array, sample: jax.Array, orbitals: Sequence[jax.Array]) -> jax.Array:
    """The logarithm of ψ(n) / ψ(σ) for configurations n that differ on a few sites from samples σ, on CPUs.

    ψ = Π_s det M_s[R_s], as in :func:`log_determinants`.

    Args:
        n: Whether each mode is occupied, ``(C, N)`` of bool or numbers. They may not be sharded, except by
            :func:`jax.shard_map`.
        samples: The same of the samples, ``(Ns, N)``.
        sample: From which sample each configuration differs, int32 ``(C,)``. Neighbours with the same one are fast.
        orbitals: As for :func:`log_determinants`.

    Returns:
        Complex ``(C,)``, up to multiples of 2πi: −∞ where ψ(n) is 0, NaN where ψ(σ) is.

    Raises:
        jax.errors.JaxRuntimeError: A sample has another number of fermions in a sector.
    """
    numbers, fermions = _tables([sector[None] for sector in orbitals])
    args = (n != 0, samples != 0, sample.astype(np.int32), numbers)
    (log_ratios,) = determinant_ratios_p(*args, fermions=fermions, holes=-1)
    return log_ratios


def _ratio_types(n: Any, *args: Any, **_: Any) -> list[Any]:
    return [on_one_device(n, n.shape[:1], _complex(args[-1:]))]


determinant_ratios_p = make_primitive("determinant_ratios", _ratio_types, target="ferroket_determinant_ratios")
