"""Chains in groups, each a program of its own, so that all cores evaluate the network.

XLA evaluates a network on few configurations on one core. Chains don't depend on each other, so each core may have some
of them. Programs that one thread of Python starts run one after the other; those of several run at once.
"""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from netket.sampler import MetropolisSamplerState

from ferroket._compat.jax import trace_context
from ferroket._compat.sharding import set_mesh

_FEWEST = 4
"""A group has so many chains: a product of a matrix and few vectors waits for memory."""

Run = Callable[[MetropolisSamplerState, np.ndarray], tuple[Any, MetropolisSamplerState]]
"""Samples of chains and their new state, from their state and their numbers among all."""


def in_groups(run: Run, state: MetropolisSamplerState, depends: Any) -> tuple[Any, MetropolisSamplerState]:
    """What `run` gives for all chains, though it is called for one group of them after the other.

    Args:
        run: A compiled function. Its first result is samples ``(C, ...)``, or a tuple of such arrays.
        state: The state of all chains.
        depends: What else `run` depends on, a pytree. Where any of it is traced there are no groups.
    """
    numbers = np.arange(len(state.σ), dtype=np.uint32)
    is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((state, depends)))
    n_groups = 1 if is_traced else _n_groups(state)
    if n_groups == 1:
        return run(state, numbers)
    mesh, context = state.σ.sharding.mesh, trace_context()

    def run_there(*part: Any) -> tuple[Any, MetropolisSamplerState] | None:
        with set_mesh(mesh):
            return run(*part) if trace_context() == context else None

    parts = list(zip(_split(state, n_groups), np.split(numbers, n_groups), strict=True))
    results = [run(*parts[0])]  # which only starts the program, once it is compiled
    others = [_threads(n_groups).submit(run_there, *part) for part in parts[1:]]
    for part, other in zip(parts[1:], others, strict=True):
        # Where a setting of JAX's holds in this thread alone the other one would compile something else.
        results.append(other.result() or run(*part))
    return _joined(results)


def _n_groups(state: MetropolisSamplerState) -> int:
    """As many as there are cores, if so many can have equally many chains."""
    if jax.device_count() > 1 or not isinstance(state.σ.sharding, NamedSharding):
        return 1
    n_chains = len(state.σ)
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    at_most = max(min(n_cores, n_chains // _FEWEST), 1)
    return next(n for n in range(at_most, 0, -1) if n_chains % n == 0)


@functools.cache
def _threads(n: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(n - 1, thread_name_prefix="ferroket chains")


_OF_EACH = ("σ", "log_prob", "n_accepted_proc")
"""What a state has for each chain."""


@functools.partial(jax.jit, static_argnums=1)
def _split(state: MetropolisSamplerState, n_groups: int) -> list[MetropolisSamplerState]:
    parts = [jnp.split(getattr(state, name), n_groups) for name in _OF_EACH]
    return [state.replace(**dict(zip(_OF_EACH, part, strict=True))) for part in zip(*parts, strict=True)]


@jax.jit
def _joined(results: list[tuple[Any, MetropolisSamplerState]]) -> tuple[Any, MetropolisSamplerState]:
    samples, states = zip(*results, strict=True)

    def join(*parts: jax.Array) -> jax.Array:
        return jnp.concatenate(parts)

    of_each = {name: join(*(getattr(state, name) for state in states)) for name in _OF_EACH}
    return jax.tree.map(join, *samples), states[0].replace(**of_each)
