"""Everything of NetKet's through our kernels, in an unchanged script."""

from typing import Any

from ferroket import local_energy, natural_gradient, sampler


def enable() -> None:
    """Has NetKet's own operators, states, samplers and drivers take what this package has in their place.

    See :func:`ferroket.local_energy.enable`, :func:`ferroket.sampler.enable` and
    :func:`ferroket.natural_gradient.enable`.

    Raises:
        RuntimeError: This version of NetKet lacks something that is replaced. Then nothing is.
    """
    local_energy.enable()
    sampler.enable()
    natural_gradient.enable()


def disable() -> None:
    """Takes :func:`enable` back."""
    local_energy.disable()
    sampler.disable()
    natural_gradient.disable()


def explain(subject: Any, operator: Any = None) -> Any:
    """Tells which way something takes, and why not a faster one.

    Args:
        subject: A variational state of NetKet's, or a driver of stochastic reconfiguration.
        operator: For a state, whose local energies are asked for; without one, its sampling is explained.

    Returns:
        What is found; ``print`` it for a summary. See :func:`ferroket.local_energy.explain`,
        :func:`ferroket.sampler.explain` and :func:`ferroket.natural_gradient.explain`.
    """
    if operator is not None:
        return local_energy.explain(subject, operator)
    if hasattr(subject, "run") and hasattr(subject, "state"):
        return natural_gradient.explain(subject)
    return sampler.explain(subject)
