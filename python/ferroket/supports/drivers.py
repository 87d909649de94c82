"""Drivers, with a restricted Boltzmann machine."""

from collections.abc import Callable
from functools import partial
from typing import Any

import netket as nk

from ferroket import acceleration
from ferroket._compat import netket
from ferroket.supports.systems import density_matrices, spins, state_of, vmc_sr
from ferroket.supports.tables import Row, Table
from ferroket.supports.words import of_samples, of_update

Make = Callable[[], Any]


def _state() -> Any:
    return spins().state(nk.models.RBM())


def _vmc_sr(use_ntk: bool) -> Any:
    return vmc_sr(spins().operator, _state(), use_ntk=use_ntk, on_the_fly=use_ntk)


def _vmc(preconditioner: Any = None) -> Any:
    return nk.driver.VMC(
        spins().operator, nk.optimizer.Sgd(0.1), variational_state=_state(), preconditioner=preconditioner
    )


def _vmc_with_sr() -> Any:
    return _vmc(nk.optimizer.SR(diag_shift=0.1))


def _infidelity_sr() -> Any:
    target = state_of(spins().sampler, nk.models.Jastrow())
    settings = {"diag_shift": 0.1, "use_ntk": True, "on_the_fly": True}
    _, driver = netket.SR_DRIVERS
    return driver(target, nk.optimizer.Sgd(0.1), variational_state=_state(), **settings)


def _tdvp(name: str) -> Any:
    integrator = nk.experimental.dynamics.Euler(0.01)
    return getattr(nk.experimental.driver, name)(spins().operator, _state(), integrator)


def _steady_state() -> Any:
    return density_matrices().driver(nk.models.NDM())


_MAKE: dict[str, Make] = {
    "VMC_SR": partial(_vmc_sr, True),
    "VMC_SR(use_ntk=False)": partial(_vmc_sr, False),
    "Infidelity_SR": _infidelity_sr,
    "VMC(preconditioner=nk.optimizer.SR())": _vmc_with_sr,
    "VMC": _vmc,
    "TDVP": partial(_tdvp, "TDVP"),
    "TDVPSchmitt": partial(_tdvp, "TDVPSchmitt"),
    "SteadyState(preconditioner=nk.optimizer.SR())": _steady_state,
}


def _cells(make: Make) -> list[str]:
    found = acceleration.plan_of_step(make())
    return [of_samples(found.sampling), of_samples(found.local_energy), of_update(found.update)]


DRIVERS = Table(
    "Drivers",
    ["driver", "sampling", "local energies", "update"],
    [Row(name, partial(_cells, make)) for name, make in _MAKE.items()],
)
