"""The primitive ``connected_elements``: one set of JAX rules for all operator families.

On CPUs it is a call of a Rust handler, elsewhere the family's pure JAX function. In both it needs no
communication: a device computes the connected elements of the samples that it holds.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.dispatch import prim_requires_devices_during_lowering
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from ferroket.ffi.targets import TARGETS
from ferroket.ffi.varying import align

Attributes = tuple[tuple[str, float], ...]


@dataclass(frozen=True, repr=False)
class Family:
    """An operator family as the primitive sees it.

    Args:
        target: The name of the Rust handler. It takes the samples and the tables, the attributes and
            the boolean attribute ``states``, and gives ``xp`` (if ``states``) and ``mels``.
        reference: The same in pure JAX: ``reference(x, *tables, n_conn=K, states=bool, **attributes)``
            gives ``(xp, mels)``, or ``(mels,)`` without ``states``. It runs where there are no CPUs, and
            its transpose is the transpose of the primitive.
        coefficients: Which of the tables are coefficients: the matrix elements have their dtype, and are
            a linear function of them together. The other tables hold integers.
    """

    target: str
    reference: Callable[..., Sequence[jax.Array]]
    coefficients: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise ValueError(f"the compiled half has no handler {self.target!r}, but {sorted(TARGETS)}")

    def __repr__(self) -> str:
        return self.target


def connected_elements(
    family: Family,
    x: jax.Array,
    *tables: jax.Array,
    n_conn: int,
    states: bool = True,
    filler: float,
    **attributes: float,
) -> tuple[jax.Array, ...]:
    """The connected elements of the samples ``x``.

    Args:
        family: Which operator.
        x: The samples, of shape ``(..., N)``, of any real or complex number type or bool.
        tables: The operator's numbers.
        n_conn: K, the number of connected elements of each sample.
        states: Whether the configurations are wanted beside the matrix elements.
        filler: A value that each site can take. Where the batch doesn't divide by the number of
            devices, XLA pads the shards with samples that nobody reads, and they are filled with it.
        attributes: Static numbers for the handler.

    Returns:
        ``(xp, mels)`` of shapes ``(..., K, N)`` and ``(..., K)``; only ``(mels,)`` without ``states``.
        ``xp`` has the dtype of ``x`` and ``mels`` that of the coefficients.
    """
    # Not a number for XLA's handlers, and 0 and 1 to everyone else.
    samples = x.astype(jnp.uint8) if x.dtype == bool else x
    attrs = tuple(sorted((name, float(value)) for name, value in attributes.items()))
    results: list[jax.Array] = connected_elements_p.bind(
        *align([samples, *tables]), family=family, n_conn=n_conn, states=states, filler=float(filler), attributes=attrs
    )
    return (*(xp.astype(x.dtype) for xp in results[:-1]), results[-1])


connected_elements_p = Primitive("connected_elements")
connected_elements_p.multiple_results = True


@functools.partial(jax.jit, static_argnames=("family", "n_conn", "states", "filler", "attributes"))
def _compiled(*args: jax.Array, **params: Any) -> list[jax.Array]:
    results: list[jax.Array] = connected_elements_p.bind(*args, **params)
    return results


connected_elements_p.def_impl(_compiled)


# Types. Under explicit sharding the results are sharded as the samples are, along the batch.


def _result_types(x: Any, *tables: Any, family: Family, n_conn: int, states: bool, **_: Any) -> list[Any]:
    *batch, sites = x.shape
    batch_spec = tuple(x.sharding.spec)[: len(batch)]
    batch_spec += (None,) * (len(batch) - len(batch_spec))

    def result(dims: tuple[int, ...], dtype: Any) -> Any:
        sharding = NamedSharding(x.sharding.mesh, PartitionSpec(*batch_spec, *(None,) * len(dims)))
        return x.update(shape=(*batch, *dims), dtype=dtype, sharding=sharding, weak_type=False)

    xp = [result((n_conn, sites), x.dtype)] if states else []
    return [*xp, result((n_conn,), tables[family.coefficients[0]].dtype)]


connected_elements_p.def_abstract_eval(_result_types)


# Derivatives. The matrix elements are linear in the coefficients; nothing else is differentiable.


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, family: Family, **params: Any) -> tuple[Any, Any]:
    x, *tables = primals
    results = connected_elements_p.bind(x, *tables, family=family, **params)
    tangents_out = [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]
    coefficients = [tangents[1 + i] for i in family.coefficients]
    if not all(isinstance(tangent, ad.Zero) for tangent in coefficients):
        for i, tangent in zip(family.coefficients, coefficients, strict=True):
            tables[i] = ad.instantiate_zeros(tangent)
        (tangents_out[-1],) = connected_elements_p.bind(x, *tables, family=family, **{**params, "states": False})
    return results, tangents_out


def _transpose(cotangents: Sequence[Any], x: Any, *tables: Any, family: Family, **params: Any) -> list[Any]:
    unknown = [i for i, table in enumerate(tables) if ad.is_undefined_primal(table)]
    cotangent = cotangents[-1]
    if isinstance(cotangent, ad.Zero):
        return [None, *(ad.Zero(t.aval) if ad.is_undefined_primal(t) else None for t in tables)]
    static = {"n_conn": params["n_conn"], "states": False, **dict(params["attributes"])}

    def matrix_elements(*coefficients: jax.Array) -> jax.Array:
        filled = list(tables)
        for i, coefficient in zip(unknown, coefficients, strict=True):
            filled[i] = coefficient
        return family.reference(x, *filled, **static)[-1]

    # A linear function is its own derivative, anywhere.
    zeros = [jnp.zeros(tables[i].aval.shape, tables[i].aval.dtype) for i in unknown]
    _, pullback = jax.vjp(matrix_elements, *align([x, *zeros])[1:])
    of_unknown = dict(zip(unknown, pullback(cotangent), strict=True))
    return [None, *(of_unknown.get(i) for i in range(len(tables)))]


ad.primitive_jvps[connected_elements_p] = _jvp
ad.primitive_transposes[connected_elements_p] = _transpose


# Batching. A batch of samples is one more leading dimension; a batch of operators is a loop.


def _batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[list[Any], list[int]]:
    front = [arg if dim is None else jnp.moveaxis(arg, dim, 0) for arg, dim in zip(args, dims, strict=True)]
    if all(dim is None for dim in dims[1:]):
        results = connected_elements_p.bind(*front, **params)
    else:
        batched = {i: arg for i, (arg, dim) in enumerate(zip(front, dims, strict=True)) if dim is not None}

        def one(mapped: dict[int, jax.Array]) -> list[jax.Array]:
            unbatched = [mapped.get(i, arg) for i, arg in enumerate(front)]
            results: list[jax.Array] = connected_elements_p.bind(*unbatched, **params)
            return results

        results = jax.lax.map(one, batched)
    return results, [0] * len(results)


batching.primitive_batchers[connected_elements_p] = _batch


# Platforms. The FFI call alone would make XLA gather its operands: it is partitioned along the batch.


def _call(*args: jax.Array, family: Family, n_conn: int, states: bool, attributes: Attributes) -> list[jax.Array]:
    """The call of the Rust handler on the samples of one device."""
    x, *tables = args
    *batch, sites = x.shape
    xp = [jax.ShapeDtypeStruct((*batch, n_conn, sites), x.dtype)] if states else []
    mels = jax.ShapeDtypeStruct((*batch, n_conn), tables[family.coefficients[0]].dtype)
    call = jax.ffi.ffi_call(family.target, [*xp, mels])
    return list(call(x, *tables, states=states, **{name: np.float64(value) for name, value in attributes}))


def _fill_padding(x: jax.Array, batch: tuple[int, ...], spec: tuple[Any, ...], mesh: Any, filler: float) -> jax.Array:
    """On one device: the shard ``x`` with ``filler`` in the samples that lie beyond the end of the batch."""
    for dim, (size, names) in enumerate(zip(batch, spec, strict=True)):
        axes = names if isinstance(names, tuple) else (names,) * (names is not None)
        if size < x.shape[dim] * math.prod(mesh.shape[axis] for axis in axes):
            index = jax.lax.axis_index(axes) * x.shape[dim] + jax.lax.broadcasted_iota(jnp.int32, x.shape, dim)
            x = jnp.where(index < size, x, jnp.asarray(filler, x.dtype))
    return x


def _mesh_and_spec(mesh: Any, x: Any) -> tuple[Any, tuple[Any, ...]]:
    """The mesh, and the mesh axes of each dimension of ``x``.

    XLA doesn't always know the mesh, for one if sharded arrays are constants of the program. Then it gives
    the numbers of the devices that hold the tiles of ``x``, which are as good as a mesh.
    """
    if isinstance(x.sharding, NamedSharding):
        spec = tuple(x.sharding.spec)
        return x.sharding.mesh, spec + (None,) * (x.ndim - len(spec))
    tiles = x.sharding._to_xla_hlo_sharding(x.ndim)
    devices = np.array(x.sharding._device_assignment)
    if tiles.is_replicated():
        return jax.sharding.Mesh(devices, ("replicas",)), (None,) * x.ndim
    dims = tiles.tile_assignment_dimensions()
    names = tuple(f"tiles{dim}" for dim in range(len(dims)))
    return jax.sharding.Mesh(devices[tiles.tile_assignment_devices()].reshape(dims), names), names[: x.ndim]


@functools.lru_cache(maxsize=256)
def _partitioned(filler: float, tables: tuple[int, ...], **params: Any) -> Callable[..., list[jax.Array]]:
    """:func:`_call` for samples that are sharded along the batch; ``tables`` are the ranks of the tables."""
    call = functools.partial(_call, **params)

    # custom_partitioning looks at the signature, so it has to be that of a plain function.
    @custom_partitioning
    def partitioned(x: jax.Array, *tables: jax.Array) -> list[jax.Array]:
        return call(x, *tables)

    def partition(mesh: Any, arg_shapes: Any, _: Any) -> tuple[Any, ...]:
        x, *rest = jax.tree.leaves(arg_shapes)
        batch = x.shape[:-1]
        mesh, spec = _mesh_and_spec(mesh, x)
        spec = spec[: len(batch)]

        def sharding(*last: None) -> NamedSharding:
            return NamedSharding(mesh, PartitionSpec(*spec, *last))

        replicated = NamedSharding(mesh, PartitionSpec())
        results = [sharding(None, None), sharding(None)] if params["states"] else [sharding(None)]

        def on_device(x: jax.Array, *tables: jax.Array) -> list[jax.Array]:
            return call(_fill_padding(x, batch, spec, mesh, filler), *tables)

        return mesh, on_device, results, (sharding(None), *(replicated for _ in rest))

    operands = ["... n", *(" ".join(f"t{i}d{d}" for d in range(rank)) for i, rank in enumerate(tables))]
    results = ["... k n", "... m"] if params["states"] else ["... m"]
    partitioned.def_partition(partition=partition, sharding_rule=f"{', '.join(operands)} -> {', '.join(results)}")
    return partitioned


def _lower_cpu(ctx: Any, *args: Any, **params: Any) -> Any:
    function = _partitioned(tables=tuple(aval.ndim for aval in ctx.avals_in[1:]), **params)
    return mlir.lower_fun(function, multiple_results=True)(ctx, *args)


def _reference(*args: jax.Array, family: Family, n_conn: int, states: bool, attributes: Attributes, **_: Any) -> Any:
    return family.reference(*args, n_conn=n_conn, states=states, **dict(attributes))


# Partitioning asks for the devices, which JAX tells only to the primitives on this list.
prim_requires_devices_during_lowering.add(connected_elements_p)
mlir.register_lowering(connected_elements_p, _lower_cpu, platform="cpu")
mlir.register_lowering(connected_elements_p, mlir.lower_fun(_reference, multiple_results=True))
