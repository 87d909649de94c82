"""The private names of NetKet that are used or replaced, each in one place.

Checked on NetKet 3.20.5 and 3.23.0. Where a name is gone, :class:`MissingNameError` says so.
"""

import inspect
from collections.abc import Callable
from typing import Any

import netket as nk
import plum
from netket.sampler.rules.hamiltonian import HamiltonianRuleBase
from netket.vqs import MCState

TESTED = ("3.20.5", "3.23.0")
"""The lowest and the newest version of NetKet with which the tests run."""


class MissingNameError(RuntimeError):
    """This version of NetKet lacks something that Ferroket uses or replaces."""

    def __init__(self, name: str, use: str) -> None:
        super().__init__(
            f"NetKet {nk.__version__} has no {name}, {use}: install NetKet {TESTED[0]} to {TESTED[1]}, with which this "
            "Ferroket was tested, or a newer Ferroket"
        )


# Variational states


def model_of(vstate: MCState) -> Any:
    """The Flax module that NetKet evaluates: ``_model``. The public ``model`` may be of another framework."""
    return vstate._model


def log_psi_of(vstate: MCState) -> Callable[..., Any]:
    """The function ``log_psi(variables, x)`` that NetKet gives to kernels of local energies: ``_apply_fun``."""
    return vstate._apply_fun


def sampled_model_of(vstate: MCState) -> tuple[Any, Any]:
    """The module and the variables that NetKet gives to samplers: ``_sampler_model`` and ``_sampler_variables``."""
    return vstate._sampler_model, vstate._sampler_variables


STEP_TIMERS = ("MCState.sample", "MCState.local_estimators", "_sr_srt_common")
"""The timers of sampling, of local energies and of the update, inside of a step of ``VMC_SR``: names of functions."""


# Samplers

HamiltonianRule = HamiltonianRuleBase
"""The class of the rules that :func:`netket.sampler.rules.HamiltonianRule`, a function, makes."""

_OVERRIDDEN = {
    "_sample_chain": ("machine", "parameters", "state", "chain_length", "return_log_probabilities"),
    "_sample_next": ("machine", "parameters", "state"),
}


def sampling_methods() -> dict[str, Callable[..., Any]]:
    """The methods of :class:`netket.sampler.MetropolisSampler` that a sampler overrides, and :func:`enable` replaces.

    ``_sample_chain`` gives the samples of ``sample``, ``_sample_next`` those of ``sample_next``.

    Raises:
        MissingNameError: There is no such method, or it takes other arguments.
    """
    found = {}
    for name, expected in _OVERRIDDEN.items():
        method = vars(nk.sampler.MetropolisSampler).get(name)
        arguments = None if method is None else tuple(inspect.signature(method).parameters)[1:]
        if arguments != expected:
            whole = f"MetropolisSampler.{name}({', '.join(expected)})"
            raise MissingNameError(whole, "in whose place Ferroket runs chains in Rust")
        found[name] = method
    return found


# Operators that change in place


def computes_tables(operator: Any) -> bool:
    """Whether an operator of NetKet's has ``_setup``, which computes tables anew after each change in place.

    Whether they are to be computed is its ``_initialized``.
    """
    return hasattr(operator, "_initialized") and hasattr(operator, "_setup")


# Dispatch


def rule_of(function: plum.Function, *types: type) -> Callable[..., Any]:
    """The rule that a function of NetKet's has for exactly these types.

    Raises:
        MissingNameError: There is none.
    """
    for method in function.methods:
        if method.signature.types == types:
            return method.implementation
    name = f"rule {function.__name__}({', '.join(cls.__name__ for cls in types)})"
    raise MissingNameError(name, "in whose place Ferroket evaluates operators")
