"""How large integers of a network become: the kernels compute with real numbers, which don't wrap around."""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from ferroket.ansatz.equations import inlined
from ferroket.ansatz.verification import Subject, shapes_of
from ferroket.reasons import Reason, ReasonKind

_OF_SIGNS = ("bitcast_convert_type", "shift_right_arithmetic", "sign")
"""Of the bits of a number there is only the sign."""
_CHOSEN = ("max", "min", "clamp", "select_n", "reduce_max", "reduce_min", "abs", "neg", "convert_element_type", "copy")
_ORDERED = ("broadcast_in_dim", "expand_dims", "squeeze", "reshape", "transpose", "rev", "optimization_barrier")
_PICKED = ("concatenate", "pad", "slice", "split", "stack", "tile", "unstack")
_SAME = ("copy_p", "pcast", "pvary", "reshard", "sharding_constraint", "stop_gradient")
_BY_NAME: dict[str, Callable[[Sequence[float], Sequence[int]], float]] = {
    **dict.fromkeys(("add", "add_any", "sub"), lambda operands, _: sum(operands)),
    "mul": lambda operands, _: math.prod(operands),
    **dict.fromkeys(("reduce_sum", "cumsum"), lambda operands, sizes: operands[0] * sizes[0]),
    "scatter-add": lambda operands, sizes: operands[0] + operands[2] * sizes[2],
    "rem": lambda operands, _: min(operands),
    "square": lambda operands, _: operands[0] ** 2,
    **dict.fromkeys(("reduce_prod", "cumprod"), lambda operands, _: 1 if operands[0] <= 1 else math.inf),
    **dict.fromkeys(("div", "gather", "sort", "lu_pivots_to_permutation"), lambda operands, _: operands[0]),
}
_KEEPING = {*_CHOSEN, *_ORDERED, *_PICKED, *_SAME}


def largest(eqn: Any, operands: Sequence[float]) -> float:
    """The greatest modulus that an integer result may have.

    Args:
        eqn: the equation of a network's program.
        operands: the greatest moduli of what it takes.
    """
    name = eqn.primitive.name
    if eqn.outvars[0].aval.dtype == np.bool_ or name in _OF_SIGNS:
        return 1
    if name == "integer_pow":
        return _power(operands[0], eqn.params["y"])
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return math.prod(operands) * math.prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
    if name in _BY_NAME:
        return _BY_NAME[name](operands, [v.aval.size for v in eqn.invars])
    return max(operands) if name in _KEEPING else math.inf


def _power(base: float, exponent: int) -> float:
    try:
        return base**exponent
    except OverflowError:
        return sys.float_info.max


def most(dtype: Any, real: Any) -> float:
    """The greatest integer of a dtype that is also one of these real numbers, as those below it are."""
    return min(jnp.iinfo(dtype).max, 2.0 ** (jnp.finfo(real).nmant + 1))


def overflow_reason(subject: Subject, variables: Any, states: Sequence[float]) -> Reason | None:
    """Why integers that a network makes of a configuration may wrap around; None if nothing is known of that.

    The kernels see a configuration as real numbers, and what JAX computes with integers doesn't wrap around there.

    Args:
        subject: The network.
        variables: Its variables, or their shapes.
        states: The first and the last local state of the sites, and others.
    """
    x = subject.like_one()
    if not jnp.issubdtype(x.dtype, jnp.integer):
        return None
    jaxpr = inlined(
        jax.make_jaxpr(lambda variables, x: subject.log_psi(variables, x[None]))(shapes_of(variables), x),
        with_loops=True,
    )
    bounds = {jaxpr.jaxpr.invars[-1]: float(np.abs(states).max(initial=0))}
    for v, value in zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True):
        if _is_counted(v) and not isinstance(value, jax.core.Tracer):
            bounds[v] = float(np.abs(np.asarray(value, float)).max(initial=0))
    for eqn in jaxpr.eqns:
        operands = [float(np.abs(v.val)) if isinstance(v, Literal) else bounds.get(v, math.inf) for v in eqn.invars]
        for v in filter(_is_counted, eqn.outvars):
            found = largest(eqn, operands)
            if v.aval.dtype != np.bool_ and jnp.iinfo(v.aval.dtype).max < found < math.inf:
                text = f"its integers of {v.aval.dtype} may be too large ('{eqn.primitive.name}')"
                return Reason(text, ReasonKind.OPERATION)
            if math.isfinite(found):
                bounds[v] = found
    return None


def _is_counted(v: Any) -> bool:
    return bool(jnp.issubdtype(v.aval.dtype, jnp.integer) or v.aval.dtype == np.bool_)
