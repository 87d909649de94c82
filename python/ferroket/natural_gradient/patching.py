"""``enable``: NetKet's own drivers and quantum geometric tensors with our log-derivatives, in an unchanged script."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

import jax

from ferroket._compat.netket import JACOBIAN, PRODUCTS, STEP_METHOD, UPDATES, Replaceable, step_with
from ferroket.natural_gradient import jacobian as jacobians
from ferroket.natural_gradient.qgt import mat_vec
from ferroket.natural_gradient.verification import unsupported_reason
from ferroket.natural_gradient.vmc_sr import update_by_flat_ntk, update_by_ntk, update_by_qgt
from ferroket.network import Plan

_REPLACED: dict[str, Replaceable] = {**UPDATES, **PRODUCTS, JACOBIAN.name: JACOBIAN}
_NETKETS = {name: function.find() for name, function in _REPLACED.items()}
_is_enabled = False

Driver = TypeVar("Driver")


def enable() -> None:
    """Has NetKet's drivers and quantum geometric tensors take log-derivatives apart.

    From now on ``VMC_SR`` and ``Infidelity_SR`` make their updates by the neural tangent kernel without a Jacobian.
    With ``use_ntk=False`` they get it from its factors, and so do ``QGTJacobianDense`` and ``QGTJacobianPyTree``;
    ``QGTOnTheFly`` multiplies with the factors; and with these ``SR`` and TDVP. Results are NetKet's, but for rounding.
    """
    global _is_enabled  # noqa: PLW0603
    _put(_OURS)
    _is_enabled = True


def disable() -> None:
    """Takes :func:`enable` back."""
    global _is_enabled  # noqa: PLW0603
    _put(_NETKETS)
    _is_enabled = False


def _put(functions: Mapping[str, Callable[..., Any]]) -> None:
    for name, replaced in _REPLACED.items():
        replaced.replace(functions[name])


def is_enabled() -> bool:
    """Whether :func:`enable` is in effect."""
    return _is_enabled


def plan(log_psi: Any, parameters: Any, state: Any, samples: Any) -> Plan:
    """Whether factors make what is asked for, or NetKet.

    NetKet does where a network doesn't treat each sample on its own, or isn't taken apart rightly.
    """
    reason = unsupported_reason(log_psi, parameters, state, samples)
    return Plan("factors") if reason is None else Plan.netkets("update", reason)


def _update(name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    """An update of ours for such networks, and NetKet's for others."""

    @wraps(ours)
    def update(log_psi: Any, local_energies: Any, parameters: Any, state: Any, samples: Any, **settings: Any) -> Any:
        function = _NETKETS[name] if plan(log_psi, parameters, state, samples).is_netkets else ours
        return function(log_psi, local_energies, parameters, state, samples, **settings)

    return update


def _products(name: str) -> Callable[..., Any]:
    """Products of ours for such networks, and for samples whose values are there."""
    netkets = _NETKETS[name]

    @wraps(netkets)
    def factory(forward_fn: Any, params: Any, model_state: Any, samples: Any, *more: Any, **settings: Any) -> Any:
        arguments = forward_fn, params, model_state, samples
        is_traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments[1:]))
        function = netkets if is_traced or plan(*arguments).is_netkets else mat_vec
        return function(*arguments, *more, **settings)

    return factory


@wraps(_NETKETS["jacobian"])
def _jacobian(
    apply_fun: Any,
    params: Any,
    samples: Any,
    model_state: Any = None,
    *,
    _axis_0_is_sharded: Any = None,
    **settings: Any,
) -> Any:
    # If it isn't sharded it is asked for by one device alone.
    is_ours = _axis_0_is_sharded is not False and samples.ndim == 2  # noqa: PLR2004
    if not is_ours or plan(apply_fun, params, model_state or {}, samples).is_netkets:
        settings["_axis_0_is_sharded"] = _axis_0_is_sharded
        return _NETKETS["jacobian"](apply_fun, params, samples, model_state, **settings)
    return jacobians.jacobian(apply_fun, params, samples, model_state, **settings)


_OURS: dict[str, Callable[..., Any]] = {
    "srt_onthefly": _update("srt_onthefly", update_by_ntk),
    "srt": _update("srt", update_by_flat_ntk),
    "sr": _update("sr", update_by_qgt),
    **{name: _products(name) for name in PRODUCTS},
    "jacobian": _jacobian,
}

_our_drivers: list[type] = []


def with_our_updates(driver: type[Driver]) -> type[Driver]:
    """Has a driver of ours make its updates our way, whether enabled or not."""
    setattr(driver, STEP_METHOD, step_with(driver, {name: _OURS[name] for name in UPDATES}))
    _our_drivers.append(driver)
    return driver


def step_with_options(kind: type, options: Callable[..., Mapping[str, Any]]) -> Callable[[Any], Any]:
    """A step whose update is :func:`.vmc_sr.update_by_qgt` with options of which NetKet's drivers know nothing.

    Args:
        kind: The class of drivers whose step it is otherwise.
        options: Called with the positional arguments of an update, gives the options.

    Returns:
        The step, called with a driver that has ``use_ntk=False``. It raises ``NotImplementedError`` for a network
        whose log-derivatives are NetKet's.
    """

    def update(log_psi: Any, local_energies: Any, parameters: Any, state: Any, samples: Any, **settings: Any) -> Any:
        found = plan(log_psi, parameters, state, samples)
        if found.is_netkets:
            raise NotImplementedError(
                "weighted samples and diag_scale take the log-derivatives of this package, but "
                f"{'; '.join(map(str, found.reasons))}: leave machine_pow and diag_scale out"
            )
        arguments = log_psi, local_energies, parameters, state, samples
        return update_by_qgt(*arguments, **{**settings, **options(*arguments)})

    return step_with(kind, {"sr": update})


def is_ours(driver: Any) -> bool:
    """Whether a driver is one of :func:`with_our_updates`."""
    return isinstance(driver, tuple(_our_drivers))
