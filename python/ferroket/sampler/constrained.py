"""NetKet's chains in spaces with a constraint of the user's own: they respect it."""

from typing import Any

import jax
import jax.numpy as jnp
from netket.sampler.rules import MetropolisRule

from ferroket._compat.netket import HamiltonianRule
from ferroket.operator.cache import accelerated
from ferroket.operator.constraints.hilbert import allowed, constraint_functions, user_constraints
from ferroket.sampler.rules import SiteExchangeRule


class ConstrainedRule(MetropolisRule):
    """A rule whose proposals are rejected if they lead out of the Hilbert space of the sampler.

    How likely a move is proposed is as before, so that detailed balance is that of the rule.

    Args:
        rule: The rule.
    """

    rule: Any

    def __init__(self, rule: Any) -> None:
        self.rule = rule

    def transition(
        self, sampler: Any, machine: Any, parameters: Any, state: Any, key: Any, x: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """The rule's proposals; in the place of those that lead out, where the chain is, never to be accepted."""
        proposed, correction = self.rule.transition(sampler, machine, parameters, state, key, x)
        inside = allowed(constraint_functions(sampler.hilbert), proposed)
        # The network sees no configuration that isn't in the space.
        proposed = jnp.where(inside[:, None], proposed, x)
        return proposed, jnp.where(inside, 0.0 if correction is None else correction, -jnp.inf)


class ConnectedRule(MetropolisRule):
    """Proposes a configuration that an operator of ours connects within the space, each as likely as the others.

    As NetKet's ``HamiltonianRule``, whose proposals from a configuration without any are none of the space.

    Args:
        operator: The operator.
    """

    operator: Any

    def __init__(self, operator: Any) -> None:
        self.operator = operator

    def transition(
        self, sampler: Any, machine: Any, parameters: Any, state: Any, key: Any, x: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """A connected configuration for each chain, and how many there are here as against there, as a logarithm."""
        xp, mels = self.operator.get_conn_padded(x)
        until = jnp.cumsum(mels != 0, axis=-1)
        here = until[:, -1]
        which = jnp.floor(jax.random.uniform(key, here.shape) * here).astype(until.dtype)
        # The first element up to which there are more than that; without any it is the first one, in the space as well.
        element = jnp.argmax(until > which[:, None], axis=-1)
        proposed = jnp.take_along_axis(xp, element[:, None, None], axis=1)[:, 0]
        there = self.operator.n_conn(proposed)
        return proposed, jnp.where(here > 0, jnp.log(jnp.maximum(here, 1)) - jnp.log(jnp.maximum(there, 1)), -jnp.inf)


def constrained(sampler: Any) -> Any:
    """A sampler of NetKet's or ours whose chains respect the constraint of its Hilbert space, by NetKet's code.

    It is the same one where the space has no constraint but conserved sums: then all that matters is which rule it has.
    """
    try:
        constraints = constraint_functions(sampler.hilbert)
    except TypeError:  # NetKet's sampler, which goes on without us
        constraints = ()
    if not constraints or isinstance(sampler.rule, ConstrainedRule | ConnectedRule):
        return sampler
    if isinstance(sampler.rule, SiteExchangeRule) and not user_constraints(sampler.hilbert):
        return sampler  # which keeps to limits of sites by itself
    return sampler.replace(rule=_constrained(sampler.rule))


def _constrained(rule: Any) -> ConstrainedRule | ConnectedRule:
    if isinstance(rule, HamiltonianRule):
        operator = accelerated(rule.operator)
        if operator is not None:
            return ConnectedRule(operator)
    return ConstrainedRule(rule)
