"""``enable``: NetKet's own drivers and quantum geometric tensors with our log-derivatives, in an unchanged script."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from ferroket._compat.netket import JACOBIAN, STEP_METHOD, UPDATES
from ferroket._compat.sharding import is_out_of_reach
from ferroket.natural_gradient import jacobian as jacobians
from ferroket.natural_gradient.examination import examine
from ferroket.natural_gradient.vmc_sr import update_by_flat_ntk, update_by_ntk, update_by_qgt

_NETKETS = {name: update.find() for name, update in UPDATES.items()}
_NETKETS_JACOBIAN = JACOBIAN.find()
_is_enabled = False

Driver = TypeVar("Driver")


def enable() -> None:
    """Has NetKet's drivers and quantum geometric tensors take log-derivatives apart.

    From now on ``VMC_SR`` and ``Infidelity_SR`` make their updates by the neural tangent kernel without a Jacobian.
    With ``use_ntk=False`` they get it from its factors, and so do ``QGTJacobianDense`` and ``QGTJacobianPyTree``, and
    with these ``SR`` and TDVP. Results are NetKet's, but for rounding.
    """
    global _is_enabled  # noqa: PLW0603
    _put(_OURS, _jacobian)
    _is_enabled = True


def disable() -> None:
    """Takes :func:`enable` back."""
    global _is_enabled  # noqa: PLW0603
    _put(_NETKETS, _NETKETS_JACOBIAN)
    _is_enabled = False


def _put(updates: Mapping[str, Callable[..., Any]], jacobian: Callable[..., Any]) -> None:
    for name, update in UPDATES.items():
        update.replace(updates[name])
    JACOBIAN.replace(jacobian)


def is_enabled() -> bool:
    """Whether :func:`enable` is in effect."""
    return _is_enabled


_ours: list[type] = []


def with_our_updates(driver: type[Driver]) -> type[Driver]:
    """Has a driver of ours make its updates our way, whether enabled or not."""
    netkets = getattr(driver, STEP_METHOD)

    @wraps(netkets)
    def step(self: Any) -> Any:
        with enabled():
            return netkets(self)

    setattr(driver, STEP_METHOD, step)
    _ours.append(driver)
    return driver


def is_ours(driver: Any) -> bool:
    """Whether a driver is one of :func:`with_our_updates`."""
    return isinstance(driver, tuple(_ours))


@contextmanager
def enabled() -> Iterator[None]:
    """:func:`enable` for a while."""
    was_enabled = _is_enabled
    enable()
    try:
        yield
    finally:
        if not was_enabled:
            disable()


def _unless_mixed(name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    """An update of ours for networks that treat each sample on its own, and NetKet's for others."""
    netkets = _NETKETS[name]

    @wraps(ours)
    def update(log_psi: Any, local_energies: Any, parameters: Any, state: Any, samples: Any, **settings: Any) -> Any:
        is_ours = not is_out_of_reach() and not examine(log_psi, parameters, state, samples).mixes_samples
        function = ours if is_ours else netkets
        return function(log_psi, local_energies, parameters, state, samples, **settings)

    return update


_OURS = {
    "srt_onthefly": _unless_mixed("srt_onthefly", update_by_ntk),
    "srt": _unless_mixed("srt", update_by_flat_ntk),
    "sr": _unless_mixed("sr", update_by_qgt),
}


@wraps(_NETKETS_JACOBIAN)
def _jacobian(
    apply_fun: Any,
    params: Any,
    samples: Any,
    state: Any = None,
    *,
    _axis_0_is_sharded: Any = None,
    **settings: Any,
) -> Any:
    if _axis_0_is_sharded is False or is_out_of_reach():  # asked for by one device alone
        settings["_axis_0_is_sharded"] = _axis_0_is_sharded
        return _NETKETS_JACOBIAN(apply_fun, params, samples, state, **settings)
    return jacobians.jacobian(apply_fun, params, samples, state, **settings)
