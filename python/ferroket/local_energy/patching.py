"""``enable``: NetKet's own operators through our kernels, in an unchanged script."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import plum
from netket.operator import DiscreteJaxOperator, DiscreteOperator
from netket.vqs import MCState, get_local_kernel, get_local_kernel_arguments

from ferroket._compat.netket import log_psi_of, rule_of
from ferroket.ansatz.verification import Subject, mixes_samples
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.cache import accelerated
from ferroket.reasons import Reason

_is_enabled = False


def enable() -> None:
    """Has NetKet's states evaluate NetKet's own operators with the kernels of this package, too.

    From now on ``expect``, ``expect_and_grad``, the drivers, and whatever else of NetKet asks an
    :class:`~netket.vqs.MCState` for local energies takes the operator that :func:`ferroket.accelerate` makes of its
    own, once for each. The operators themselves stay what they are. Those that can't be accelerated are evaluated as
    before.

    Raises:
        RuntimeError: This version of NetKet has other dispatch rules.
    """
    global _is_enabled  # noqa: PLW0603
    if not _is_enabled:
        for rule in _rules():
            rule.function.dispatch(rule.ours())
    _is_enabled = True


def disable() -> None:
    """Takes :func:`enable` back: NetKet's operators are evaluated by NetKet's kernels.

    NetKet's rules are what they were, but for those of :class:`~netket.operator.Squared`, which since the import of
    this package ask whether the operator is ours, and then call NetKet's.
    """
    global _is_enabled  # noqa: PLW0603
    if _is_enabled:
        for rule in _rules():
            rule.function.dispatch(rule.netkets)
    _is_enabled = False


def is_enabled() -> bool:
    """Whether :func:`enable` is in effect."""
    return _is_enabled


def replacement(operator: DiscreteOperator) -> Accelerated | None:
    """The operator that is evaluated in an operator's place: itself if it is ours, and if enabled, an accelerated one.

    None if NetKet evaluates it.
    """
    return accelerated(operator) if _is_enabled or isinstance(operator, Accelerated) else None


def netket_only_reason(vstate: MCState) -> Reason | None:
    """Why NetKet evaluates all operators of a state, as the end of a sentence; None if it needn't."""
    log_psi = log_psi_of(vstate)
    return mixes_samples(Subject(log_psi, log_psi, vstate.hilbert, np.dtype(vstate.sampler.dtype)), vstate.variables)


@dataclass(frozen=True)
class _Rule:
    """A dispatch rule of NetKet's for any discrete operator."""

    function: plum.Function
    netkets: Callable[..., Any]

    def ours(self) -> Callable[..., Any]:
        """The rule with accelerated operators in the place of those that can be."""

        @functools.wraps(self.netkets)  # the annotations say what it is for
        def rule(vstate: Any, operator: Any, *chunk_size: int) -> Any:
            accelerated = replacement(operator)
            if accelerated is None or netket_only_reason(vstate) is not None:
                return self.netkets(vstate, operator, *chunk_size)
            return self.function(vstate, accelerated, *chunk_size)

        return rule


@functools.cache
def _rules() -> list[_Rule]:
    """Those that :func:`enable` replaces."""
    return [
        _Rule(function, rule_of(function, MCState, operator, *chunk_size))
        for function, *chunk_size in ((get_local_kernel_arguments,), (get_local_kernel,), (get_local_kernel, int))
        for operator in (DiscreteOperator, DiscreteJaxOperator)
    ]
