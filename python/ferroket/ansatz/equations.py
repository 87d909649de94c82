"""What a network's program, its jaxpr, consists of: for those who follow values through it, equation by equation."""

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from ferroket._compat.jax import expansion_of, index_of_platform, inputs_of_scan, jaxpr_of, solution_of
from ferroket.ffi.primitives import DEFINITIONS
from ferroket.models.pairs import sum_over_pairs_p

MOVING = ("transpose", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "slice", "concatenate", "rev", "copy")
"""Primitives that give the elements of values other places: a convolution's circular padding is made of them."""

CALLS = ("pjit", "jit", "closed_call", "core_call", "checkpoint", "remat", "remat2", sum_over_pairs_p.name)
"""Primitives whose jaxpr, or definition, is evaluated as if it stood in their place."""

CUSTOM_CALLS = ("custom_jvp_call", "custom_vjp_call", "call_hi_primitive")
"""The same, of functions whose derivatives somebody has defined: only values may be computed so.

From JAX 0.12 on, ``call_hi_primitive`` is any of the functions that JAX writes out late, such as :func:`jnp.nonzero`.
"""


def bind(eqn: Any, inputs: Sequence[Any]) -> Sequence[Any]:
    """What an equation gives, also where the primitive has functions among its settings."""
    unique = {v: x for v, x in zip(eqn.invars, inputs, strict=True) if not isinstance(v, Literal)}
    alone = jaxpr_of(eqn, list(unique))
    results: Sequence[Any] = jaxpr_as_fun(ClosedJaxpr(alone, []))(*unique.values())
    return results


def called(eqn: Any) -> tuple[Jaxpr, Sequence[Any]]:
    """The jaxpr of one of :data:`CALLS` or :data:`CUSTOM_CALLS`, and its constants."""
    definition = DEFINITIONS.get(eqn.primitive) or expansion_of(eqn)
    if definition is not None:
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
        return opened(jax.make_jaxpr(partial(definition, **eqn.params))(*shapes))
    return opened(eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"])


def opened(jaxpr: Any) -> tuple[Jaxpr, Sequence[Any]]:
    """A jaxpr, and its constants."""
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, ClosedJaxpr) else (jaxpr, ())


_LONGEST = 64
"""Loops of more steps aren't written out."""


def inlined(jaxpr: ClosedJaxpr, *, with_loops: bool = False) -> ClosedJaxpr:
    """The same program for values alone, without :data:`CALLS` and :data:`CUSTOM_CALLS`: one list of equations.

    Args:
        jaxpr: The program.
        with_loops: Whether loops of a few steps are written out, too.
    """

    def run(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
        for eqn in jaxpr.eqns:
            inputs = [v.val if isinstance(v, Literal) else values[v] for v in eqn.invars]
            name = eqn.primitive.name
            if name in (*CALLS, *CUSTOM_CALLS) or eqn.primitive in DEFINITIONS:
                results: Sequence[Any] = run(*called(eqn), inputs)
            elif name == "custom_linear_solve":
                results = run(*solution_of(eqn, inputs))
            elif name == "platform_index":
                results = [index_of_platform(eqn)]
            elif name == "cond" and not isinstance(inputs[0], jax.core.Tracer):
                results = run(*opened(eqn.params["branches"][int(inputs[0])]), inputs[1:])
            elif with_loops and name == "scan" and 0 < eqn.params["length"] <= _LONGEST:
                results = loop(eqn.params, inputs)
            else:
                results = bind(eqn, inputs)
            values.update(zip(eqn.outvars, results, strict=True))
        return [v.val if isinstance(v, Literal) else values[v] for v in jaxpr.outvars]

    def loop(settings: Any, inputs: Sequence[Any]) -> list[Any]:
        n_consts, n_carry = inputs_of_scan(settings)
        consts, carry, parts = inputs[:n_consts], inputs[n_consts : n_consts + n_carry], inputs[n_consts + n_carry :]
        steps = []
        for step in range(settings["length"])[:: -1 if settings["reverse"] else 1]:
            of_step = [jax.lax.index_in_dim(part, step, keepdims=False) for part in parts]
            results = run(*opened(settings["jaxpr"]), [*consts, *carry, *of_step])
            carry = results[:n_carry]
            steps.append(results[n_carry:])
        steps = steps[::-1] if settings["reverse"] else steps
        return [*carry, *(jnp.stack(of_steps) for of_steps in zip(*steps, strict=True))]

    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in jaxpr.in_avals]
    return jax.make_jaxpr(lambda *args: run(jaxpr.jaxpr, jaxpr.consts, args))(*shapes)


def needed(jaxpr: Jaxpr, wanted: Iterable[Any], given: Container[Any] = ()) -> list[Any]:
    """The equations of a program that some of its variables need, in order, where others are given."""
    open_ones = {v for v in wanted if not isinstance(v, Literal) and v not in given}
    found = []
    for eqn in reversed(jaxpr.eqns):
        if not open_ones.isdisjoint(eqn.outvars):
            found.append(eqn)
            open_ones.difference_update(eqn.outvars)
            open_ones.update(v for v in eqn.invars if not isinstance(v, Literal) and v not in given)
    return found[::-1]


def evaluate(
    jaxpr: ClosedJaxpr, args: Sequence[Any], wanted: Sequence[Any], given: Mapping[Any, Any] | None = None
) -> list[Any]:
    """Some values of a program: only the equations that they need are evaluated.

    Args:
        jaxpr: The program.
        args: Its arguments.
        wanted: The variables, or literals, whose values are returned.
        given: The values of some variables, in the place of those that the program would compute.
    """
    given = given or {}
    variables = [*jaxpr.jaxpr.constvars, *jaxpr.jaxpr.invars]
    values: dict[Any, Any] = {**dict(zip(variables, [*jaxpr.consts, *args], strict=True)), **given}
    for eqn in needed(jaxpr.jaxpr, wanted, given):
        results = bind(eqn, [v.val if isinstance(v, Literal) else values[v] for v in eqn.invars])
        values.update({v: result for v, result in zip(eqn.outvars, results, strict=True) if v not in given})
    return [v.val if isinstance(v, Literal) else values[v] for v in wanted]
