"""Chains around a network of which nothing is known: Rust does all but to evaluate it.

A loop of one program: the network on the configurations that the chains ask about, and one call that tells them the
amplitudes, and lets them go on until they need more. A move that leads nowhere is made without the network. Where the
network's first layer is a sum over the sites, Rust updates the sums, and XLA evaluates the rest. Where Rust
evaluates that, too, there is no loop.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
import numpy as np

from ferroket._compat.sharding import on_each_device
from ferroket.ansatz.amplitudes import first_and_step
from ferroket.ansatz.determinants import with_primitives
from ferroket.ansatz.first_layer import IMMODERATE, FirstLayer, are_moderate
from ferroket.ansatz.verification import TRACED, Subject, are_traced, cached_answer, mismatch_reason, shapes_of
from ferroket.ffi import Chains, FirstLayerTables, chain_proposals
from ferroket.network import Structure, structure
from ferroket.network.integers import overflow_reason
from ferroket.operator import compiled
from ferroket.operator.compiled import LocalStates
from ferroket.operator.constraints.hilbert import Constraints, allowed, user_constraints
from ferroket.reasons import Reason

Carry = tuple[Chains, jax.Array, jax.Array, jax.Array]
"""What :func:`~ferroket.ffi.chain_proposals` gives."""

_NOWHERE = np.iinfo(np.uint16).max
"""A local index that no site has: the kernel says so."""


def samples(
    sampler: Any,
    model: Any,
    parameters: Any,
    state: Any,
    numbers: jax.Array,
    key: jax.Array,
    length: int,
    n_log_probs: int,
    n_speculative: int,
    updates: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The samples of a sampler whose rule is one of the kernels.

    Args:
        sampler: The sampler.
        model: The model.
        parameters: Its variables.
        state: The sampler's state, with configurations ``(C, N)``.
        numbers: The number of each chain, ``(C,)``, on which its random numbers depend.
        key: What the random numbers depend on.
        length: L, how many samples each chain gives.
        n_log_probs: M, for how many of the last ones the logarithm of |ψ|^p is wanted.
        n_speculative: How many proposals of a chain the network sees at once. The samples don't depend on it.
        updates: Whether a first layer may be updated, see :func:`structure_of`.

    Returns:
        Samples ``(C, L, N)``; how many moves of each chain were accepted, ``(C,)``; and the logarithms of |ψ|^p of the
        last M samples of each, ``(C, M)``.
    """
    rule = sampler.rule
    sites = compiled.local_states(sampler.hilbert)
    first, step = (values.astype(state.σ.dtype) for values in first_and_step(sites, float))
    constraints = user_constraints(sampler.hilbert)
    network = _NetworkEvaluator(model.apply, sampler.chunk_size, constraints, updates)
    counts = {"length": length, "n_log_probs": n_log_probs, "kept": rule.kept, "n_speculative": n_speculative}
    attributes = {"rule": rule.name, "sweep": sampler.sweep_size, **dict(rule.attributes)}
    run = functools.partial(_run, network, sites=sites, **counts, **attributes)
    result: tuple[jax.Array, jax.Array, jax.Array] = on_each_device(
        run, (True, True, True, *(False,) * 6), (False, False, False)
    )(
        state.σ,
        state.log_prob,
        numbers,
        key,
        parameters,
        jnp.asarray(sampler.machine_pow, float),
        rule.tables(sampler.hilbert.size),
        first,
        step,
    )
    return result


def structure_of(sampler: Any, model: Any, parameters: Any) -> Structure:
    """What of a model is evaluated in another way along the chains of a sampler.

    What is found in its program is compared with it by value, once; that its tables are finite and of moderate range,
    each time.
    """
    subject = subject_of(sampler, model)

    def answer() -> Structure | Reason:
        found = _found_in(subject, parameters)
        if found.first_layer is None:
            return found
        reason = overflow_reason(subject, parameters, compiled.local_states(subject.hilbert).extremes)
        reason = reason or mismatch_reason(_as_found(found, subject), model.apply, parameters, subject.configurations())
        if reason is TRACED:
            return TRACED
        return found if reason is None else _not_updated(reason)

    found = cached_answer("structure along chains", subject, parameters, answer)
    if found is TRACED or (found.first_layer is not None and are_traced(parameters)):
        return _not_updated(TRACED)
    if found.first_layer is not None and not bool(_is_moderate(found.first_layer, subject, parameters)):
        return _not_updated(IMMODERATE)
    return found


