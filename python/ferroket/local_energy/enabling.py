"""NetKet's own operators through our kernels, in an unchanged script."""

import functools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import plum
from netket.operator import DiscreteJaxOperator, DiscreteOperator
from netket.vqs import MCState, get_local_kernel, get_local_kernel_arguments

from ferroket.operator import accelerate
from ferroket.operator.algebra.accelerated import Accelerated

PRECEDENCE = -1
"""That of all our rules: below others, so that a rule of a user's own for a kind of states is no conflict."""

_is_enabled = False


def enable() -> None:
    """Has NetKet's states evaluate NetKet's own operators with the kernels of this package, too.

    From now on ``expect``, ``expect_and_grad``, the drivers, and whatever else of NetKet asks an
    :class:`~netket.vqs.MCState` for local energies takes the operator that :func:`ferroket.accelerate` makes of its
    own, once for each. The operators themselves stay what they are. Those that can't be accelerated are evaluated as
    before.
    """
    global _is_enabled  # noqa: PLW0603
    for rule in _rules():
        if not _is_enabled:
            rule.function.dispatch(rule.ours())
    _is_enabled = True


def disable() -> None:
    """Takes :func:`enable` back: NetKet's operators are evaluated by NetKet's kernels.

    NetKet's rules are what they were, but for those of :class:`~netket.operator.Squared`, which since the import of
    this package ask whether the operator is ours, and then call NetKet's.
    """
    global _is_enabled  # noqa: PLW0603
    for rule in _rules():
        if _is_enabled:
            rule.function.dispatch(rule.netkets)
    _is_enabled = False


def is_enabled() -> bool:
    """Whether :func:`enable` is in effect."""
    return _is_enabled


def replacement(operator: DiscreteOperator) -> Accelerated | None:
    """What an operator of NetKet's is replaced by, or None if it can't be, or isn't to be."""
    return accelerated(operator) if _is_enabled else None


def accelerated(operator: DiscreteOperator) -> Accelerated | None:
    """What :func:`ferroket.accelerate` makes of an operator of NetKet's, once; None if it can't, or if it is traced."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(operator)):
        return None
    state = dict(_state(operator))
    known = _CACHE.get(id(operator))
    if known is None or any(known.differs(where, now) for where, now in state.items()):
        if known is None:
            weakref.finalize(operator, _CACHE.pop, id(operator), None)
        known = _CACHE[id(operator)] = _Known(state, _accelerated(operator))
    return known.replacement


@dataclass(frozen=True)
class _Known:
    state: dict[str, Any]
    replacement: Accelerated | None

    def differs(self, where: str, now: Any) -> bool:
        """Whether there was another object. What NetKet computes when it is asked for, and keeps, is no change."""
        before = self.state.get(where)
        return before is not None and before is not now


_CACHE: dict[int, _Known] = {}
"""By the address of an operator that is alive."""


def _accelerated(operator: DiscreteOperator) -> Accelerated | None:
    try:
        # What is kept may not belong to the program that is traced at the moment.
        with jax.ensure_compile_time_eval():
            accelerated = accelerate(operator)
    except TypeError:
        return None
    return accelerated if isinstance(accelerated, Accelerated) else None


def _state(operator: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Objects by place, of which one is another after an operator was changed in place, by ``+=`` and its like.

    Those make NetKet compute the operator's tables anew, so that these must have been computed before.
    """
    if not getattr(operator, "_initialized", True) and hasattr(operator, "_setup"):
        operator._setup()
    for name, value in vars(operator).items():
        yield f"{where}.{name}", value
        for place, part in enumerate(value if isinstance(value, list | tuple) else [value]):
            if isinstance(part, DiscreteOperator):
                yield from _state(part, f"{where}.{name}.{place}")


@dataclass(frozen=True)
class _Rule:
    """A rule of NetKet's for any discrete operator."""

    function: plum.Function
    netkets: Callable[..., Any]

    def ours(self) -> Callable[..., Any]:
        """The rule with accelerated operators in the place of those that can be."""

        @functools.wraps(self.netkets)  # the annotations say what it is for
        def rule(vstate: Any, operator: Any, *chunk_size: int) -> Any:
            accelerated = replacement(operator)
            if accelerated is None:
                return self.netkets(vstate, operator, *chunk_size)
            return self.function(vstate, accelerated, *chunk_size)

        return rule


@functools.cache
def _rules() -> list[_Rule]:
    kinds = [(MCState, base) for base in (DiscreteOperator, DiscreteJaxOperator)]
    return [
        _Rule(function, method.implementation)
        for function in (get_local_kernel_arguments, get_local_kernel)
        for method in function.methods
        if method.signature.types[:2] in kinds
    ]
