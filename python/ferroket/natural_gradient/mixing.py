"""Whether a network treats each sample on its own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

_FEW = 3

_known: dict[Any, bool] = {}


def mixes_samples(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: jax.Array) -> bool:
    """Whether ln ψ of a sample depends on the others, as with batch normalisation.

    The log-derivatives of such a network aren't those of one sample alone. It is evaluated on some samples, together
    and each alone; once for each network.

    Args:
        log_psi: ``log_psi({"params": parameters, **state}, x)`` for ``x (Ns, N)`` gives ``(Ns,)``.
        parameters: A pytree.
        state: Other collections of variables.
        samples: ``(Ns, N)``.
    """
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves((parameters, state)))
    key = (log_psi, jax.tree.structure((parameters, state)), shapes, samples.shape[1:], str(samples.dtype))
    if key not in _known:
        _known[key] = bool(_differ(log_psi, parameters, state, samples))
    return _known[key]


@partial(jax.jit, static_argnums=0)
def _differ(log_psi: Callable[..., Any], parameters: Any, state: Any, samples: jax.Array) -> jax.Array:
    # Samples of Markov chains may be alike, and a mean of alike ones shows nothing: each is taken with another order of
    # its sites as well.
    some = jnp.concatenate([samples[:_FEW], samples[:_FEW, ::-1]])
    variables = {"params": parameters, **state}
    together = log_psi(variables, some)
    alone = jax.vmap(lambda x: log_psi(variables, x[None]).reshape(()))(some)
    same = jnp.isclose(together, alone, rtol=1e-3, atol=1e-3) | ~jnp.isfinite(together)
    return ~same.all()
