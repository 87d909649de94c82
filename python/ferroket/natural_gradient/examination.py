"""What is found out about a log-amplitude by evaluating it, once, before it is differentiated.

Whether it treats each sample on its own, and whether it is the amplitude of a Flax module as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from netket.jax import HashablePartial

_FEW = 3


@dataclass(frozen=True)
class Findings:
    """What :func:`examine` has found."""

    mixes_samples: bool
    """Whether ln ψ of a sample depends on the others, as with batch normalisation: the log-derivatives of such a
    network aren't those of one sample alone."""
    model: nn.Module | None
    """The module whose log-amplitude it is."""


_known: dict[Any, Findings] = {}
_models: dict[Callable[..., Any], nn.Module] = {}


def examine(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: jax.Array) -> Findings:
    """Evaluates a log-amplitude on some samples, together and each alone; once for each network.

    Args:
        log_psi: ``log_psi({"params": parameters, **state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        state: Other collections of variables.
        samples: ``(Ns, N)``.
    """
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves((parameters, state)))
    key = (log_psi, jax.tree.structure((parameters, state)), shapes, samples.shape[1:], str(samples.dtype))
    if key not in _known:
        module = _module_in(log_psi)
        mixes, is_modules = _compare(log_psi, module, parameters, state, samples)
        model = module if bool(is_modules) else None
        if model is not None:
            _models[log_psi] = model
        _known[key] = Findings(bool(mixes), model)
    return _known[key]


def model_of_function(log_psi: Callable[..., Any]) -> nn.Module | None:
    """The module whose log-amplitude a function is, if :func:`examine` has found so."""
    return _models.get(log_psi)


def _module_in(function: Any) -> nn.Module | None:
    """A Flax module that a function holds: NetKet wraps that of a state into partials."""
    if isinstance(function, nn.Module):
        return function if _has_hash(function) else None
    held = getattr(function, "__self__", None)
    inner = (*function.args, function.func) if isinstance(function, HashablePartial | partial) else (held,)
    found = (_module_in(each) for each in inner if each is not None)
    return next((module for module in found if module is not None), None)


def _has_hash(module: nn.Module) -> bool:
    """Whether its settings can be told from others', as those of a program."""
    try:
        hash(module)
    except TypeError:
        return False
    return True


@partial(jax.jit, static_argnums=(0, 1))
def _compare(
    log_psi: Callable[..., Any], module: nn.Module | None, parameters: Any, state: Any, samples: jax.Array
) -> tuple[jax.Array, jax.Array]:
    # Samples of Markov chains may be alike, and a mean of alike ones shows nothing: each is taken with another order of
    # its sites as well.
    some = jnp.concatenate([samples[:_FEW], samples[:_FEW, ::-1]])
    variables = {"params": parameters, **state}
    together = log_psi(variables, some)
    alone = jax.vmap(lambda x: log_psi(variables, x[None]).reshape(()))(some)
    unknown = ~jnp.isfinite(together)
    same = jnp.isclose(together, alone, rtol=1e-3, atol=1e-3) | unknown
    if module is None:
        return ~same.all(), jnp.asarray(False)
    modules = module.apply(variables, some)
    if jnp.shape(modules) != together.shape:
        return ~same.all(), jnp.asarray(False)
    return ~same.all(), (jnp.isclose(modules, together, rtol=1e-6, atol=1e-6) & ~unknown).all()
