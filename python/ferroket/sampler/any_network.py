"""Chains around a network of which nothing is known: Rust does all but to evaluate it.

A loop of one program: the network on the configurations that the chains ask about, and one call that tells them the
answers, and lets them go on until they ask again. A move that leads nowhere is made without the network. Where the
network's first layer is a sum over the sites, Rust updates the sums, and XLA evaluates the rest. Where that is dense
layers with functions that Rust knows, Rust evaluates them, too, and there is no loop.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
import numpy as np

from ferroket._compat.sharding import is_out_of_reach, on_each_device
from ferroket.ansatz import first_layer, layers
from ferroket.ansatz.amplitudes import first_and_step
from ferroket.ansatz.determinants import with_primitives
from ferroket.ansatz.first_layer import FirstLayer
from ferroket.ansatz.layers import Layers
from ferroket.ffi import Chains, Layer, chain_proposals
from ferroket.operator import compiled
from ferroket.operator.algebra.sectors import own_constraints
from ferroket.operator.compiled import Constraints, allowed

Carry = tuple[Chains, jax.Array, jax.Array, jax.Array]
"""What :func:`~ferroket.ffi.chain_proposals` gives."""

_NOWHERE = np.iinfo(np.uint16).max
"""A local index that no site has: the kernel says so."""


def samples(
    sampler: Any,
    machine: Any,
    parameters: Any,
    state: Any,
    numbers: jax.Array,
    key: jax.Array,
    length: int,
    n_log_probs: int,
    together: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The samples of a sampler whose rule is one of the kernels.

    Args:
        sampler: The sampler.
        machine: The model.
        parameters: Its variables.
        state: The sampler's state, with configurations ``(C, N)``.
        numbers: The number of each chain, ``(C,)``, on which its random numbers depend.
        key: What the random numbers depend on.
        length: L, how many samples each chain gives.
        n_log_probs: M, for how many of the last ones the logarithm of |ψ|^p is wanted.
        together: How many proposals of a chain the network sees at once. The samples don't depend on it.

    Returns:
        Samples ``(C, L, N)``; how many moves of each chain were accepted, ``(C,)``; and the logarithms of |ψ|^p of the
        last M samples of each, ``(C, M)``.
    """
    rule = sampler.rule
    sites = compiled.local_states(sampler.hilbert)
    first, step = (values.astype(state.σ.dtype) for values in first_and_step(sites, float))
    network = _Network(with_primitives(machine.apply), sampler.chunk_size, own_constraints(sampler.hilbert))
    sizes = tuple(int(size) for size in sites.sizes_of_sites)
    counts = {"length": length, "n_log_probs": n_log_probs, "kept": rule.kept, "together": together}
    attributes = {"rule": rule.name, "sweep": sampler.sweep_size, **dict(rule.attributes)}
    run = functools.partial(_run, network, sizes=sizes, **counts, **attributes)
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


def layers_of(sampler: Any, machine: Any, parameters: Any) -> tuple[FirstLayer | None, Layers | None]:
    """The first layer of a model that is updated along the chains of a sampler, and the layers that Rust evaluates."""
    leaves, treedef = jax.tree.flatten(parameters)
    shapes = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    return _layers_of(machine, sampler.hilbert, sampler.dtype, treedef, shapes)


@functools.lru_cache(maxsize=256)
def _layers_of(
    machine: Any, hilbert: Any, dtype: Any, treedef: Any, shapes: tuple[Any, ...]
) -> tuple[FirstLayer | None, Layers | None]:
    network = _Network(with_primitives(machine.apply), None, own_constraints(hilbert))
    variables = treedef.unflatten(jax.ShapeDtypeStruct(*leaf) for leaf in shapes)
    x = jax.ShapeDtypeStruct((hilbert.size,), dtype)
    log_psi = jax.eval_shape(machine.apply, variables, jax.ShapeDtypeStruct((1, *x.shape), dtype))
    layer = network.first_layer(variables, x, _dtype(log_psi.dtype))
    return layer, network.layers(layer, variables, x)


def _dtype(log_psi: Any) -> Any:
    """The dtype of logarithms of |ψ|^p: the kernels know no shorter numbers."""
    return jnp.float32 if jnp.finfo(log_psi).bits <= jnp.finfo(jnp.float32).bits else jnp.float64


