"""What a network's program, its jaxpr, consists of: for those who follow values through it, equation by equation."""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from ferroket._compat.jax import jaxpr_of

MOVING = ("transpose", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "concatenate", "rev", "copy")
"""Primitives that give the elements of values other places: a convolution's circular padding is made of them."""

CALLS = ("pjit", "jit", "closed_call", "core_call", "checkpoint", "remat", "remat2")
"""Primitives whose jaxpr is evaluated as if it stood in their place."""


def bind(eqn: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """What an equation gives, also where the primitive has functions among its settings."""
    unique = {v: x for v, x in zip(eqn.invars, inputs, strict=True) if not isinstance(v, Literal)}
    alone = jaxpr_of(eqn, list(unique))
    results: Sequence[Any] = jaxpr_as_fun(ClosedJaxpr(alone, []))(*unique.values())
    return results


def called(eqn: Any) -> tuple[Jaxpr, Sequence[Any]]:
    """The jaxpr of one of :data:`CALLS`, and its constants."""
    return opened(eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"])


def opened(jaxpr: Any) -> tuple[Jaxpr, Sequence[Any]]:
    """A jaxpr, and its constants."""
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, ClosedJaxpr) else (jaxpr, ())