def _not_updated(reason: Reason) -> Structure:
    return Structure(reason=reason.after("its first layer isn't updated: "))


def subject_of(sampler: Any, model: Any) -> Subject:
    """A model as a sampler asks about it."""
    return Subject(model, model.apply, sampler.hilbert, np.dtype(sampler.dtype))


def _found_in(subject: Subject, parameters: Any) -> Structure:
    variables, x = shapes_of(parameters), subject.like_one()
    network = _NetworkEvaluator(subject.log_psi, None, user_constraints(subject.hilbert), True)
    log_psi = jax.eval_shape(subject.log_psi, variables, jax.ShapeDtypeStruct((1, *x.shape), x.dtype))
    return network.structure(variables, x, _dtype(log_psi.dtype))


def _as_found(found: Structure, subject: Subject) -> Callable[[Any, jax.Array], jax.Array]:
    """The network as chains evaluate it: from the tables of its first layer."""
    sites, layer, rest = compiled.local_states(subject.hilbert), found.first_layer, found.rest
    assert layer is not None

    def evaluate(variables: Any, x: jax.Array) -> jax.Array:
        tables = layer.tables(variables, sites, x.dtype, jnp.float64)
        index = _indices(sites, x).astype(int)
        of_sites = jnp.pad(tables.table, ((0, 0), (1, 0), (0, 0)))[jnp.arange(sites.n_sites), index]
        sums = (tables.constant + of_sites.sum(axis=1)).astype(jax.eval_shape(layer.sums, variables, x[0]).dtype)
        if rest is not None:
            return rest.evaluate(sums, rest.operands(variables))
        return jax.vmap(layer.rest, (None, 0, 0))(variables, x, sums)

    return evaluate


@functools.partial(jax.jit, static_argnums=(0, 1))
def _is_moderate(layer: FirstLayer, subject: Subject, parameters: Any) -> jax.Array:
    shape = jax.eval_shape(layer.sums, parameters, subject.like_one())
    return are_moderate(layer.tables(parameters, compiled.local_states(subject.hilbert), subject.dtype, shape.dtype))


def _dtype(log_psi: Any) -> Any:
    """The dtype of logarithms of |ψ|^p: the kernels know no shorter numbers."""
    return jnp.float32 if jnp.finfo(log_psi).bits <= jnp.finfo(jnp.float32).bits else jnp.float64


@dataclass(frozen=True)
class _NetworkEvaluator:
    """A network as chains ask about it, on one device."""

    apply: Callable[[Any, jax.Array], jax.Array]
    chunk_size: int | None
    constraints: Constraints
    updates: bool
    """Whether a first layer may be updated."""

    def structure(self, variables: Any, x: jax.Array, dtype: Any) -> Structure:
        """What it is made of, for configurations like ``x (N,)``: sums are no more precise than `dtype`."""
        if not self.updates:
            return Structure()
        found = structure(with_primitives(self.apply), variables, x, key=self.apply)
        if found.first_layer is None or (found.first_layer.is_configuration and found.rest is None):
            return Structure(reason=found.reason)
        sums = jax.eval_shape(found.first_layer.sums, variables, x)
        return found if jnp.finfo(sums.dtype).bits <= jnp.finfo(dtype).bits else Structure()

    def log_probabilities(
        self, found: Structure, variables: Any, power: jax.Array, x: jax.Array, sums: jax.Array, start: Any
    ) -> jax.Array:
        """The logarithms of |ψ|^p of configurations ``(n, N)``, of which the first layer makes these sums ``(n, H)``.

        The network sees `start`, a configuration of the space and its sums, in the place of those that are none.
        """
        if self.constraints:
            is_inside = allowed(self.constraints, x)
            x, sums = (jnp.where(is_inside[:, None], a, b) for a, b in zip((x, sums), start, strict=True))
        layer, behind = found.first_layer, found.rest
        if layer is None:
            evaluate, args = with_primitives(self.apply), [x]
        elif behind is None:
            evaluate, args = jax.vmap(layer.rest, (None, 0, 0)), [x, sums]
        else:
            operands = behind.operands(variables)
            return self._probability(power, behind.evaluate(sums, operands), is_inside if self.constraints else None)
        axes = (None, *(0 for _ in args))
        in_chunks = nkjax.apply_chunked(evaluate, in_axes=axes, chunk_size=self.chunk_size, axis_0_is_sharded=False)
        return self._probability(power, in_chunks(variables, *args), is_inside if self.constraints else None)

    @staticmethod
    def _probability(power: jax.Array, log_psi: jax.Array, is_inside: jax.Array | None) -> jax.Array:
        result: jax.Array = power * log_psi.real
        return result if is_inside is None else jnp.where(is_inside, result, -jnp.inf)


