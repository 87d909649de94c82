"""Local values with any network, which is evaluated on those configurations alone that matter.

E(σ) = ⟨σ|O|σ⟩ + Σ_k ⟨σ|O|x_k⟩ ψ(x_k) / ψ(σ), with the x_k whose matrix elements aren't zero. They come in chunks of one
shape: their number may change without another compilation, and memory is that of a chunk, however many there are.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
import numpy as np

from ferroket._compat.sharding import on_each_device
from ferroket.ansatz import determinants
from ferroket.ansatz.determinants import with_primitives
from ferroket.ansatz.first_layer import IMMODERATE, FirstLayer, are_moderate
from ferroket.ansatz.verification import TRACED, Subject, are_traced, cached_answer, mismatch_reason, shapes_of
from ferroket.ffi import FirstLayerTables, connected_sums, distinct_rows
from ferroket.ffi.varying import align
from ferroket.local_energy.chunks import chunk_size_of
from ferroket.network import Structure, structure
from ferroket.network.integers import overflow_reason
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.compiled import Form, LocalStates
from ferroket.reasons import Reason

_CHUNKS_COMPARED = 8
"""Equal configurations among the elements of so many chunks are evaluated once."""
_REPEATED = 16
"""Equal ones are looked for as long as at least one of so many configurations is a repetition."""

_MANY = 4
"""With fewer connected configurations of a sample it takes longer to update a first layer than to compute it."""

LogPsi = Callable[[Any, jax.Array], jax.Array]
ConnectedLogPsi = Callable[[jax.Array, jax.Array], jax.Array]
"""Gives ln ψ, ``(n,)``, of configurations ``(n, N)``, each of which is connected with one of the samples, ``(n,)``."""


def local_values(
    logpsi: LogPsi,
    variables: Any,
    samples: jax.Array,
    operator: Accelerated,
    *,
    chunk_size: int | None = None,
    updates: Any = None,
) -> jax.Array:
    """The local values Σ_x ⟨σ|O|x⟩ ψ(x) / ψ(σ) of samples σ.

    It takes the place of NetKet's ``local_value_kernel_jax``, also chunked and packed. Each device evaluates its own
    samples; there is no communication. First derivatives by the variables and by the operator's coefficients exist in
    reverse mode.

    Args:
        logpsi: ``logpsi(variables, x)`` gives ln ψ, of shape ``(n,)``, for configurations ``(n, N)``.
        variables: The first argument of `logpsi`, a pytree.
        samples: σ, of shape ``(..., N)``, sharded along the first dimension if there are several devices.
        operator: The operator O.
        chunk_size: The network sees at most so many configurations at once; by default a number that is fast.
        updates: The function whose parts are updated, as :func:`updated_factors` has said: if it is `logpsi`, they
            are. By default this is asked here, and not done where the variables are traced.

    Returns:
        The local values, ``(...)``, of the common dtype of the matrix elements and of ln ψ.

    Raises:
        jax.errors.JaxRuntimeError: If a sample isn't of the Hilbert space. Off CPUs its local value is NaN instead.
    """
    if updates is None:
        is_updated = updated_factors(logpsi, variables, operator, samples.dtype).reason is None
    else:
        is_updated = updates == logpsi
    return differentiable(nkjax.HashablePartial(forward, is_updated), logpsi, variables, samples, operator, chunk_size)


Forward = Callable[[LogPsi, int | None, Any, Form, jax.Array], jax.Array]
"""Gives the local values on one device: ``forward(logpsi, chunk_size, variables, form, samples)``."""


def differentiable(
    forward: Forward,
    logpsi: LogPsi,
    variables: Any,
    samples: jax.Array,
    operator: Accelerated,
    chunk_size: int | None,
) -> jax.Array:
    """The local values as `forward` gives them, on each device those of its samples, and their derivatives.

    The derivatives are those of :func:`local_values`, whatever `forward` does.
    """
    form = operator._form
    rows = samples.reshape(-1, samples.shape[-1]) if samples.ndim != 2 else samples  # noqa: PLR2004
    args = (variables, form.values, rows, form)
    # NetKet calls the kernels of some observables outside of compiled functions, and those of some gradients inside,
    # with a `logpsi` that can't leave them.
    is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args))
    evaluate = _local_values if is_traced else _compiled_local_values
    return evaluate(forward, logpsi, chunk_size, *args).reshape(samples.shape[:-1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _local_values(
    forward: Forward,
    logpsi: LogPsi,
    chunk_size: int | None,
    variables: Any,
    values: Any,
    samples: jax.Array,
    form: Form,
) -> jax.Array:
    """The local values; `values` are the coefficients of the form."""
    return _fwd(forward, logpsi, chunk_size, variables, values, samples, form)[0]


def forward(
    updates: bool, logpsi: LogPsi, chunk_size: int | None, variables: Any, form: Form, samples: jax.Array
) -> jax.Array:
    """The local values on one device. `updates` tells whether parts of the network are updated, where that pays."""
    found = factors_of(logpsi, variables, form, samples) if updates else Factors()
    network = _network(logpsi, variables, form, samples, found)
    logpsi, in_lanes = with_primitives(logpsi), found.structure.rest is not None
    chunk_size = chunk_size_of(chunk_size, len(samples), form, logpsi, variables, samples, in_lanes=in_lanes)
    if in_lanes and found.factor is None:
        evaluate = nkjax.apply_chunked(network, in_axes=(0, 0), chunk_size=chunk_size, axis_0_is_sharded=False)
        log_psi = evaluate(samples, jnp.arange(len(samples), dtype=jnp.int32))
    else:
        log_psi = in_chunks(logpsi, chunk_size)(variables, samples)
    dtype = jnp.result_type(form.dtype, log_psi.dtype)

    def add(
        total: tuple[jax.Array, jax.Array], xp: jax.Array, mels: jax.Array, sample: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        local, pays = total
        used = (sample < len(samples)).sum(dtype=jnp.int32)
        # What fills up the last chunk is the first sample.
        origin = jnp.where(sample < len(samples), sample, 0)
        distinct, origin, place, count = jax.lax.cond(pays, _distinct, _as_they_are, xp, origin, used)
        ratio = _ratio(_first_in_chunks(network, distinct, origin, count, chunk_size)[place], log_psi, sample)
        # The elements that fill up the last chunk are those of no sample, and are dropped.
        local = local.at[sample].add((mels * ratio).astype(dtype), mode="drop", indices_are_sorted=True)
        return local, pays & (used - count > used // _REPEATED)

    (zeros,) = _zeros_like([log_psi], samples, dtype)
    pays, _ = align([jnp.bool_(True), zeros])
    n_chunks = min(max(-(-len(samples) * form.max_conn_size // chunk_size), 1), _CHUNKS_COMPARED)
    off_diagonal, _ = _for_each_chunk(add, (zeros, pays), form, samples, n_chunks * chunk_size)
    # As ψ(σ) / ψ(σ) is.
    on_diagonal = jnp.where(jnp.isfinite(log_psi), form.on_diagonal(samples).astype(dtype), nan(dtype))
    return on_diagonal + off_diagonal


def nan(dtype: Any) -> Any:
    """NaN in all parts."""
    return np.array(complex(np.nan, np.nan) if jnp.issubdtype(dtype, jnp.complexfloating) else np.nan, dtype)


def _distinct(x: jax.Array, sample: jax.Array, used: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """As :func:`distinct_rows`, and with which sample each of them is connected, the first one of several."""
    distinct, place, count = distinct_rows(x, used)
    last, _ = align([jnp.broadcast_to(sample.max(initial=0), sample.shape), sample])
    return distinct, last.at[place].min(sample), place, count


def _as_they_are(x: jax.Array, sample: jax.Array, used: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """As :func:`_distinct`, without looking for equal configurations."""
    x, sample, used, place = align([x, sample, used, jnp.arange(len(x), dtype=jnp.int32)])
    return x, sample, place, used


def _first_in_chunks(
    network: ConnectedLogPsi, x: jax.Array, sample: jax.Array, count: jax.Array, chunk_size: int
) -> jax.Array:
    """The ln ψ of the first ``count`` configurations, chunk by chunk, and zeros for the others."""

    def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        start, log_psi = state
        of_chunk = network(*(jax.lax.dynamic_slice_in_dim(array, start, chunk_size) for array in (x, sample)))
        return start + chunk_size, jax.lax.dynamic_update_slice_in_dim(log_psi, of_chunk, start, axis=0)

    of_one = jax.eval_shape(network, x[:chunk_size], sample[:chunk_size])
    start, log_psi, _ = align([jnp.int32(0), jnp.zeros(x.shape[:1], of_one.dtype), x])
    _, log_psi = jax.lax.while_loop(lambda state: state[0] < count, step, (start, log_psi))
    return log_psi


def _network(logpsi: LogPsi, variables: Any, form: Form, samples: jax.Array, found: "Factors") -> ConnectedLogPsi:
    """The network as local energies ask about it: what can be updated is."""
    factor = found.factor
    if factor is None:
        return _with_first_layer(with_primitives(logpsi), variables, form, samples, found.structure)
    rest = _with_first_layer(factor.rest, variables, form, samples, found.structure)

    def updated(x: jax.Array, sample: jax.Array) -> jax.Array:
        of_samples = factor.log_of_determinants(variables, samples)
        return rest(x, sample) + of_samples[sample] + factor.log_ratios(variables, x, samples, sample)

    return _on_cpu(updated, lambda x, _: logpsi(variables, x))


def _with_first_layer(
    logpsi: LogPsi, variables: Any, form: Form, samples: jax.Array, found: Structure
) -> ConnectedLogPsi:
    """A network whose first layer is updated where that pays, and of which Rust evaluates the rest where it can."""

    def whole(x: jax.Array, _: jax.Array) -> jax.Array:
        return logpsi(variables, x)

    layer, behind = found.first_layer, found.rest
    if layer is None:
        return whole
    sites, kind = form.sites, jnp.asarray(form.sites.kind)
    tables = _tables(layer, variables, sites, samples)
    operands = None if behind is None else behind.operands(variables)

    def updated(x: jax.Array, sample: jax.Array) -> jax.Array:
        states = {"starts": sites.starts, "steps": sites.steps, "sizes": sites.sizes}
        sums = connected_sums(x, samples, sample, kind, tables, **states)
        if behind is not None and operands is not None:
            return behind.evaluate(sums, operands)
        return jax.vmap(layer.rest, (None, 0, 0))(variables, x, sums)

    return _on_cpu(updated, whole)


def _tables(layer: FirstLayer, variables: Any, sites: LocalStates, samples: Any) -> FirstLayerTables:
    dtype = jnp.promote_types(jax.eval_shape(layer.sums, variables, _like_one(samples)).dtype, jnp.float32)
    return layer.tables(variables, sites, samples.dtype, dtype)


def _on_cpu(network: ConnectedLogPsi, elsewhere: ConnectedLogPsi) -> ConnectedLogPsi:
    """One network on CPUs, and another one on other devices."""

    def chosen(x: jax.Array, sample: jax.Array) -> jax.Array:
        log_psi: jax.Array = jax.lax.platform_dependent(x, sample, cpu=network, default=elsewhere)
        return log_psi

    return chosen


@dataclass(frozen=True)
class Factors:
    """What of a network is updated for the configurations that an operator connects."""

    factor: determinants.DeterminantFactor | None = None
    structure: Structure = field(default_factory=Structure)
    """That of what isn't a determinant."""
    reason: Reason | None = None
    """Why nothing is updated, as the end of a sentence; None also where there is nothing to be."""


