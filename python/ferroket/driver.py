"""Drivers of stochastic reconfiguration whose updates come from the factors of the log-derivatives.

With ``use_ntk=True``, by default for more parameters than samples, they write no Jacobian down. They are NetKet's in
all else: see :class:`netket.driver.VMC_SR` and NetKet's ``Infidelity_SR`` for their arguments.
"""

from ferroket._compat.netket import SR_DRIVERS
from ferroket.natural_gradient.patching import with_our_updates

__all__ = ["VMC_SR", "Infidelity_SR"]

_NETKETS_VMC_SR, _NETKETS_INFIDELITY_SR = SR_DRIVERS


@with_our_updates
class VMC_SR(_NETKETS_VMC_SR):  # type: ignore[misc,valid-type]  # noqa: N801
    """:class:`netket.driver.VMC_SR` with updates from the factors of the log-derivatives."""


@with_our_updates
class Infidelity_SR(_NETKETS_INFIDELITY_SR):  # type: ignore[misc,valid-type]  # noqa: N801
    """NetKet's ``Infidelity_SR`` with updates from the factors of the log-derivatives."""
