"""What is found in a network's program, compared by value with the network itself before it is used.

Once for each network: at its own variables and at random ones near them, where a gate that starts at zero is open. What
isn't equal to rounding isn't used, and the reason is told.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ansatz.dependence import NONE, UNKNOWN, results_of
from ferroket.reasons import Reason, ReasonKind

LogPsi = Callable[[Any, jax.Array], jax.Array]
"""``log_psi(variables, x)`` for ``x (n, N)`` gives ``(n,)``."""

N_CONFIGURATIONS = 6
"""So many are compared."""
SPREADS = (0.0, 0.1, 0.5)
"""How far the variables of each comparison are from the network's own."""
_MOST = 1024
"""Answers that are kept: a script that makes one network after the other doesn't keep those of all."""

UNSURE = "the samples tell nothing"
"""An answer that isn't kept: the samples were all alike, say."""
TRACED = Reason(
    "its variables are traced, and what is found can't be compared with the network by value", ReasonKind.TRACED
)
MIXES_SAMPLES = Reason("the network mixes samples: its value for one depends on the others", ReasonKind.MIXES_SAMPLES)


@dataclass(frozen=True)
class Subject:
    """A network, as it is asked about."""

    key: Any
    """What tells it from others: hashable."""
    log_psi: LogPsi = field(compare=False)
    hilbert: Any
    """The space of its configurations."""
    dtype: Any
    """The dtype of configurations."""

    def configurations(self) -> jax.Array:
        """Some of the space, ``(n, N)``."""
        x: jax.Array = self.hilbert.random_state(jax.random.key(7), N_CONFIGURATIONS, dtype=self.dtype)
        return x

    def like_some(self) -> jax.ShapeDtypeStruct:
        """The shape of :meth:`configurations`."""
        return jax.ShapeDtypeStruct((N_CONFIGURATIONS, self.hilbert.size), self.dtype)

    def like_one(self) -> jax.ShapeDtypeStruct:
        """The shape of a configuration."""
        return jax.ShapeDtypeStruct((self.hilbert.size,), self.dtype)


_known: dict[Any, Any] = {}


