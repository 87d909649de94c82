"""How large integers of a network become: the kernels compute with real numbers, which don't wrap around."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

_OF_SIGNS = ("bitcast_convert_type", "shift_right_arithmetic", "sign")
"""Of the bits of a number there is only the sign."""
_CHOSEN = ("max", "min", "clamp", "select_n", "reduce_max", "reduce_min", "abs", "neg", "convert_element_type", "copy")
_ORDERED = ("broadcast_in_dim", "expand_dims", "squeeze", "reshape", "transpose", "rev", "optimization_barrier")
_PICKED = ("concatenate", "gather", "pad", "slice", "split", "stack", "tile", "unstack")
_SAME = ("copy_p", "pcast", "pvary", "reshard", "sharding_constraint", "stop_gradient")
_BY_NAME: dict[str, Callable[[Sequence[float], Sequence[int]], float]] = {
    **dict.fromkeys(("add", "add_any", "sub"), lambda operands, _: sum(operands)),
    "mul": lambda operands, _: math.prod(operands),
    **dict.fromkeys(("reduce_sum", "cumsum"), lambda operands, sizes: operands[0] * sizes[0]),
    "scatter-add": lambda operands, sizes: operands[0] + operands[2] * sizes[2],
    "rem": lambda operands, _: min(operands),
    **dict.fromkeys(("div", "sort", "lu_pivots_to_permutation"), lambda operands, _: operands[0]),
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
    if name in _BY_NAME:
        return _BY_NAME[name](operands, [v.aval.size for v in eqn.invars])
    return max(operands) if name in _KEEPING else math.inf


def most(dtype: Any, real: Any) -> float:
    """The greatest integer of a dtype that is also one of these real numbers, as those below it are."""
    return min(jnp.iinfo(dtype).max, 2.0 ** (jnp.finfo(real).nmant + 1))
