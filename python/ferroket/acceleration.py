"""Everything of NetKet's through our kernels, in an unchanged script."""

from ferroket import local_energy, sampler


def enable() -> None:
    """Has NetKet's own operators, states and samplers take the kernels of this package, where there are such.

    See :func:`ferroket.local_energy.enable` and :func:`ferroket.sampler.enable`.

    Raises:
        RuntimeError: This version of NetKet lacks something that is replaced. Then nothing is.
    """
    local_energy.enable()
    sampler.enable()


def disable() -> None:
    """Takes :func:`enable` back."""
    local_energy.disable()
    sampler.disable()
