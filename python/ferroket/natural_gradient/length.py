"""How far an update moves a state."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax

from ferroket._compat.netket import log_psi_of
from ferroket._compat.sharding import on_each_device
from ferroket.ansatz.determinants import with_primitives


def length_of_update(
    state: Any, update: Any, *, mode: str, chunk_size: int | None = None, weights: jax.Array | None = None
) -> jax.Array:
    """:func:`fubini_study_length` for the samples of a state and their weights, or for all configurations."""
    is_sampled = hasattr(state, "samples")
    samples = state.samples if is_sampled else state.hilbert.all_states()
    return fubini_study_length(
        log_psi_of(state),
        state.parameters,
        state.model_state,
        samples.reshape(-1, samples.shape[-1]),
        update,
        mode=mode,
        pdf=weights if is_sampled else state.probability_distribution(),
        is_sharded=is_sampled,
        chunk_size=chunk_size,
    )


@partial(jax.jit, static_argnames=("log_psi", "mode", "is_sharded", "chunk_size"))
def fubini_study_length(
    log_psi: Callable[..., Any],
    parameters: Any,
    model_state: Any,
    samples: jax.Array,
    update: Any,
    *,
    mode: str,
    pdf: jax.Array | None = None,
    is_sharded: bool = True,
    chunk_size: int | None = None,
) -> jax.Array:
    """√(δθ† S δθ) for the quantum geometric tensor S: the standard deviation of the change of ln ψ along an update.

    Args:
        log_psi: ``log_psi({"params": parameters, **model_state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        model_state: Other collections of variables.
        samples: ``(Ns, N)``.
        update: δθ, like the parameters.
        mode: ``real`` for the change of the modulus alone, ``complex`` for that of the phase, too.
        pdf: Weights ``(Ns,)`` whose sum is 1; by default all are the same.
        is_sharded: Whether each device has samples of its own.
        chunk_size: How many samples are differentiated at once.
    """

    def changes(parameters: Any, model_state: Any, update: Any, samples: jax.Array) -> jax.Array:
        def changed(x: jax.Array) -> jax.Array:
            def function(parameters: Any) -> jax.Array:
                values: jax.Array = with_primitives(log_psi)({"params": parameters, **model_state}, x)
                return values

            change: jax.Array = jax.jvp(function, (parameters,), (update,))[1]
            return change

        of_all: jax.Array = nkjax.apply_chunked(changed, chunk_size=chunk_size, axis_0_is_sharded=False)(samples)
        return of_all

    if is_sharded:
        changes = on_each_device(changes, (False, False, False, True))
    change = changes(parameters, model_state, update, samples)
    if mode == "real":
        change = change.real
    weights = jnp.full(len(change), 1 / len(change)) if pdf is None else pdf
    centred = change - (weights * change).sum()
    return jnp.sqrt((weights * jnp.abs(centred) ** 2).sum())
