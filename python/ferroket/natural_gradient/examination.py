"""What is found out about a log-amplitude, once, before it is differentiated.

Whether it treats each sample on its own, and whether it is the amplitude of a module of :data:`KNOWN` as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
from netket.jax import HashablePartial

from ferroket._compat.sharding import replicated
from ferroket.ansatz.verification import UNSURE, are_traced, cached_answer, combines_samples, differs_alone

_FEW = 6

KNOWN = (nk.models.Jastrow,)
"""The modules that are looked for: those whose log-derivatives have a closed form."""


@dataclass(frozen=True)
class Findings:
    """What :func:`examine` has found."""

    mixes_samples: bool
    """Whether ln ψ of a sample depends on the others, as with batch normalisation: the log-derivatives of such a
    network aren't those of one sample alone."""
    model: nn.Module | None
    """The module of :data:`KNOWN` whose log-amplitude it is."""


_models: dict[Callable[..., Any], nn.Module] = {}


def examine(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: jax.Array) -> Findings:
    """Reads a log-amplitude's program, and evaluates it on some samples.

    Once for each network, as soon as there are samples that differ.

    Args:
        log_psi: ``log_psi({"params": parameters, **state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        state: Other collections of variables.
        samples: ``(Ns, N)``.

    Returns:
        Where the values that it would take are traced, the cautious answer, which isn't kept.
    """
    variables = {"params": parameters, **state}
    subject = log_psi, samples.shape[1:], str(samples.dtype)
    has_values = not are_traced(variables, samples)
    mixes = cached_answer("program mixes", subject, variables, lambda: combines_samples(log_psi, variables, samples[0]))
    module = _module_in(log_psi)
    if mixes or not (has_values or mixes is None):
        return Findings(bool(mixes), None)
    if not has_values:
        return Findings(True, None)

    def answer() -> Findings | str:
        some, differ = some_samples(samples)
        is_mixed = mixes is None and differs_alone(log_psi, variables, some)
        if module is None:
            is_modules, is_sure = False, bool(differ)
        else:
            is_modules, is_sure = map(bool, _compare(log_psi, module, variables, some))
        found = Findings(is_mixed, module if is_modules and is_sure else None)
        if found.model is not None:
            _models.pop(log_psi, None)
            _models[log_psi] = found.model
        return found if is_mixed or is_sure or (mixes is False and module is None) else UNSURE

    found = cached_answer("samples and model", subject, variables, answer)
    return Findings(False, None) if found is UNSURE else found


def model_of_function(log_psi: Callable[..., Any]) -> nn.Module | None:
    """The module of :data:`KNOWN` whose log-amplitude a function is, if :func:`examine` has found so."""
    return _models.get(log_psi)


def _module_in(function: Any) -> nn.Module | None:
    """A module of :data:`KNOWN` that a function holds: NetKet wraps that of a state into partials.

    A subclass may be another function.
    """
    if type(function) in KNOWN:
        module: nn.Module = function
        return module
    held = getattr(function, "__self__", None)
    inner = (*function.args, function.func) if isinstance(function, HashablePartial | partial) else (held,)
    found = (_module_in(each) for each in inner if each is not None)
    return next((module for module in found if module is not None), None)


@jax.jit
def some_samples(samples: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Some samples on each device, and whether they differ.

    Samples of Markov chains may be alike, and a mean of alike ones shows nothing: those unlike the first come first.
    """
    differs = (samples != samples[0]).any(axis=1)
    some = samples[jnp.argsort(~differs.at[0].set(True))[:_FEW]]
    return replicated(some), differs.any()


@partial(jax.jit, static_argnums=(0, 1))
def _compare(
    log_psi: Callable[..., Any], module: nn.Module, variables: Any, some: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Whether it is the module's log-amplitude, and whether there would be something to see."""
    own, modules = log_psi(variables, some), module.apply(variables, some)
    if jnp.shape(modules) != own.shape:
        return jnp.asarray(False), jnp.asarray(True)
    return jnp.isclose(modules, own, rtol=1e-6, atol=1e-6).all(), jnp.isfinite(own).all()
