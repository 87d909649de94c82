"""Which way a local energy takes, and why not a faster one."""

from dataclasses import replace
from typing import Any

import jax
from netket.experimental.observable import AbstractObservable
from netket.operator import Squared
from netket.vqs import MCMixedState, MCState

from ferroket._compat.netket import log_psi_of
from ferroket.local_energy import known_model, patching
from ferroket.local_energy.any_network import Factors, updated_factors
from ferroket.local_energy.chunks import chunk_size_of
from ferroket.network import Plan
from ferroket.operator import accelerate
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.reasons import Reason, ReasonKind


def plan(vstate: MCState, operator: Accelerated) -> Plan:
    """What evaluates the local energy of an operator of ours."""
    if (reason := patching.netket_only_reason(vstate)) is not None:
        return Plan.netkets("kernel", reason)
    known, reasons = known_model.find(vstate, operator)
    platform = jax.default_backend()
    if known is not None and platform != "cpu":
        reasons = [Reason(f"the kernel for {known.name} runs on CPUs, and this is {platform}", ReasonKind.PLATFORM)]
    if known is not None and not reasons:
        kernel = f"amplitude ratios of {known.name} in Rust; no connected configurations"
        return Plan("known ratios", kernel, known=known)
    network = log_psi_of(vstate), vstate.variables
    found = updated_factors(*network, operator, vstate.sampler.dtype) if platform == "cpu" else Factors()
    reasons += [found.reason.after("nothing of the network is updated: ")] if found.reason else []
    reasons += filter(None, [found.structure.reason])
    kernel = "the network on the connected configurations whose matrix elements aren't zero, in chunks"
    n_determinants = 0 if found.factor is None else found.factor.count
    return Plan("any network", kernel, reasons, structure=found.structure, determinants=n_determinants)


def explain(vstate: Any, operator: Any) -> Plan:
    """Tells which way ``vstate.expect(operator)`` takes, and why not a faster one.

    Args:
        vstate: A variational state of NetKet's.
        operator: One of ours, or NetKet's.

    Returns:
        What evaluates the local energy; ``print`` it for a summary.

    Raises:
        TypeError: The operator is none.
    """
    if not isinstance(operator, AbstractObservable):
        raise TypeError(
            f"the operator is an instance of {type(operator).__name__}: give an operator of netket.operator or "
            "of fk.operator"
        )
    operator = _evaluated_by_us(vstate, operator.parent if isinstance(operator, Squared) else operator)
    if isinstance(operator, Reason):
        return Plan.netkets("kernel", operator)
    found = plan(vstate, operator)
    if found.path != "any network":
        return found
    n_samples = -(-vstate.n_samples // jax.device_count())
    x = jax.ShapeDtypeStruct((n_samples, vstate.hilbert.size), vstate.sampler.dtype)
    network = log_psi_of(vstate), vstate.variables
    form, in_lanes = operator._form, bool(found.rest)
    return replace(found, chunk_size=chunk_size_of(vstate.chunk_size, n_samples, form, *network, x, in_lanes=in_lanes))


def _evaluated_by_us(vstate: Any, operator: Any) -> Accelerated | Reason:
    """The operator that our kernels evaluate, or why NetKet's does."""
    if not isinstance(vstate, MCState):
        text = f"{type(vstate).__name__} is no MCState, and has no local energies of samples to accelerate"
        return Reason(text, ReasonKind.STATE)
    if isinstance(vstate, MCMixedState):
        text = "the state is a density matrix, for whose local values only NetKet has kernels"
        return Reason(text, ReasonKind.STATE)
    if (replacement := patching.replacement(operator)) is not None:
        return replacement
    try:
        accelerated = accelerate(operator)
    except TypeError as error:
        return Reason(str(error), ReasonKind.OPERATOR)
    if not isinstance(accelerated, Accelerated):
        text = f"{type(operator).__name__} has parts that can't be accelerated together"
        return Reason(text, ReasonKind.OPERATOR)
    text = "the operator is NetKet's: call fk.enable(), or give fk.accelerate(operator)"
    return Reason(text, ReasonKind.NOT_ENABLED)
