"""Drivers of stochastic reconfiguration whose updates come from the factors of the log-derivatives.

With ``use_ntk=True``, by default for more parameters than samples, they write no Jacobian down. They are NetKet's in
all else: see :class:`netket.driver.VMC_SR` and NetKet's ``Infidelity_SR`` for their arguments.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from netket.utils import struct

from ferroket._compat.netket import SR_DRIVERS, STEP_METHOD
from ferroket._compat.signatures import with_arguments_of
from ferroket.natural_gradient.length import length_of_update
from ferroket.natural_gradient.patching import with_our_updates

__all__ = ["VMC_SR", "Infidelity_SR"]

_NETKETS_VMC_SR, _NETKETS_INFIDELITY_SR = SR_DRIVERS


@with_our_updates
class _WithOurUpdates(_NETKETS_VMC_SR):  # type: ignore[misc,valid-type]
    pass


@with_arguments_of(_NETKETS_VMC_SR)
class VMC_SR(_WithOurUpdates):  # noqa: N801
    """:class:`netket.driver.VMC_SR` with updates from the factors of the log-derivatives.

    Args:
        arguments: Those of :class:`netket.driver.VMC_SR`, which include SPRING's ``momentum``.
        trust_region: The greatest length of an update δθ, before the learning rate; by default there is none. Longer
            ones are made as short, in the same direction. The length is that of the Fubini-Study metric,
            √(δθ† S δθ), by which a step changes the state to first order: the angle between both, in radians. With a
            learning rate η a step is no longer than η times this. A number, or a schedule, which is called with the
            number of the step. Momentum is kept for the next update without it. So Schulman et al., ICML 2015, bound
            a step of a natural gradient by the metric itself.
        settings: The same.

    Raises:
        ValueError: The trust region isn't positive, or isn't at some step of a schedule.
    """

    trust_region: Any = struct.field(serialize=False, default=None)

    def __init__(
        self, *arguments: Any, trust_region: float | Callable[[int], float] | None = None, **settings: Any
    ) -> None:
        if trust_region is not None and not callable(trust_region):
            _check_radius(trust_region)
        super().__init__(*arguments, **settings)
        self.trust_region = trust_region

    def _step(self) -> Any:
        result = getattr(super(), STEP_METHOD)()
        if self.trust_region is None:
            return result
        radius = self.trust_region(self.step_count) if callable(self.trust_region) else self.trust_region
        _check_radius(radius)
        length = length_of_update(self.state, self._dp, mode=self.mode, chunk_size=self.chunk_size_bwd)
        share = jnp.where(length > radius, radius / length, 1)
        self._dp: Any = jax.tree.map(lambda part: part * share.astype(part.real.dtype), self._dp)
        return (*result[:-1], self._dp) if isinstance(result, tuple) else self._dp


def _check_radius(radius: Any) -> None:
    if not radius > 0:
        raise ValueError(
            f"trust_region={radius} is the greatest length of an update and must be positive: leave it out "
            "for updates of any length"
        )


setattr(VMC_SR, STEP_METHOD, VMC_SR._step)


@with_arguments_of(_NETKETS_INFIDELITY_SR)
@with_our_updates
class Infidelity_SR(_NETKETS_INFIDELITY_SR):  # type: ignore[misc,valid-type]  # noqa: N801
    """NetKet's ``Infidelity_SR`` with updates from the factors of the log-derivatives.

    Args:
        arguments: Those of NetKet's.
        settings: The same.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
