"""The primitive ``connected_elements``: one set of JAX rules for all operator families.

On CPUs it is a call of a Rust handler, elsewhere the family's pure JAX function. In both it needs no
communication: a device computes the connected elements of the samples that it holds.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from ferroket.ffi.family import Attribute, Attributes, Family
from ferroket.ffi.primitives import make_primitive, per_sample, without_tangents
from ferroket.ffi.varying import align


def connected_elements(
    family: Family,
    x: jax.Array,
    *tables: jax.Array,
    n_conn: int,
    states: bool = True,
    diagonal_only: bool = False,
    **attributes: Attribute,
) -> tuple[jax.Array, ...]:
    """The connected elements of the samples ``x``.

    Args:
        family: Which operator.
        x: The samples, of shape ``(..., N)``, of any real or complex number type or bool.
        tables: The operator's numbers.
        n_conn: K, the number of connected elements of each sample.
        states: Whether the configurations are wanted beside the matrix elements.
        diagonal_only: Whether the first element alone is wanted, that on the diagonal. Then K is 1 in the results.
        attributes: Static numbers, and tuples of them, for the handler.

    Returns:
        ``(xp, mels)`` of shapes ``(..., K, N)`` and ``(..., K)``; only ``(mels,)`` without ``states``.
        ``xp`` has the dtype of ``x`` and ``mels`` that of the coefficients.
    """
    results = connected_elements_p(
        x, *tables, family=family, n_conn=n_conn, states=states, diagonal_only=diagonal_only, attributes=attributes
    )
    return (*(xp.astype(x.dtype) for xp in results[:-1]), results[-1])


# Types. Under explicit sharding the results are sharded as the samples are, along the batch.


def _result_types(
    x: Any, *tables: Any, family: Family, n_conn: int, states: bool, diagonal_only: bool, **_: Any
) -> list[Any]:
    room = 1 if diagonal_only else n_conn
    xp = [per_sample(x, (room, x.shape[-1]), x.dtype)] if states else []
    return [*xp, per_sample(x, (room,), family.result_dtype(tables))]


# Derivatives. The matrix elements are linear in the coefficients; nothing else is differentiable.


def matrix_element_tangents(
    x: jax.Array, tables: Sequence[Any], tangents: Sequence[Any], *, family: Family, **params: Any
) -> jax.Array | None:
    """The tangents of the padded matrix elements, given those of the tables; None if they are zero."""
    coefficients = [tangents[i] for i in family.places]
    if all(isinstance(tangent, ad.Zero) for tangent in coefficients):
        return None
    moved = list(tables)
    for i, tangent in zip(family.places, coefficients, strict=True):
        moved[i] = ad.instantiate_zeros(tangent)
    (mels,) = connected_elements_p.bind(x, *moved, family=family, **{**params, "states": False})
    return mels


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    results = connected_elements_p.bind(*primals, **params)
    tangents_out = without_tangents(results)
    mels = matrix_element_tangents(primals[0], primals[1:], tangents[1:], **params)
    if mels is not None:
        tangents_out[-1] = mels
    return results, tangents_out


def _transpose(cotangents: Sequence[Any], x: Any, *tables: Any, family: Family, **params: Any) -> list[Any]:
    unknown = [i for i, table in enumerate(tables) if ad.is_undefined_primal(table)]
    cotangent = cotangents[-1]
    if isinstance(cotangent, ad.Zero):
        return [None, *(ad.Zero(t.aval) if ad.is_undefined_primal(t) else None for t in tables)]
    static = {name: params[name] for name in ("n_conn", "diagonal_only")} | {
        "states": False,
        **dict(params["attributes"]),
    }

    def matrix_elements(*coefficients: jax.Array) -> jax.Array:
        # As constants of the program, tables would be mixed up by the XLA of jaxlib 0.8, if read twice.
        barrier = jax.lax.optimization_barrier
        filled = [table if i in family.places else barrier(table) for i, table in enumerate(tables)]
        for i, coefficient in zip(unknown, coefficients, strict=True):
            filled[i] = coefficient
        return family.reference(x, *filled, **static)[-1]

    # A linear function is its own derivative, anywhere.
    zeros = [jnp.zeros(tables[i].aval.shape, tables[i].aval.dtype) for i in unknown]
    _, pullback = jax.vjp(matrix_elements, *align([x, *zeros])[1:])
    of_unknown = dict(zip(unknown, pullback(cotangent), strict=True))
    return [None, *(of_unknown.get(i) for i in range(len(tables)))]


def _reference(*args: jax.Array, family: Family, attributes: Attributes, **params: Any) -> Any:
    return family.reference(*args, **params, **dict[str, Any](attributes))


connected_elements_p = make_primitive(
    "connected_elements",
    _result_types,
    target=lambda family, **_: family.handler(),
    reference=_reference,
    any_batch=True,
    dims_along_batch=lambda states, **_: ["k n", "m"] if states else ["m"],
    jvp=_jvp,
    transpose=_transpose,
)
