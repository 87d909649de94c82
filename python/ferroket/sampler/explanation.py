"""Which way a state is sampled, and why not a faster one."""

from dataclasses import dataclass, field
from typing import Any

from netket.vqs import MCState

from ferroket._compat.netket import sampled_model_of
from ferroket._deprecation import renamed_attribute
from ferroket.ansatz.layers import Layers
from ferroket.operator.algebra.sectors import sectors
from ferroket.sampler import chains, patching
from ferroket.sampler.any_network import makes_all_moves, structure_of
from ferroket.sampler.metropolis import MetropolisSampler


@dataclass(frozen=True)
class Explanation:
    """What :func:`explain` found."""

    path: str
    """``chains in Rust``, ``chains in Rust around the network`` or ``NetKet``."""
    rule: str | None = None
    """What proposes moves where the chains are in Rust, ``local``, ``exchange`` or ``hamiltonian``."""
    ansatz: str | None = None
    """The ansatz of the model where the chains are in Rust."""
    reasons: list[str] = field(default_factory=list)
    """Why not a faster one."""
    first_layer: int | None = None
    """How many sums over the sites a network's first layer has, which are updated along the chains; None if it has
    none."""

    layers: int = 0
    """How many dense layers behind the first one are evaluated in Rust, so that chains make all moves there."""
    rest: str = ""
    """What Rust evaluates behind the first layer, in words; empty where XLA does."""

    at_once: int = 1
    """How many proposals of a chain the network sees at once, as far as the calls until now have found out."""

    family = renamed_attribute("family", "ansatz")

    def __str__(self) -> str:
        if self.path == "NetKet":
            return "\n".join(["NetKet: NetKet's own sampler", *(f"not faster, because {r}" for r in self.reasons)])
        if self.ansatz is not None:
            return f"{self.path}: the {self.rule} rule, with amplitude ratios of {self.ansatz}"
        lines = [f"{self.path}: the {self.rule} rule, and the network evaluated for each proposal"]
        lines += [f"its amplitude ratios aren't known, because {reason}" for reason in self.reasons]
        if self.first_layer is not None:
            lines.append(f"its first layer, {self.first_layer} sums over the sites, is updated and not computed")
        if self.rest:
            lines.append(self.rest)
        if self.at_once > 1:
            lines.append(f"it sees {self.at_once} proposals of a chain at once, most of which are rejected")
        return "\n".join(lines)


def explain(vstate: Any) -> Explanation:
    """Tells which way a variational state of NetKet's is sampled, and why not a faster one.

    Args:
        vstate: The state.

    Returns:
        What makes its samples; ``print`` it for a summary.
    """
    if not isinstance(vstate, MCState):
        return Explanation("NetKet", reasons=[f"{type(vstate).__name__} is no MCState, and has no sampler"])
    sampler = vstate.sampler
    if not (type(sampler) is MetropolisSampler or chains.is_netkets(sampler)):
        name = type(sampler).__name__
        return Explanation(
            "NetKet", reasons=[f"{name} isn't exactly one of the Metropolis samplers of NetKet or of fk.sampler"]
        )
    found = chains.plan(sampler, *sampled_model_of(vstate))
    if chains.is_netkets(sampler) and not patching.is_enabled():
        leaves = "" if sectors(sampler.hilbert)[1] else ", whose moves may lead out of the Hilbert space"
        reason = f"the sampler is NetKet's{leaves}: call fk.enable(), or take the one of fk.sampler"
        reasons = found if isinstance(found, list) else []
        return Explanation("NetKet", reasons=reasons if reasons and not leaves else [*reasons, reason])
    if isinstance(found, list):
        return Explanation("NetKet", reasons=found)
    if found.ansatz is None:
        structure = structure_of(sampler, *sampled_model_of(vstate))
        layer = structure.first_layer
        width = None if layer is None or not structure.is_updated else layer.width
        name = found.rule.name
        search = chains.search_of(name, sampler, sampled_model_of(vstate)[0], vstate.chain_length)
        rest = structure.rest
        n_layers = len(rest.activations) if isinstance(rest, Layers) else 0
        path = "chains in Rust" if makes_all_moves(sampler, structure) else "chains in Rust around the network"
        reasons = [*found.reasons, *filter(None, [structure.reason])]
        words = "" if rest is None else str(rest)
        return Explanation(path, name, None, reasons, width, n_layers, words, search.together)
    return Explanation("chains in Rust", found.rule.name, found.ansatz.name)
