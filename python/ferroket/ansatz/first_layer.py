"""The first layer of any network, where it is a sum over the sites, read from the network's jaxpr.

Dense layers, convolutions and embeddings of a configuration σ, with a bias, are Σ_i f_i(σ_i). Where a few sites
change, a few of the f_i do, so the sums are updated in the place of computing them. What the network makes of them is
the *rest*.

Values of the program are followed from the configuration on. Each element of a *separable* one depends on one site;
products with parameters and sums of its elements make *sums*. What is neither is the rest's, and so is what several
equations make of the same sums.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Jaxpr, Literal

from ferroket.ansatz.equations import CALLS, MOVING, bind, called
from ferroket.ffi import Layer

_MOVING = (*MOVING, "copy_p", "pad", "pvary", "pcast")
"""Primitives that give elements other places."""
_LINEAR = ("convert_element_type", "neg", "real", "imag", "conj", "add", "add_any", "sub", "mul", "div")
"""Those that are linear, element by element, in one of their operands if the others don't depend on σ."""
_SUMMING = ("dot_general", "conv_general_dilated", "reduce_sum", "cumsum")
_ELEMENTWISE = (
    *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "xor", "select_n", "max", "min", "clamp", "rem", "sign"),
    *("abs", "integer_pow", "square", "floor", "round", "exp", "log", "sin", "cos", "tanh", "logistic", "pow", "sqrt"),
)
_WIDEST = 4096
"""Longer sums take longer to update than it takes to compute the layer."""
_SHORTEST = 32
"""Numbers of fewer bits would lose too much where sums are updated."""


@dataclass(frozen=True)
class FirstLayer:
    """A network ln ψ(σ) = rest(σ, Σ_i f_i(σ_i)), for one configuration σ of shape ``(N,)``."""

    width: int
    """How many sums there are, as real numbers."""
    sums: Callable[[Any, jax.Array], jax.Array]
    """``sums(variables, x)`` gives them, ``(width,)``."""
    rest: Callable[[Any, jax.Array, jax.Array], jax.Array]
    """``rest(variables, x, sums)`` gives ln ψ. Where x isn't needed XLA leaves out what is made of it."""

    def tables(
        self, variables: Any, first: jax.Array, step: jax.Array, last: jax.Array, n_states: int, dtype: Any
    ) -> Layer:
        """What the kernels take: the sums where all sites have their first local state, and what each other one adds.

        Args:
            variables: The variables of the network.
            first: The first local state of each site, ``(N,)``, of the dtype of the configurations.
            step: How much the second one exceeds it, ``(N,)``.
            last: The index of the last local state of each site, ``(N,)``, or a number for all.
            n_states: D, the most local states of a site.
            dtype: That of the tables.
        """
        n_sites = len(first)
        sums = jax.vmap(self.sums, (None, 0))
        sites, states = (axis.ravel() for axis in np.indices((n_sites, n_states - 1)))
        index = np.zeros((len(sites), n_sites))
        index[np.arange(len(sites)), sites] = states + 1
        others = first + step * jnp.minimum(index, last).astype(first.dtype)
        constant = sums(variables, first[None])[0]
        table = sums(variables, others) - constant
        return Layer(constant.astype(dtype), table.reshape(n_sites, n_states - 1, self.width).astype(dtype))


@dataclass(eq=False)
class _Followed:
    """A value that is separable, or sums."""

    value: jax.Array
    order: Any
    """How the sites are arranged in a separable one; None for sums."""

    @property
    def is_sum(self) -> bool:
        return self.order is None


@dataclass(eq=False)
class _OfRest:
    """A value that depends on σ in another way."""

    value: jax.Array


@dataclass
class _Boundary:
    """The sums that the rest of the network takes, in the order in which it does."""

    given: Sequence[jax.Array] | None = None
    """What the rest gets in their place."""
    taken: list[_Followed] = field(default_factory=list)

    def plain(self, value: Any) -> Any:
        """A value as the rest takes it."""
        if not isinstance(value, _Followed):
            return value.value if isinstance(value, _OfRest) else value
        if not value.is_sum or not jnp.issubdtype(value.value.dtype, jnp.inexact):
            return value.value
        if value not in self.taken:
            self.taken.append(value)
        return value.value if self.given is None else self.given[self.taken.index(value)]


