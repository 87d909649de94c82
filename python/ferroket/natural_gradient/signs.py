"""Whether a wave function is real up to signs, read from the jaxpr of ln ψ.

Then the derivatives of Im ln ψ are zero, and so are half of the rows that a complex ln ψ has: determinants of real
orbitals, and sums of them, have a complex ln ψ for the sake of their sign.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from ferroket.ansatz.equations import CALLS, MOVING, called
from ferroket.ffi import log_determinants_p
from ferroket.models.pair_sums import pair_sums_p


class _Kind(IntEnum):
    """What is known of a value."""

    TURNS = -1
    """Multiples of π."""
    REAL = 0
    LOGARITHM = 1
    """Of a real number: its imaginary part is a multiple of π."""
    COMPLEX = 2


_ADDING = (
    *(*MOVING, "copy_p", "pvary", "pcast", "pad", "gather", "dynamic_slice", "stop_gradient"),
    *("add", "add_any", "sub", "neg", "reduce_sum", "convert_element_type"),
)
"""Primitives that give what the worst of their operands is."""
_MULTIPLYING = ("mul", "div", "dot_general", "integer_pow", "square", "exp")
"""Primitives that give real numbers if they are given some."""


def is_real_up_to_signs(jaxpr: ClosedJaxpr) -> bool:
    """Whether ln ψ, which has one result, is known to be the logarithm of a real number."""
    given = [_of_dtype(v.aval) for v in jaxpr.jaxpr.invars]
    return max(_kinds(jaxpr.jaxpr, jaxpr.consts, given)) <= _Kind.LOGARITHM


def _of_dtype(value: Any) -> _Kind:
    return _Kind.COMPLEX if jnp.issubdtype(value.dtype, jnp.complexfloating) else _Kind.REAL


def _of_constant(value: Any) -> _Kind:
    if isinstance(value, jax.core.Tracer):
        return _of_dtype(jnp.asarray(value))
    if not jnp.iscomplexobj(value):
        return _Kind.TURNS if _are_turns(np.asarray(value)) else _Kind.REAL
    imag = np.asarray(value).imag
    if not imag.any():
        return _Kind.REAL
    return _Kind.LOGARITHM if _are_turns(imag) else _Kind.COMPLEX


def _are_turns(angles: np.ndarray) -> bool:
    """Whether these are multiples of π."""
    turns = angles / np.pi
    return bool(np.allclose(turns, np.round(turns), rtol=0, atol=1e-6))


def _kinds(jaxpr: Jaxpr, consts: Sequence[Any], given: Sequence[_Kind]) -> list[_Kind]:
    """Of the results."""
    kinds = dict(zip(jaxpr.constvars, map(_of_constant, consts), strict=True))
    kinds.update(zip(jaxpr.invars, given, strict=True))

    def kind_of(v: Any) -> _Kind:
        return _of_constant(v.val) if isinstance(v, Literal) else kinds[v]

    for eqn in jaxpr.eqns:
        inputs = [kind_of(v) for v in eqn.invars]
        if eqn.primitive.name in CALLS:
            found = _kinds(*called(eqn), inputs)
        else:
            found = [_made_by(eqn, inputs)] * len(eqn.outvars)
        outs = zip(eqn.outvars, found, strict=True)
        kinds.update({v: min(kind, _of_dtype(v.aval)) for v, kind in outs if hasattr(v.aval, "dtype")})
    return [kind_of(v) for v in jaxpr.outvars]


def _made_by(eqn: Any, inputs: Sequence[_Kind]) -> _Kind:
    """What an equation gives, unless its result is of a real dtype."""
    worst = max(inputs, default=_Kind.COMPLEX)
    name = eqn.primitive.name
    if name == "complex":
        return _Kind.LOGARITHM if inputs[1] == _Kind.TURNS else _Kind.COMPLEX
    if name == "select_n":
        return max(inputs[1:])
    if name in _ADDING:
        return worst
    if name == "exp" and worst <= _Kind.LOGARITHM:
        return _Kind.REAL
    if eqn.primitive in (log_determinants_p, pair_sums_p) or name == "log":
        return _Kind.LOGARITHM if worst <= _Kind.REAL else _Kind.COMPLEX
    return _Kind.REAL if name in _MULTIPLYING and worst <= _Kind.REAL else _Kind.COMPLEX