def cached_answer(question: str, subject: Any, variables: Any, answer: Callable[[], Any]) -> Any:
    """The answer to a question about a network with variables of these shapes, given once.

    :data:`TRACED` and :data:`UNSURE` aren't kept.
    """
    leaves, treedef = jax.tree.flatten(variables)
    key = question, subject, treedef, tuple((jnp.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)
    if key in _known:
        _known[key] = _known.pop(key)  # the latest one
        return _known[key]
    found = answer()
    if found is not TRACED and found is not UNSURE:
        _known[key] = found
        while len(_known) > _MOST:
            del _known[next(iter(_known))]
    return found


def are_traced(*values: Any) -> bool:
    """Whether there are no values to compare."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def shapes_of(values: Any) -> Any:
    """The shapes and dtypes of a pytree of arrays."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), values)


def mixes_samples(subject: Subject, variables: Any) -> Reason | None:
    """Why the value of a network for one configuration depends on others, as the end of a sentence; None if it doesn't.

    Read from its program. Where a primitive has no rule, values decide.
    """

    def answer() -> Reason | None:
        found = combines_samples(subject.log_psi, variables, subject.like_one())
        if found is None:
            if are_traced(variables):
                return TRACED
            found = differs_alone(subject.log_psi, variables, subject.configurations())
        return MIXES_SAMPLES if found else None

    result: Reason | None = cached_answer("mixes samples", subject, variables, answer)
    return result


def combines_samples(log_psi: LogPsi, variables: Any, x: Any) -> bool | None:
    """Whether a network's program combines what is made of different samples; None where its primitives don't tell.

    Args:
        log_psi: The network.
        variables: Its variables, or their shapes.
        x: A configuration ``(N,)``, or its shape.
    """
    several = jax.ShapeDtypeStruct((2, *x.shape), x.dtype)
    jaxpr = jax.make_jaxpr(log_psi)(shapes_of(variables), several)
    own = np.arange(2, dtype=np.int32)
    others = [None] * (len(jaxpr.in_avals) - 1)
    (result,) = results_of(jaxpr, [*others, np.broadcast_to(own[:, None], several.shape)])
    is_unknown = result == UNKNOWN
    if result.shape != own.shape or not (is_unknown | (result == own) | (result == NONE)).all():
        return True
    return None if is_unknown.any() else False


def differs_alone(log_psi: LogPsi, variables: Any, x: jax.Array) -> bool:
    """Whether values of configurations ``(n, N)`` together differ from those of each alone."""

    @jax.jit
    def alone(variables: Any, x: jax.Array) -> jax.Array:  # JAX can't vmap all networks
        return jnp.concatenate([log_psi(variables, x[place : place + 1]) for place in range(len(x))])

    return mismatch_reason(alone, log_psi, variables, x) is not None


def mismatch_reason(
    found: LogPsi,
    own: LogPsi,
    variables: Any,
    x: jax.Array,
    *,
    up_to_factor: bool = False,
    may_cancel: bool = False,
) -> Reason | None:
    """Why two functions aren't the same network, as the end of a sentence; None if they are, up to rounding.

    Args:
        found: What takes the place of a network.
        own: The network.
        variables: Its variables.
        x: Configurations ``(n, N)``.
        up_to_factor: Whether the functions may differ by a factor of ψ.
        may_cancel: Whether ψ is a sum whose terms may cancel by symmetry: then amplitudes aren't compared of which
            nothing is left but rounding, if they are so small beside the largest one.
    """

    @jax.jit
    def compare(variables: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        a, b = found(variables, x), own(variables, x)
        precise = jnp.promote_types(b.dtype, jnp.float32)
        a, b = a.astype(jnp.promote_types(precise, a.dtype)), b.astype(precise)
        epsilon = jnp.finfo(precise).eps
        tolerance = 10 * epsilon**0.5
        if up_to_factor:
            largest = jnp.argmax(jnp.where(jnp.isfinite(b), b.real, -jnp.inf))
            a, b = a - a[largest], b - b[largest]
        is_number = jnp.isfinite(a) & jnp.isfinite(b)
        difference = jnp.where(is_number, a - b, 0)
        # Phases are the same up to whole turns.
        distance = jnp.maximum(jnp.abs(difference.real), 2 * jnp.abs(jnp.sin(difference.imag / 2)))
        is_close = distance < tolerance * (1 + jnp.abs(jnp.where(is_number, b, 0)))
        is_zero = jnp.isneginf(a.real) & jnp.isneginf(b.real)  # ψ = 0, of any phase
        is_same = jnp.where(is_number, is_close, (a == b) | (jnp.isnan(a) & jnp.isnan(b)) | is_zero)
        is_compared = is_number
        if may_cancel:
            cancels = 0.75 * jnp.log(epsilon)
            is_rounding = (a.real < cancels) & (b.real < cancels)
            is_same, is_compared = is_same | is_rounding, is_compared & ~is_rounding
        if up_to_factor:  # the largest one is equal to itself
            is_compared &= jnp.arange(len(b)) != largest
        return is_same.all(), is_compared.any()

    if are_traced(variables, x):
        return TRACED
    is_sure = False
    for place, spread in enumerate(SPREADS):
        is_same, has_numbers = compare(perturbed(variables, spread, place), x)
        if not bool(is_same):
            return Reason("what is found of it gives other values than the network itself", ReasonKind.NOT_VERIFIED)
        is_sure |= bool(has_numbers)
    if is_sure:
        return None
    return Reason("its values aren't finite, and nothing can be compared with them", ReasonKind.NOT_VERIFIED)


def perturbed(variables: Any, spread: float, seed: int) -> Any:
    """Random variables near some, in NumPy's arrays; other collections than parameters stay as they are."""
    if isinstance(variables, dict) and "params" in variables:
        return {**variables, "params": perturbed(variables["params"], spread, seed)}
    random = np.random.default_rng(seed)

    def moved(leaf: Any) -> Any:
        dtype = jnp.result_type(leaf)
        if not jnp.issubdtype(dtype, jnp.inexact):
            return leaf
        leaf = np.asarray(leaf)
        if spread == 0 or not leaf.size:
            return leaf
        # Where the network's own parameters are no numbers, others may tell.
        leaf = np.where(np.isfinite(leaf), leaf, 0).astype(jnp.promote_types(dtype, jnp.float64))
        by, more = random.standard_normal((2, *leaf.shape))
        if np.iscomplexobj(leaf):
            by, more = (by, more) + 1j * random.standard_normal((2, *leaf.shape))
        size = 0.3 + np.sqrt(np.mean(np.abs(leaf) ** 2))
        return (leaf + spread * (leaf * by + size * more)).astype(dtype)

    return jax.tree.map(moved, variables)
