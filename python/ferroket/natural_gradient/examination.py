"""What is found out about a log-amplitude by evaluating it, once, before it is differentiated.

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


_MOST = 256
"""Networks whose findings are kept: a script that makes one after the other doesn't keep all of them."""

_known: dict[Any, Findings] = {}
_models: dict[Callable[..., Any], nn.Module] = {}


def examine(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: jax.Array) -> Findings:
    """Evaluates a log-amplitude on some samples, together and each alone.

    Once for each network, as soon as there are samples that differ.

    Args:
        log_psi: ``log_psi({"params": parameters, **state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        state: Other collections of variables.
        samples: ``(Ns, N)``.
    """
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves((parameters, state)))
    key = (log_psi, jax.tree.structure((parameters, state)), shapes, samples.shape[1:], str(samples.dtype))
    if key in _known:
        return _known[key]
    module = _module_in(log_psi)
    mixes, is_modules, is_sure = map(bool, _compare(log_psi, module, parameters, state, samples))
    found = Findings(mixes, module if is_modules and is_sure else None)
    if mixes or is_sure:
        _keep(_known, key, found)
        if found.model is not None:
            _keep(_models, log_psi, found.model)
    return found


def _keep(found: dict[Any, Any], key: Any, value: Any) -> None:
    """Adds an item as the latest one, and drops the first ones that are too many."""
    found.pop(key, None)
    found[key] = value
    while len(found) > _MOST:
        del found[next(iter(found))]


def model_of_function(log_psi: Callable[..., Any]) -> nn.Module | None:
    """The module of :data:`KNOWN` whose log-amplitude a function is, if :func:`examine` has found so."""
    return _models.get(log_psi)


def _module_in(function: Any) -> nn.Module | None:
    """A module of :data:`KNOWN` that a function holds: NetKet wraps that of a state into partials."""
    if isinstance(function, KNOWN):
        return function
    held = getattr(function, "__self__", None)
    inner = (*function.args, function.func) if isinstance(function, HashablePartial | partial) else (held,)
    found = (_module_in(each) for each in inner if each is not None)
    return next((module for module in found if module is not None), None)


@partial(jax.jit, static_argnums=(0, 1))
def _compare(
    log_psi: Callable[..., Any], module: nn.Module | None, parameters: Any, state: Any, samples: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Whether samples mix, whether it is the module's log-amplitude, and whether there would be something to see."""
    # Samples of Markov chains may be alike, and a mean of alike ones shows nothing: those unlike the first come first.
    differs = (samples != samples[0]).any(axis=1)
    some = samples[jnp.argsort(~differs.at[0].set(True))[:_FEW]]
    variables = {"params": parameters, **state}
    together = log_psi(variables, some)
    alone = jax.vmap(lambda x: log_psi(variables, x[None]).reshape(()))(some)
    is_finite = jnp.isfinite(together)
    mixes = ~(jnp.isclose(together, alone, rtol=1e-3, atol=1e-3) | ~is_finite).all()
    is_sure = differs.any() & is_finite.all()
    modules = together if module is None else module.apply(variables, some)
    if module is None or jnp.shape(modules) != together.shape:
        return mixes, jnp.asarray(False), is_sure
    return mixes, jnp.isclose(modules, together, rtol=1e-6, atol=1e-6).all(), is_sure
