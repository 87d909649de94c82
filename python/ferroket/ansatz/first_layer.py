"""The first layer of any network, where it is a sum over the sites, read from the network's jaxpr.

Dense layers, convolutions and embeddings of a configuration σ, with a bias, are Σ_i f_i(σ_i). Where a few sites
change, a few of the f_i do, so the sums are updated in the place of computing them. What the network makes of them is
the *rest*.

A value of the program is *separable* if each of its elements depends on one site, whatever the function. Products with
parameters and sums of its elements are *sums*. What is neither is the rest's, and so is what several equations make of
the same sums.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from ferroket.ansatz.dependence import NONE, is_of_one, labels_of
from ferroket.ansatz.equations import MOVING, evaluate, inlined, needed
from ferroket.ffi import FirstLayerTables
from ferroket.reasons import Reason, ReasonKind

if TYPE_CHECKING:
    from ferroket.operator.compiled import LocalStates

_MOVING = (*MOVING, "copy_p", "pad", "split", "stack", "unstack", "tile", "pvary", "pcast")
"""Primitives that give elements other places."""
_LINEAR = ("convert_element_type", "neg", "real", "imag", "conj", "reduce_sum", "cumsum", "add", "add_any", "sub")
"""Primitives that are linear in all their operands together."""
_PRODUCTS = ("mul", "dot_general")
"""Primitives that are linear in one operand if the others don't depend on σ."""
_OF_FIRST = ("div", "conv_general_dilated")
"""Those that are so in the first operand alone."""
_WIDEST = 4096
"""Longer sums take longer to update than it takes to compute the layer."""
_SHORTEST = 32
"""Sums of numbers with fewer bits would lose too much where they are updated."""
_LARGEST = {4: 1e3, 8: 1e6}
"""The largest number in tables of sums that are updated, by the size of a number: each update is off by its rounding,
and a term that is infinite or huge for a local state would leave nothing of the others."""
IMMODERATE = Reason(
    "a term of its first layer is infinite or huge, and a difference of sums would forget the others",
    ReasonKind.LARGE_NUMBERS,
)
"""Why a first layer isn't updated, as the end of a sentence, where :func:`are_moderate` says no."""
_AT_ONCE = 1 << 24
"""So many elements of a layer's activations are computed at once for its tables."""