def read(log_psi: Callable[[Any, jax.Array], jax.Array], variables: Any, x: jax.Array) -> FirstLayer | None:
    """The first layer of a network; None if it has none.

    Args:
        log_psi: ``log_psi(variables, x)`` for ``x (n, N)`` gives ``(n,)``.
        variables: Its variables, or their shapes.
        x: A configuration ``(N,)``, or its shape.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), (variables, x))
    jaxpr = jax.make_jaxpr(lambda variables, x: log_psi(variables, x[None]).reshape(()))(*shapes)

    def follow(boundary: _Boundary, variables: Any, x: jax.Array) -> jax.Array:
        args = [*jax.tree.leaves(variables), _Followed(x, "σ")]
        (result,) = _evaluate(jaxpr.jaxpr, jaxpr.consts, args, boundary)
        value: jax.Array = boundary.plain(result)
        return value

    found = _Boundary()
    jax.eval_shape(lambda variables, x: follow(found, variables, x), *shapes)
    likes = [jax.ShapeDtypeStruct(value.value.shape, value.value.dtype) for value in found.taken]
    widths = [like.size * (1 + jnp.issubdtype(like.dtype, jnp.complexfloating)) for like in likes]
    is_short = any(jnp.finfo(like.dtype).bits < _SHORTEST for like in likes)
    if is_short or not 0 < sum(widths) <= _WIDEST:
        return None

    def sums(variables: Any, x: jax.Array) -> jax.Array:
        boundary = _Boundary()
        follow(boundary, variables, x)
        return jnp.concatenate([_real(value.value) for value in boundary.taken])

    def rest(variables: Any, x: jax.Array, sums: jax.Array) -> jax.Array:
        ends = [sum(widths[: place + 1]) for place in range(len(widths) - 1)]
        parts = jnp.split(sums, ends) if ends else [sums]
        return follow(_Boundary([_like(part, like) for part, like in zip(parts, likes, strict=True)]), variables, x)

    return FirstLayer(sum(widths), sums, rest)


def _real(value: jax.Array) -> jax.Array:
    """Numbers as real ones, in one dimension."""
    flat = value.ravel()
    return jnp.concatenate([flat.real, flat.imag]) if jnp.iscomplexobj(flat) else flat


def _like(numbers: jax.Array, like: jax.ShapeDtypeStruct) -> jax.Array:
    """What :func:`_real` was given."""
    if jnp.issubdtype(like.dtype, jnp.complexfloating):
        numbers = jax.lax.complex(*jnp.split(numbers, 2))
    return numbers.reshape(like.shape).astype(like.dtype)


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], boundary: _Boundary) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))

    used = Counter(v for eqn in jaxpr.eqns for v in eqn.invars if not isinstance(v, Literal))
    used.update(v for v in jaxpr.outvars if not isinstance(v, Literal))

    def value_of(v: Any) -> Any:
        value = v.val if isinstance(v, Literal) else values[v]
        if isinstance(value, _Followed) and value.is_sum and used[v] > 1:
            return _OfRest(boundary.plain(value))
        return value

    for eqn in jaxpr.eqns:
        inputs = [value_of(v) for v in eqn.invars]
        if any(isinstance(value, _Followed | _OfRest) for value in inputs):
            results = _followed(eqn, inputs, boundary)
        else:
            results = bind(eqn, inputs)
        values.update(zip(eqn.outvars, results, strict=True))
    return [value_of(v) for v in jaxpr.outvars]


def _followed(eqn: Any, inputs: list[Any], boundary: _Boundary) -> Sequence[Any]:
    """What an equation gives, of which some inputs are followed."""
    name = eqn.primitive.name
    if name in CALLS:
        return _evaluate(*called(eqn), inputs, boundary)
    found = [value for value in inputs if isinstance(value, _Followed)]
    has_other = any(isinstance(value, _OfRest) for value in inputs)
    is_sum, order = (False, None) if has_other else _kind(eqn, inputs, found)
    if not is_sum and order is None:
        return [_OfRest(result) for result in bind(eqn, [boundary.plain(value) for value in inputs])]
    (result,) = bind(eqn, [value.value if isinstance(value, _Followed) else value for value in inputs])
    return [_Followed(result, None if is_sum else order)]


def _kind(eqn: Any, inputs: list[Any], found: list[_Followed]) -> tuple[bool, Any]:
    """Whether an equation gives sums, and if not, how the sites are arranged in its separable result, if it is one."""
    name = eqn.primitive.name
    is_alone = len(found) == 1
    orders = {str(value.order) for value in found}
    has_sums = any(value.is_sum for value in found)
    neither = (False, None)
    if name in _MOVING:
        return has_sums, None if has_sums else (name, str(eqn.params), [str(_order(value)) for value in inputs])
    if name in _SUMMING:
        is_linear = is_alone and (name != "conv_general_dilated" or isinstance(inputs[0], _Followed))
        return (True, None) if is_linear else neither
    if name in _LINEAR:
        is_linear = name not in ("mul", "div") or (is_alone and (name == "mul" or inputs[0] is found[0]))
        if has_sums:
            is_exact = jnp.issubdtype(eqn.outvars[0].aval.dtype, jnp.inexact)
            return (True, None) if is_linear and is_exact else neither
        if len(orders) > 1:  # of several sites
            return (True, None) if is_linear else neither
    is_of_one_site = name in _LINEAR or name in _ELEMENTWISE
    if name == "gather":  # of a table: an embedding
        indices = inputs[1]
        is_of_one_site = is_alone and isinstance(indices, _Followed) and indices.value.shape[-1] == 1
        return (False, (name, str(eqn.params), str(found[0].order))) if is_of_one_site and not has_sums else neither
    return (False, found[0].order) if is_of_one_site and not has_sums and len(orders) == 1 else neither


def _order(value: Any) -> Any:
    return value.order if isinstance(value, _Followed) else None