@dataclass(frozen=True)
class _Network:
    """A network as chains ask about it, on one device."""

    apply: Callable[[Any, jax.Array], jax.Array]
    chunk_size: int | None
    constraints: Constraints

    def first_layer(self, variables: Any, x: jax.Array, dtype: Any) -> FirstLayer | None:
        """Its first layer, for configurations like ``x (N,)``, if its sums are no more precise than `dtype`."""
        layer = None if is_out_of_reach() else first_layer.read(self.apply, variables, x)
        if layer is None or jnp.finfo(jax.eval_shape(layer.sums, variables, x).dtype).bits > jnp.finfo(dtype).bits:
            return None
        return layer

    def layers(self, layer: FirstLayer | None, variables: Any, x: jax.Array) -> Layers | None:
        """The layers behind the first one, if Rust evaluates them."""
        return None if layer is None or self.constraints else layers.read(layer, variables, x)

    def log_probabilities(
        self, layer: FirstLayer | None, variables: Any, power: jax.Array, x: jax.Array, sums: jax.Array, start: Any
    ) -> jax.Array:
        """The logarithms of |ψ|^p of configurations ``(n, N)``, of which the first layer makes these sums ``(n, H)``.

        The network sees `start`, a configuration of the space and its sums, in the place of those that are none.
        """
        if self.constraints:
            is_inside = allowed(self.constraints, x)
            x, sums = (jnp.where(is_inside[:, None], a, b) for a, b in zip((x, sums), start, strict=True))
        evaluate = self.apply if layer is None else jax.vmap(layer.rest, (None, 0, 0))
        args = (x,) if layer is None else (x, sums)
        axes = (None, *(0 for _ in args))
        in_chunks = nkjax.apply_chunked(evaluate, in_axes=axes, chunk_size=self.chunk_size, axis_0_is_sharded=False)
        result: jax.Array = power * in_chunks(variables, *args).real
        return jnp.where(is_inside, result, -jnp.inf) if self.constraints else result


def _run(
    network: _Network,
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
    sizes: tuple[int, ...],
    length: int,
    n_log_probs: int,
    kept: int,
    together: int,
    **attributes: Any,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """As :func:`samples`, of the chains of one device."""
    dtype = _dtype(log_prob.dtype)
    index = jnp.round((x - first) / jnp.where(step == 0, 1, step))  # a site with one local state has no step
    of_sites = np.asarray(sizes, np.uint16)
    index = jnp.where((first + step * index == x) & (index >= 0) & (index < of_sites), index, _NOWHERE)
    layer = network.first_layer(variables, x[0], dtype)
    if layer is None:
        tables = Layer(jnp.zeros(0, dtype), jnp.zeros((len(sizes), max(sizes, default=1) - 1, 0), dtype))
    else:
        tables = layer.tables(variables, first, step, jnp.asarray(of_sites) - 1, max(sizes, default=1), dtype)
    chains = Chains.starting(index, log_prob.astype(dtype), length, n_log_probs, kept, len(tables.constant))
    start = x[0], jnp.zeros(0, dtype) if layer is None else layer.sums(variables, x[0])

    others = network.layers(layer, variables, x[0])
    in_rust: dict[str, Any] = {}
    if others is not None:
        in_rust = {"layers": [*others.tables(variables), power.astype(dtype)], "activations": others.activations}

    def go_on(chains: Chains, answers: jax.Array) -> Carry:
        static = {**in_rust, **attributes}
        return chain_proposals(chains, answers, numbers, key, jnp.asarray(of_sites), tables, of_rule, **static)

    def step_of_loop(carry: Carry) -> Carry:
        chains, proposals, sums, _ = carry
        configurations = first + step * proposals.reshape(-1, proposals.shape[-1]).astype(first.dtype)
        sums = sums.reshape(len(configurations), -1)
        answers = network.log_probabilities(layer, variables, power, configurations, sums, start)
        return go_on(chains, answers.astype(dtype).reshape(proposals.shape[:-1]))

    begun = go_on(chains, jnp.zeros((len(x), together), dtype))
    if others is None:
        begun = jax.lax.while_loop(lambda carry: carry[-1] > 0, step_of_loop, begun)
    chains, *_ = begun
    values = first + step * chains.samples.astype(first.dtype)
    return values, chains.accepted, chains.log_probs.astype(log_prob.dtype)
