"""How the primitives of this package are made: all rules of one from what it computes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from ferroket._compat.jax import lower_with_devices
from ferroket.ffi.family import for_handler, static
from ferroket.ffi.partitioning import along_batch, unsharded
from ferroket.ffi.varying import align

Function = Callable[..., Sequence[Any]]
"""Of arguments, and of a primitive's parameters by name; it gives the results."""

DEFINITIONS: dict[Primitive, Function] = {}
"""What primitives stand for, in pure JAX: it may be read in their place."""

_SHARDED = (
    "the samples are sharded, but the compact form is about all samples of one device: call it inside of "
    "jax.shard_map, where each device has its own samples, capacity and cursor, or take the padded form"
)


class OwnPrimitive(Primitive):
    """A primitive of this package. It is called as a function is."""

    multiple_results = True

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Its results for arguments that needn't vary over the same mesh axes.

        Args:
            args: The arguments. A bool is no number to the handlers, and 0 or 1 to everyone else.
            params: The parameters; a dictionary is one of attributes for the handler.
        """
        hashable = {name: static(value) if isinstance(value, dict) else value for name, value in params.items()}
        return self.bind(*align([as_numbers(arg) for arg in args]), **hashable)


def make_primitive(
    name: str,
    types: Function,
    *,
    target: str | Callable[..., str] = "",
    call: Function | None = None,
    aliases: dict[int, int] | None = None,
    reference: Function | None = None,
    is_defined: bool = False,
    any_batch: bool = False,
    dims_along_batch: Callable[..., Sequence[str]] | None = None,
    refuses_shards: bool = False,
    batch: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    transpose: Callable[..., Any] | None = None,
) -> OwnPrimitive:
    """A primitive that is a call of Rust on CPUs and pure JAX elsewhere, or the same pure JAX everywhere.

    Args:
        name: Its name.
        types: The types of the results, from those of the arguments.
        target: The handler that takes the arguments and gives the results: its name, or what makes it of the
            parameters. See :func:`call_rust` for its attributes.
        call: What calls Rust, where it isn't that alone.
        aliases: Which arguments, by their place, become which results of the handler.
        reference: The results in pure JAX.
        is_defined: Whether that may be read in its place also where there is a call of Rust, see :data:`DEFINITIONS`.
        any_batch: Whether it takes samples ``(..., N)``, see :func:`batched`.
        dims_along_batch: The dimensions of each result behind those of the batch, from the parameters, if CPUs may have
            samples that are sharded: see :func:`~ferroket.ffi.partitioning.along_batch`.
        refuses_shards: Whether there is an error for such samples, also where XLA alone knows that they are.
        batch: Its batching rule, if it isn't that of :func:`batched`.
        jvp: Its derivative. If it is pure JAX alone, it has that of the reference.
        transpose: Its transpose.
    """
    primitive = OwnPrimitive(name)
    primitive.def_abstract_eval(types)

    @functools.lru_cache(maxsize=256)
    def compiled(**params: Any) -> Callable[..., Any]:
        return jax.jit(functools.partial(primitive.bind, **params))

    primitive.def_impl(lambda *args, **params: compiled(**params)(*args))
    if target:
        call = functools.partial(_call, target, types, aliases)
    if reference is not None and (call is None or is_defined):
        DEFINITIONS[primitive] = reference
        jvp = jvp or functools.partial(_jvp, reference)
    batching.primitive_batchers[primitive] = batch or batched(primitive, any_batch=any_batch)
    if jvp:
        ad.primitive_jvps[primitive] = jvp
    if transpose:
        ad.primitive_transposes[primitive] = transpose
    if call and dims_along_batch:
        call = along_batch(name, call, dims_along_batch)
    if dims_along_batch or refuses_shards:
        lower_with_devices(primitive)
    for function, platform in ((call, "cpu"), (reference, None)):
        if function:
            body = functools.partial(_refusing, function) if refuses_shards else function
            mlir.register_lowering(primitive, mlir.lower_fun(body, multiple_results=True), platform=platform)
    return primitive


def call_rust(
    target: str,
    results: Sequence[Any],
    *args: jax.Array,
    aliases: dict[int, int] | None = None,
    attributes: Sequence[tuple[str, Any]] = (),
    **params: Any,
) -> list[jax.Array]:
    """Calls a handler that gives results of these types.

    It has the attributes, and those of the parameters that can be some: numbers, strings and tuples of numbers.
    """
    more = [(name, value) for name, value in params.items() if isinstance(value, bool | int | float | str | tuple)]
    types = [jax.ShapeDtypeStruct(result.shape, result.dtype) for result in results]
    call = jax.ffi.ffi_call(target, types, input_output_aliases=aliases)
    return list(call(*args, **for_handler((*attributes, *more))))


def _call(
    target: str | Callable[..., str], types: Function, aliases: dict[int, int] | None, *args: jax.Array, **params: Any
) -> list[jax.Array]:
    name = target if isinstance(target, str) else target(**params)
    return call_rust(name, types(*map(jax.typeof, args), **params), *args, aliases=aliases, **params)


def _refusing(function: Function, x: jax.Array, *args: jax.Array, **params: Any) -> Sequence[jax.Array]:
    return function(unsharded(x, _SHARDED), *args, **params)


def _jvp(reference: Function, primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    places = [place for place, tangent in enumerate(tangents) if not isinstance(tangent, ad.Zero)]

    def of_places(*values: jax.Array) -> Sequence[jax.Array]:
        args = list(primals)
        for place, value in zip(places, values, strict=True):
            args[place] = value
        return reference(*args, **params)

    return jax.jvp(of_places, [primals[place] for place in places], [tangents[place] for place in places])


def without_tangents(results: Sequence[Any]) -> list[Any]:
    """The tangents of results that don't depend on what is differentiated by."""
    return [ad.Zero(jax.typeof(result).to_tangent_aval()) for result in results]


