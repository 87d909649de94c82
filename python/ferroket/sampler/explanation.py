"""Which way a state is sampled, and why not a faster one."""

from typing import Any

from netket.vqs import MCState

from ferroket._compat.netket import sampled_model_of
from ferroket.network import Plan
from ferroket.operator.constraints.hilbert import conserved_charges, user_constraints
from ferroket.reasons import Reason, ReasonKind
from ferroket.sampler import patching
from ferroket.sampler.chains import is_netkets, plan
from ferroket.sampler.metropolis import MetropolisSampler
from ferroket.sampler.rules import SiteExchangeRule


def explain(vstate: Any) -> Plan:
    """Tells which way a variational state of NetKet's is sampled, and why not a faster one.

    Args:
        vstate: The state.

    Returns:
        What makes its samples; ``print`` it for a summary.
    """
    if not isinstance(vstate, MCState):
        return Plan.netkets(
            "sampler", Reason(f"{type(vstate).__name__} is no MCState, and has no sampler", ReasonKind.STATE)
        )
    sampler = vstate.sampler
    if not (isinstance(sampler, MetropolisSampler) or is_netkets(sampler)):
        text = f"{type(sampler).__name__} isn't exactly one of the Metropolis samplers of NetKet or of fk.sampler"
        return Plan.netkets("sampler", Reason(text, ReasonKind.SAMPLER))
    found = plan(sampler, *sampled_model_of(vstate), vstate.chain_length)
    if not is_netkets(sampler) or patching.is_enabled():
        return found
    keeps_limits = isinstance(sampler.rule, SiteExchangeRule) and not user_constraints(sampler.hilbert)
    stays = conserved_charges(sampler.hilbert)[1] or keeps_limits
    leaves = "" if stays else ", whose moves may lead out of the Hilbert space"
    text = f"the sampler is NetKet's{leaves}: call fk.enable(), or take the one of fk.sampler"
    reason = Reason(text, ReasonKind.NOT_ENABLED)
    reasons = found.reasons if found.is_netkets else []
    return Plan.netkets("sampler", *(reasons if reasons and not leaves else [*reasons, reason]))
