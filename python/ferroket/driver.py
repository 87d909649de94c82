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
from ferroket.ansatz.importance import power_of_samples, samples_of_power, weighted_statistics, weights_of_power
from ferroket.natural_gradient.length import length_of_update
from ferroket.natural_gradient.patching import step_with_options, with_our_updates

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
        machine_pow: p: the samples of a step are drawn from ``|ψ|^p`` by the state's sampler, and weighted with
            ``|ψ|^(2−p)``. By default the sampler's own ``machine_pow``, which is 2 if nothing else was asked for. Where
            ψ changes its sign local energies and log-derivatives have no bound, and few samples make most of the
            noise: p from 1.5 to 1.8 has more of them there, with less weight. Expectation values of the state are
            those of its own sampler, as before.
        diag_scale: ε, a number or a schedule: the linear system is ``S + λ + ε diag(S)`` with λ of ``diag_shift``, so
            that parameters that hardly count are held no tighter than others. By default 0. It is that of
            :func:`netket.optimizer.qgt.QGTJacobianDense`, and of S. Sorella, M. Casula and D. Rocca, J. Chem. Phys.
            127, 014105 (2007).
        settings: The same. With weights or ``diag_scale`` give ``use_ntk=False`` if there are more parameters than
            samples.

    Raises:
        ValueError: The trust region or ``machine_pow`` isn't positive, or ``diag_scale`` is negative, or is so at some
            step of a schedule; there are weights or ``diag_scale`` beside ``use_ntk=True``; a sum over all
            configurations has ``machine_pow``.
        NotImplementedError: At a step, there are weights or ``diag_scale``, but the network's log-derivatives are
            NetKet's.
    """

    trust_region: Any = struct.field(serialize=False, default=None)
    machine_pow: Any = struct.field(serialize=False, default=None)
    diag_scale: Any = struct.field(serialize=False, default=None)

    def __init__(
        self,
        *arguments: Any,
        trust_region: float | Callable[[int], float] | None = None,
        machine_pow: float | None = None,
        diag_scale: float | Callable[[int], float] | None = None,
        **settings: Any,
    ) -> None:
        for check, value in ((_check_radius, trust_region), (_check_scale, diag_scale)):
            if value is not None and not callable(value):
                check(value)
        self.trust_region = trust_region
        self.machine_pow = machine_pow
        self.diag_scale = diag_scale
        super().__init__(*arguments, **settings)
        is_weighted = power_of_samples(self.state, machine_pow) is not None
        if self.use_ntk and (is_weighted or diag_scale is not None):
            what = "samples of another power of |ψ| than 2" if is_weighted else f"diag_scale={diag_scale}"
            raise ValueError(
                f"{what} and use_ntk=True don't go together, as the neural tangent kernel has a row for each sample, "
                "and no weights: give use_ntk=False"
            )

    @property
    def _mcmc_convergence_diagnostics_ema_decay(self) -> float | None:
        """None, for no diagnostics over several steps, if samples are weighted: NetKet's know of no weights."""
        if power_of_samples(self.state, self.machine_pow) is not None:
            return None
        decay: float | None = super()._mcmc_convergence_diagnostics_ema_decay
        return decay

    def _step(self) -> Any:
        """NetKet's step, with samples, weights and shifts that it doesn't know."""
        power = power_of_samples(self.state, self.machine_pow)
        weights: list[jax.Array] = []

        def options(log_psi: Any, local_energies: Any, parameters: Any, state: Any, samples: Any) -> dict[str, Any]:
            found: dict[str, Any] = {}
            if self.diag_scale is not None:
                found["diag_scale"] = self._at_step(self.diag_scale)
                _check_scale(found["diag_scale"])
            if power is not None:
                variables = {"params": parameters, **state}
                found["weights"] = weights_of_power(log_psi, variables, samples, power, self.state.chunk_size)
                weights.append(found["weights"])
                self._loss_stats: Any = weighted_statistics(local_energies, found["weights"])
            return found

        with samples_of_power(self.state, power):
            if power is None and self.diag_scale is None:
                result = getattr(super(), STEP_METHOD)()
            else:
                result = step_with_options(_WithOurUpdates, options)(self)
            if self.trust_region is not None:
                self._bound(*weights)
        return (self._loss_stats, self._dp) if isinstance(result, tuple) else self._dp

    def _bound(self, weights: jax.Array | None = None) -> None:
        """Makes an update that is longer than the trust region as long."""
        radius = self._at_step(self.trust_region)
        _check_radius(radius)
        length = length_of_update(self.state, self._dp, mode=self.mode, chunk_size=self.chunk_size_bwd, weights=weights)
        share = jnp.where(length > radius, radius / length, 1)
        self._dp: Any = jax.tree.map(lambda part: part * share.astype(part.real.dtype), self._dp)

    def _at_step(self, setting: Any) -> Any:
        return setting(self.step_count) if callable(setting) else setting


def _check_scale(scale: Any) -> None:
    if not scale >= 0:
        raise ValueError(f"diag_scale={scale} is a share of the diagonal and must not be negative: 0.02 is usual")


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