def factors_of(logpsi: LogPsi, variables: Any, form: Form, samples: Any) -> Factors:
    """What of a network is updated for the configurations that an operator connects.

    :func:`updated_factors` tells whether they are.

    Args:
        logpsi: The network, a function of variables and configurations.
        variables: Its variables, or their shapes.
        form: The operator.
        samples: Samples ``(Ns, N)``, or their shape.
    """
    if not _pays(form):
        return Factors()
    x = _like_one(samples)
    factor = determinants.determinant_factor(logpsi, variables, x)
    if factor is None:
        return Factors(None, structure(with_primitives(logpsi), variables, x, key=logpsi))
    return Factors(factor, structure(factor.rest, variables, x, key=(logpsi, "beside determinants")))


def _pays(form: Form) -> bool:
    """Whether anything may be updated."""
    return form.max_conn_size >= _MANY


def updated_factors(logpsi: LogPsi, variables: Any, operator: Accelerated, dtype: Any) -> Factors:
    """What of a network is updated for connected configurations, or the reason why nothing is.

    What is found is compared with the network by value, once; that tables of sums are finite and of moderate range,
    each time.

    Args:
        logpsi: The network, a function of variables and configurations.
        variables: Its variables.
        operator: The operator.
        dtype: The dtype of samples.
    """
    form = operator._form
    if not _pays(form):
        return Factors()
    subject = Subject(logpsi, logpsi, operator.hilbert, np.dtype(dtype))

    def answer() -> Factors | Reason:
        found = factors_of(logpsi, shapes_of(variables), form, subject.like_some())
        if found.factor is None and found.structure.first_layer is None:
            return found

        def as_found(variables: Any, x: jax.Array) -> jax.Array:
            # Every other configuration as if it were connected with the one before.
            network = _network(logpsi, variables, form, x[::2], factors_of(logpsi, variables, form, x))
            return network(x[1::2], jnp.arange(len(x) // 2, dtype=jnp.int32))

        def itself(variables: Any, x: jax.Array) -> jax.Array:
            return with_primitives(logpsi)(variables, x[1::2])

        reason = overflow_reason(subject, variables, form.sites.extremes)
        if reason is None and are_traced(variables):
            return TRACED
        reason = reason or mismatch_reason(as_found, itself, variables, subject.configurations())
        return found if reason is None else Factors(reason=reason)

    answered = cached_answer("connected configurations", subject, variables, answer)
    found: Factors = Factors(reason=TRACED) if answered is TRACED else answered
    if found.structure.first_layer is None:
        return found
    if are_traced(variables):
        return Factors(reason=TRACED)
    is_moderate = bool(_is_moderate(found, variables, form.sites, subject.like_some()))
    return found if is_moderate else Factors(reason=IMMODERATE)


@functools.partial(jax.jit, static_argnums=(0, 3))
def _is_moderate(found: Factors, variables: Any, sites: LocalStates, x: jax.ShapeDtypeStruct) -> jax.Array:
    assert found.structure.first_layer is not None
    return are_moderate(_tables(found.structure.first_layer, variables, sites, x))


def _like_one(samples: Any) -> jax.ShapeDtypeStruct:
    """The shape of one of the samples ``(Ns, N)``."""
    return jax.ShapeDtypeStruct(samples.shape[1:], samples.dtype)


def in_chunks(logpsi: LogPsi, chunk_size: int | None) -> LogPsi:
    """A network that sees at most so many configurations at once, or all of them, on one device."""
    function: LogPsi = nkjax.apply_chunked(logpsi, in_axes=(None, 0), chunk_size=chunk_size, axis_0_is_sharded=False)
    return function


def _ratio(log_psi_xp: jax.Array, log_psi: jax.Array, sample: jax.Array) -> jax.Array:
    """ψ(x) / ψ(σ) for the connected configurations x of some samples σ; `sample` says which."""
    return jnp.exp(log_psi_xp - log_psi.at[sample].get(mode="fill", fill_value=0, indices_are_sorted=True))


def _for_each_chunk(add: Callable[..., Any], total: Any, form: Form, samples: jax.Array, chunk_size: int) -> Any:
    """``total = add(total, xp, mels, sample)`` for all elements off the diagonal that aren't zero, chunk by chunk."""
    if form.max_conn_size == int(form.diagonal) or not len(samples):
        return total

    def step(state: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
        cursor, total = state
        xp, mels, sample, cursor = form.compact(samples, cursor, chunk_size, off_diagonal_only=True)
        # The network has to be finite on what fills up the last chunk, and have derivatives there.
        xp = jnp.where((sample < len(samples))[:, None], xp, samples[0])
        return cursor, add(total, xp, mels, sample)

    cursor, _ = align([jnp.zeros(2, jnp.int32), samples])
    _, total = jax.lax.while_loop(lambda state: state[0][0] < len(samples), step, (cursor, total))
    return total


def _zeros_like(arrays: list[jax.Array], samples: jax.Array, dtype: Any = None) -> list[jax.Array]:
    """Zeros on each device that has samples."""
    return [align([jnp.zeros_like(array, dtype), array, samples])[0] for array in arrays]


# Derivatives. A loop without a fixed number of steps has none in reverse mode, so the loop runs once more.


def _fwd(
    forward: Forward, logpsi: LogPsi, chunk_size: int | None, variables: Any, values: Any, samples: Any, form: Any
) -> tuple[jax.Array, tuple[Any, ...]]:
    form = form.replace_values(values)
    kernel = nkjax.HashablePartial(forward, logpsi, chunk_size)
    result = on_each_device(kernel, (False, False, True))(variables, form, samples)
    return result, (variables, values, form, samples, result)


def _bwd(
    forward: Forward, logpsi: LogPsi, chunk_size: int | None, residuals: tuple[Any, ...], cotangent: Any
) -> tuple[Any, ...]:
    kernel = nkjax.HashablePartial(_backward, logpsi, chunk_size)
    replicated, sharded = (False,) * 3, (True,) * 3
    sums = (jax.lax.psum, jax.lax.psum)
    of_variables, of_values = on_each_device(kernel, (*replicated, *sharded), sums)(*residuals, cotangent)
    return of_variables, of_values, None, None


def _backward(
    logpsi: LogPsi,
    chunk_size: int | None,
    variables: Any,
    values: jax.Array,
    form: Form,
    samples: jax.Array,
    result: jax.Array,
    cotangent: jax.Array,
) -> tuple[Any, Any]:
    """The derivatives by the variables and by the coefficients, on one device."""
    chunk_size = chunk_size_of(chunk_size, len(samples), form, logpsi, variables, samples)
    form, logpsi = form.replace_values(values), with_primitives(logpsi)
    log_psi = in_chunks(logpsi, chunk_size)(variables, samples)
    leaves, structure = jax.tree.flatten(variables)
    differentiable = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves]
    floats = [leaf for leaf, d in zip(leaves, differentiable, strict=True) if d]

    def function(moved: list[jax.Array], x: jax.Array) -> jax.Array:
        filled = iter(moved)
        return logpsi(
            structure.unflatten(next(filled) if d else v for v, d in zip(leaves, differentiable, strict=True)), x
        )

    def add(total: list[jax.Array], xp: jax.Array, mels: jax.Array, sample: jax.Array) -> list[jax.Array]:
        log_psi_xp, pullback = jax.vjp(lambda moved: function(moved, xp), floats)
        weight = cotangent.at[sample].get(mode="fill", fill_value=0) * mels * _ratio(log_psi_xp, log_psi, sample)
        weight = jnp.where(sample < len(samples), weight, 0)
        return jax.tree.map(jnp.add, total, pullback(_as(weight, log_psi.dtype))[0])

    total = _for_each_chunk(add, _zeros_like(floats, samples), form, samples, chunk_size)
    off_diagonal = result - form.on_diagonal(samples)
    # The network is evaluated once more for the derivative, chunk by chunk, and so takes no more memory.
    _, pullback = jax.vjp(lambda moved: in_chunks(jax.checkpoint(function), chunk_size)(moved, samples), floats)
    (of_samples,) = pullback(_as(-cotangent * off_diagonal, log_psi.dtype))
    of_floats = iter(map(jnp.add, total, of_samples))
    of_variables = structure.unflatten(next(of_floats) if d else None for d in differentiable)
    # XLA leaves this out where nobody asks for it.
    return of_variables, _by_values(logpsi, chunk_size, variables, form, samples, log_psi, cotangent)


def _as(cotangent: jax.Array, dtype: Any) -> jax.Array:
    """A cotangent in this dtype: its real part, if that is real."""
    real = cotangent if jnp.issubdtype(dtype, jnp.complexfloating) else cotangent.real
    return real.astype(dtype)


def _by_values(
    logpsi: LogPsi, chunk_size: int, variables: Any, form: Form, samples: jax.Array, log_psi: jax.Array, cotangent: Any
) -> jax.Array | None:
    """The derivative by the coefficients, for which also the elements that happen to be zero matter."""
    if not jnp.issubdtype(form.dtype, jnp.inexact):
        return None

    def ratios(samples: jax.Array, log_psi: jax.Array) -> jax.Array:
        xp, _ = form.padded(samples)
        log_psi_xp = in_chunks(logpsi, chunk_size)(variables, xp.reshape(-1, xp.shape[-1])).reshape(xp.shape[:-1])
        return jnp.exp(log_psi_xp - log_psi[:, None])

    at_once = max(chunk_size // max(form.max_conn_size, 1), 1)
    ratio = nkjax.apply_chunked(ratios, in_axes=(0, 0), chunk_size=at_once, axis_0_is_sharded=False)(samples, log_psi)
    _, pullback = jax.vjp(lambda values: form.replace_values(values).mels(samples), form.values)
    (of_values,) = pullback(_as(cotangent[:, None] * ratio, form.dtype))
    return of_values


_local_values.defvjp(_fwd, _bwd)
_compiled_local_values = jax.jit(_local_values, static_argnums=(0, 1, 2))
