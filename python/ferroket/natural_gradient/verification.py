"""Whether the log-derivatives that a network's structure gives are those of the network, told once and by value."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ferroket._compat.sharding import on_each_device, replicated
from ferroket.ansatz.verification import (
    MIXES_SAMPLES,
    N_CONFIGURATIONS,
    SPREADS,
    TRACED,
    UNSURE,
    are_traced,
    cached_answer,
    combines_samples,
    differs_alone,
    perturbed,
)
from ferroket.natural_gradient.log_derivatives import components, log_derivatives
from ferroket.natural_gradient.structure import read
from ferroket.reasons import Reason, ReasonKind


def mixes_samples(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: jax.Array) -> bool:
    """Whether ln ψ of a sample depends on the others, as with batch normalisation.

    The log-derivatives of such a network aren't those of one sample alone. Its program tells, or where that doesn't,
    values of samples that differ. For values that are traced the answer is the cautious one, which isn't kept.
    """
    subject, variables = (log_psi, samples.shape[1:], str(samples.dtype)), {"params": parameters, **state}
    mixes = cached_answer("program mixes", subject, variables, lambda: combines_samples(log_psi, variables, samples[0]))
    if mixes is not None or are_traced(variables, samples):
        return mixes is not False

    def answer() -> bool | str:
        some, differ = some_samples(samples)
        return differs_alone(log_psi, variables, some) or (False if differ else UNSURE)

    return cached_answer("samples mix", subject, variables, answer) is True


@jax.jit
def some_samples(samples: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Some samples on each device, and whether they differ.

    Samples of Markov chains may be alike, and a mean of alike ones shows nothing: those unlike the first come first.
    """
    differs = (samples != samples[0]).any(axis=1)
    some = samples[jnp.argsort(~differs.at[0].set(True))[:N_CONFIGURATIONS]]
    return replicated(some), differs.any()


def unsupported_reason(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: jax.Array) -> Reason | None:
    """Why only NetKet differentiates a network, as the end of a sentence; None if ours gives the same.

    What is found is compared with JAX's derivatives along a random direction of log-amplitudes, once for each network:
    at random parameters near its own. Where the values that this takes are traced, and it wasn't compared before, it
    isn't taken apart.

    Args:
        log_psi: ``log_psi({"params": parameters, **state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        state: Other collections of variables.
        samples: ``(Ns, N)``.

    Raises:
        ValueError: There are no parameters.
    """
    if mixes_samples(log_psi, parameters, state, samples):
        return Reason(f"{MIXES_SAMPLES}, and only NetKet's update takes that", ReasonKind.MIXES_SAMPLES)
    subject = log_psi, samples.shape[1:], str(samples.dtype)
    found: Reason | None = cached_answer(
        "log-derivatives",
        subject,
        {"params": parameters, **state},
        lambda: _compared(log_psi, parameters, state, samples),
    )
    return found


def _compared(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: jax.Array) -> Reason | None:
    network = read(log_psi, parameters, state, samples[0])
    mode = "complex" if jnp.issubdtype(network.dtype, jnp.complexfloating) else "real"
    n_components, is_holomorphic = components(network, mode)

    def ours(parameters: Any, state: Any, x: jax.Array, weights: jax.Array) -> list[jax.Array]:
        # As an update asks: what is read of a network is that of the functions on each device.
        network = read(log_psi, parameters, state, x[0])
        rows = log_derivatives(network, mode, None, jax.tree.leaves(parameters), state, x)
        if is_holomorphic:
            return rows.adjoint_dot(jax.lax.complex(*weights.T)[:, None])
        return rows.adjoint_dot(weights[:, :n_components])

    ours_on_each = on_each_device(ours, (False,) * 4, sums=lambda leaf, axis_name: leaf)

    def jaxs(parameters: Any, x: jax.Array, weights: jax.Array) -> list[jax.Array]:
        def along(parameters: Any) -> jax.Array:
            log_psi_x = log_psi({"params": parameters, **state}, x)
            return (weights[:, 0] * log_psi_x.real).sum() + (weights[:, 1] * log_psi_x.imag).sum()

        return [jnp.conj(leaf) for leaf in jax.tree.leaves(jax.grad(along)(parameters))]

    def compare(key: jax.Array, parameters: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights = jax.random.normal(key, (len(x), 2), jnp.finfo(network.dtype).dtype)
        pairs = list(zip(ours_on_each(parameters, state, x, weights), jaxs(parameters, x, weights), strict=True))
        is_number = [jnp.isfinite(expected) for _, expected in pairs]
        size = jnp.stack(
            [jnp.where(is_n, jnp.abs(b), 0).max(initial=0) for is_n, (_, b) in zip(is_number, pairs, strict=True)]
        )
        tolerance = 10 * max(jnp.finfo(leaf.dtype).eps for leaf in jax.tree.leaves(parameters)) ** 0.5 * size.max()
        is_same = [(jnp.abs(a - b) <= tolerance) | ~is_n for is_n, (a, b) in zip(is_number, pairs, strict=True)]
        return jnp.stack([leaf.all() for leaf in is_same]).all(), jnp.stack([leaf.all() for leaf in is_number]).all()

    if are_traced(parameters, state, samples):
        return TRACED
    x, _ = some_samples(samples)
    try:
        compiled = jax.jit(compare).lower(jax.random.key(0), parameters, x).compile()
    except (NotImplementedError, ValueError) as error:
        text = f"JAX can't evaluate the network for many samples at once: {str(error).splitlines()[0]}"
        return Reason(text, ReasonKind.UNREADABLE)
    is_sure = False
    for place, spread in enumerate(SPREADS[1:]):
        is_same, has_numbers = compiled(jax.random.key(place), perturbed(parameters, spread, place), x)
        if not bool(is_same):
            text = "what is found of the network gives other derivatives than JAX does"
            return Reason(text, ReasonKind.NOT_VERIFIED)
        is_sure |= bool(has_numbers)
    if is_sure:
        return None
    text = "the network's derivatives aren't finite, and nothing can be compared with them"
    return Reason(text, ReasonKind.NOT_VERIFIED)