def _run(
    network: _NetworkEvaluator,
    x: jax.Array,
    log_prob: jax.Array,
    numbers: jax.Array,
    key: jax.Array,
    variables: Any,
    power: jax.Array,
    of_rule: tuple[jax.Array, ...],
    first: jax.Array,
    step: jax.Array,
    *,
    sites: LocalStates,
    length: int,
    n_log_probs: int,
    kept: int,
    n_speculative: int,
    **attributes: Any,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """As :func:`samples`, of the chains of one device."""
    dtype = _dtype(log_prob.dtype)
    index = _indices(sites, x)
    of_sites = sites.sizes_of_sites.astype(np.uint16)
    found = network.structure(variables, x[0], dtype)
    layer, behind = found.first_layer, found.rest
    if layer is None:
        tables = FirstLayerTables(
            jnp.zeros(0, dtype), jnp.zeros((sites.n_sites, max(sites.sizes, default=1) - 1, 0), dtype)
        )
    else:
        tables = layer.tables(variables, sites, x.dtype, dtype)
    chains = Chains.starting(index, log_prob.astype(dtype), length, n_log_probs, kept, len(tables.constant))
    start = x[0], jnp.zeros(0, dtype) if layer is None else layer.sums(variables, x[0])

    in_rust: dict[str, Any] = {}
    if behind is not None and not network.constraints:
        in_rust = {"program": [*behind.operands(variables), power.astype(dtype)]}

    def go_on(chains: Chains, log_probs: jax.Array) -> Carry:
        static = {**in_rust, **attributes}
        return chain_proposals(chains, log_probs, numbers, key, jnp.asarray(of_sites), tables, of_rule, **static)

    def step_of_loop(carry: Carry) -> Carry:
        chains, proposals, sums, _ = carry
        configurations = first + step * proposals.reshape(-1, proposals.shape[-1]).astype(first.dtype)
        sums = sums.reshape(len(configurations), -1)
        log_probs = network.log_probabilities(found, variables, power, configurations, sums, start)
        return go_on(chains, log_probs.astype(dtype).reshape(proposals.shape[:-1]))

    begun = go_on(chains, jnp.zeros((len(x), n_speculative), dtype))
    if not in_rust:
        begun = jax.lax.while_loop(lambda carry: carry[-1] > 0, step_of_loop, begun)
    chains, *_ = begun
    values = first + step * chains.samples.astype(first.dtype)
    return values, chains.accepted, chains.log_probs.astype(log_prob.dtype)


def _indices(sites: LocalStates, x: jax.Array) -> jax.Array:
    """The local indices of configurations, and :data:`_NOWHERE` for what is no local state.

    Differences of 8-bit numbers may be none.
    """
    first, step = first_and_step(sites, float)
    index = jnp.round((x.astype(float) - first) / step)
    is_one = (first + step * index == x) & (index >= 0) & (index < sites.sizes_of_sites)
    return jnp.where(is_one, index, _NOWHERE)