def as_numbers(x: jax.Array) -> jax.Array:
    """Samples as the handlers take them: a bool is no number there, and 0 or 1 to everyone else."""
    return jnp.asarray(x, jnp.uint8) if jnp.issubdtype(jnp.result_type(x), np.bool_) else x


def planes(numbers: jax.Array) -> jax.Array:
    """Real numbers, or real and imaginary parts, along a new first dimension: as the handlers take them."""
    return jnp.stack([numbers.real, numbers.imag] if jnp.iscomplexobj(numbers) else [numbers])


def per_sample(x: Any, dims: tuple[int, ...], dtype: Any) -> Any:
    """The type of a result of shape ``(..., *dims)`` for samples ``(..., N)``, sharded as they are."""
    *batch, _ = x.shape
    spec = tuple(x.sharding.spec)[: len(batch)]
    spec += (None,) * (len(batch) - len(spec) + len(dims))
    sharding = NamedSharding(x.sharding.mesh, PartitionSpec(*spec))
    return x.update(shape=(*batch, *dims), dtype=dtype, sharding=sharding, weak_type=False)


def on_one_device(x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The type of a result that is about all samples of a device.

    Raises:
        ValueError: If the samples are sharded.
    """
    if any(axes is not None for axes in x.sharding.spec):
        raise ValueError(_SHARDED)
    sharding = NamedSharding(x.sharding.mesh, PartitionSpec(*(None,) * len(shape)))
    return x.update(shape=shape, dtype=dtype, sharding=sharding, weak_type=False)


def batched(primitive: Primitive, *, any_batch: bool = True) -> Callable[..., tuple[Sequence[Any], list[int]]]:
    """The batching rule of a primitive whose first argument are samples.

    With ``any_batch`` it takes samples of shape ``(..., N)``, and a batch of samples is one more leading dimension.
    All other batches are loops, or those of its definition.
    """

    def batch(args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Sequence[Any], list[int]]:
        front = [arg if dim is None else jnp.moveaxis(arg, dim, 0) for arg, dim in zip(args, dims, strict=True)]
        if any_batch and all(dim is None for dim in dims[1:]):
            results = primitive.bind(*front, **params)
        elif primitive in DEFINITIONS:
            axes = [None if dim is None else 0 for dim in dims]
            results = jax.vmap(functools.partial(DEFINITIONS[primitive], **params), axes)(*front)
        else:
            mapped = {i: arg for i, (arg, dim) in enumerate(zip(front, dims, strict=True)) if dim is not None}

            def one(mapped: dict[int, jax.Array]) -> list[jax.Array]:
                unbatched = (mapped.get(i, arg) for i, arg in enumerate(front))
                results: list[jax.Array] = primitive.bind(*unbatched, **params)
                return results

            results = jax.lax.map(one, mapped)
        return results, [0] * len(results)

    return batch
