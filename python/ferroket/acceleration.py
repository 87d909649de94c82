"""Everything of NetKet's through our kernels, in an unchanged script."""

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ferroket import local_energy, natural_gradient, sampler
from ferroket._compat.netket import operator_of
from ferroket.network import Plan
from ferroket.reasons import Reason, ReasonKind


@dataclass(frozen=True)
class StepPlan:
    """How the three parts of a driver's step are computed, and why not faster; ``print`` it for a summary."""

    sampling: Plan
    """What makes the samples."""
    local_energy: Plan
    """What evaluates the local energies of the driver's operator."""
    update: Plan
    """What makes the update."""

    def __str__(self) -> str:
        parts = {"sampling": self.sampling, "local energies": self.local_energy, "update": self.update}
        return "\n".join("\n  ".join([part, *str(plan).splitlines()]) for part, plan in parts.items())


_PARTS = local_energy, sampler, natural_gradient


def _enabled() -> tuple[bool, ...]:
    """Which of the parts are enabled."""
    return tuple(part.is_enabled() for part in _PARTS)


@dataclass(frozen=True)
class Enabled:
    """What :func:`enable` returns: at the end of a ``with`` block all is as it was before the call."""

    _before: tuple[bool, ...] = field(default_factory=_enabled)

    def __enter__(self) -> None:
        enable()  # also if it was disabled since

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.restore()

    def restore(self) -> None:
        """Has each of the parts be what it was."""
        for part, was_enabled in zip(_PARTS, self._before, strict=True):
            (part.enable if was_enabled else part.disable)()


def enable() -> Enabled:
    """Has NetKet's own operators, states, samplers and drivers take what this package has in their place.

    See :func:`ferroket.local_energy.enable`, :func:`ferroket.sampler.enable` and
    :func:`ferroket.natural_gradient.enable`.

    Returns:
        A context manager. ``with fk.enable(): ...`` enables all three for the block, also in nested blocks and where it
        ends in an exception; then each is what it was before. Without ``with`` they stay enabled until :func:`disable`.

    Raises:
        RuntimeError: This version of NetKet lacks something that is replaced. Then all is as it was before.
    """
    enabled = Enabled()
    try:
        for part in _PARTS:
            part.enable()
    except RuntimeError:
        enabled.restore()
        raise
    return enabled


def disable() -> None:
    """Takes :func:`enable` back."""
    for part in _PARTS:
        part.disable()


def explain(subject: Any, operator: Any = None) -> Plan | StepPlan:
    """Tells which way something takes, and why not a faster one.

    Args:
        subject: A variational state of NetKet's, or a driver.
        operator: For a state, whose local energies are asked for; without one, its sampling is explained.

    Returns:
        What is found; ``print`` it for a summary. Of a driver these are its sampling, its local energies and its
        update. See :func:`ferroket.local_energy.explain`, :func:`ferroket.sampler.explain` and
        :func:`ferroket.natural_gradient.explain`.
    """
    if operator is not None:
        return local_energy.explain(subject, operator)
    if hasattr(subject, "run") and hasattr(subject, "state"):
        return plan_of_step(subject)
    return sampler.explain(subject)


def plan_of_step(driver: Any) -> StepPlan:
    """The plans of a driver's step."""
    state, operator = driver.state, operator_of(driver)
    if operator is None:
        text = f"{type(driver).__name__} asks for no local energies of an operator"
        energies = Plan.netkets("kernel", Reason(text, ReasonKind.DRIVER))
    else:
        energies = local_energy.explain(state, operator)
    try:
        update = natural_gradient.explain(driver)
    except TypeError as error:
        update = Plan.netkets("update", Reason(str(error), ReasonKind.DRIVER))
    return StepPlan(sampler.explain(state), energies, update)