@dataclass(frozen=True)
class FirstLayer:
    """A network ln ψ(σ) = rest(σ, Σ_i f_i(σ_i)), for one configuration σ of shape ``(N,)``."""

    width: int
    """How many sums there are, as real numbers."""
    sums: Callable[[Any, jax.Array], jax.Array]
    """``sums(variables, x)`` gives them, ``(width,)``."""
    rest: Callable[[Any, jax.Array, jax.Array], jax.Array]
    """``rest(variables, x, sums)`` gives ln ψ. Where x isn't needed XLA leaves out what is made of it."""
    is_configuration: bool = False
    """Whether the sums are the configuration itself: see :func:`of_configuration`."""

    def tables(self, variables: Any, sites: "LocalStates", of_x: Any, dtype: Any) -> FirstLayerTables:
        """What the kernels take: the sums where all sites have their first local state, and what each other one adds.

        Args:
            variables: The variables of the network.
            sites: The sites.
            of_x: The dtype of configurations.
            dtype: That of the tables.
        """
        n_sites, n_more = sites.n_sites, max(sites.sizes, default=1) - 1
        kind = jnp.asarray(sites.kind) if sites.kind.size else jnp.zeros(n_sites, int)
        starts, steps, sizes = (jnp.asarray(values, float)[kind] for values in (sites.starts, sites.steps, sites.sizes))
        site, state = (axis.ravel() for axis in np.indices((n_sites, n_more)))
        index = np.zeros((1 + len(site), n_sites))
        index[1 + np.arange(len(site)), site] = state + 1
        x = (starts + steps * jnp.minimum(index, sizes - 1)).astype(of_x)
        at_once = min(max(_AT_ONCE // max(n_sites * self.width, 1), 1), len(x))
        sums = jax.lax.map(partial(self.sums, variables), x, batch_size=at_once)
        constant, table = sums[0], sums[1:] - sums[0]
        return FirstLayerTables(constant.astype(dtype), table.reshape(n_sites, n_more, self.width).astype(dtype))


def of_configuration(log_psi: Callable[[Any, jax.Array], jax.Array], dtype: Any, x: Any) -> FirstLayer:
    """The configuration itself as the sums, of numbers of a dtype, for networks without a first layer."""

    def sums(_: Any, x: jax.Array) -> jax.Array:
        return x.astype(dtype)

    def rest(variables: Any, _: jax.Array, sums: jax.Array) -> jax.Array:
        return log_psi(variables, sums[None]).reshape(())

    return FirstLayer(x.shape[0], sums, rest, is_configuration=True)


def are_moderate(tables: FirstLayerTables) -> jax.Array:
    """Whether sums lose nothing where they are updated: all numbers of the tables are finite, and not large."""
    largest = _LARGEST[jnp.dtype(tables.table.dtype).itemsize]
    return jnp.array([(jnp.abs(part) <= largest).all() for part in tables]).all()


def read(log_psi: Callable[[Any, jax.Array], jax.Array], variables: Any, x: jax.Array) -> FirstLayer | None:
    """The first layer of a network; None if it has none, or if JAX can't evaluate the rest for many at once.

    Args:
        log_psi: ``log_psi(variables, x)`` for ``x (n, N)`` gives ``(n,)``.
        variables: Its variables, or their shapes.
        x: A configuration ``(N,)``, or its shape.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), (variables, x))
    jaxpr = inlined(jax.make_jaxpr(lambda variables, x: log_psi(variables, x[None]).reshape(()))(*shapes))
    found = _sums_of_rest(jaxpr)
    widths = [math.prod(v.aval.shape) * (1 + jnp.issubdtype(v.aval.dtype, jnp.complexfloating)) for v in found]
    if not 0 < sum(widths) <= _WIDEST:
        return None

    def sums(variables: Any, x: jax.Array) -> jax.Array:
        return jnp.concatenate([_real(value) for value in evaluate(jaxpr, [*jax.tree.leaves(variables), x], found)])

    def rest(variables: Any, x: jax.Array, sums: jax.Array) -> jax.Array:
        ends = np.cumsum(widths)
        parts = (
            [sums[end - width : end] for width, end in zip(widths, ends, strict=True)] if len(widths) > 1 else [sums]
        )
        given = {v: _like(part, v.aval) for v, part in zip(found, parts, strict=True)}
        (result,) = evaluate(jaxpr, [*jax.tree.leaves(variables), x], jaxpr.jaxpr.outvars, given)
        return jnp.asarray(result)

    several = [
        jax.ShapeDtypeStruct((2, *like.shape), like.dtype) for like in (shapes[1], jax.eval_shape(sums, *shapes))
    ]
    try:
        jax.eval_shape(jax.vmap(rest, (None, 0, 0)), shapes[0], *several)
    except (NotImplementedError, ValueError):  # a callback that takes one configuration at a time
        return None
    return FirstLayer(sum(widths), sums, rest)


def _sums_of_rest(jaxpr: ClosedJaxpr) -> list[Any]:
    """The variables of sums over the sites that the rest of a network takes, in the order of its equations."""
    *others, x = jaxpr.in_avals
    labels = labels_of(jaxpr, [*(None for _ in others), np.arange(*x.shape, dtype=np.int32)])
    eqns = needed(jaxpr.jaxpr, jaxpr.jaxpr.outvars)
    results = [v for v in jaxpr.jaxpr.outvars if not isinstance(v, Literal)]
    uses = Counter([v for eqn in eqns for v in eqn.invars if not isinstance(v, Literal)] + results)
    sums: dict[Any, bool] = {}  # whether the rest takes them

    def depends(v: Any) -> bool:
        return not isinstance(v, Literal) and bool((labels[v] != NONE).any())

    def is_additive(v: Any) -> bool:
        """Whether it is a sum over the sites: an element of one site is, too."""
        return not depends(v) or is_of_one(labels[v]) or (v in sums and uses[v] == 1)

    for eqn in eqns:
        out = eqn.outvars[0]
        is_sum = (
            not all(is_of_one(labels[v]) for v in eqn.outvars)
            and _is_linear(eqn, [depends(v) for v in eqn.invars])
            and all(map(is_additive, eqn.invars))
            and jnp.issubdtype(out.aval.dtype, jnp.inexact)
            and jnp.finfo(out.aval.dtype).bits >= _SHORTEST
        )
        if is_sum:
            sums.update(dict.fromkeys(eqn.outvars, False))
        for v in eqn.invars:
            if not isinstance(v, Literal) and v in sums and (not is_sum or uses[v] > 1):
                sums[v] = True
    return [v for v, is_taken in sums.items() if is_taken or v in results]


def _is_linear(eqn: Any, depend: list[bool]) -> bool:
    """Whether an equation's results are linear, but for a constant, in those operands that depend on σ."""
    name = eqn.primitive.name
    if name in (*_MOVING, *_LINEAR):
        return True
    return sum(depend) == 1 and (name in _PRODUCTS or (name in _OF_FIRST and depend[0]))


def _real(value: jax.Array) -> jax.Array:
    """Numbers as real ones, in one dimension."""
    flat = value.ravel()
    return jnp.concatenate([flat.real, flat.imag]) if jnp.iscomplexobj(flat) else flat


def _like(numbers: jax.Array, like: Any) -> jax.Array:
    """What :func:`_real` was given."""
    if jnp.issubdtype(like.dtype, jnp.complexfloating):
        numbers = jax.lax.complex(*jnp.split(numbers, 2))
    return numbers.reshape(like.shape).astype(like.dtype)
