"""Which way a local energy takes, and why not a faster one."""

from dataclasses import dataclass, field
from typing import Any

import jax
from netket.operator import Squared
from netket.vqs import MCMixedState, MCState

from ferroket._compat.netket import log_psi_of
from ferroket._deprecation import renamed_attribute
from ferroket.ansatz.layers import Layers
from ferroket.local_energy import known_model, patching
from ferroket.local_energy.any_network import Factors, factors_of, update_unsupported_reason
from ferroket.local_energy.chunks import chunk_size_of
from ferroket.operator import accelerate
from ferroket.operator.algebra.accelerated import Accelerated


@dataclass(frozen=True)
class Explanation:
    """What :func:`explain` found."""

    path: str
    """``known ratios``, ``any network``, or ``NetKet``."""
    ansatz: str | None = None
    """The ansatz whose ratios are known."""
    kernel: str = ""
    """The kernel that evaluates the local energy, in words."""
    reasons: list[str] = field(default_factory=list)
    """Why not a faster one."""
    chunk_size: int | None = None
    """How many configurations the network sees at once, on each device."""
    first_layer: int | None = None
    """How many sums over the sites a network's first layer has, which are updated for connected configurations; None if
    it has none, or where it is computed."""
    layers: int = 0
    """How many dense layers behind the first one are evaluated in Rust."""
    rest: str = ""
    """What Rust evaluates behind the first layer, in words; empty where XLA does."""
    determinants: int = 0
    """How many determinants the network is a product with, whose ratios are known."""

    family = renamed_attribute("family", "ansatz")

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.kernel}"]
        if self.chunk_size is not None:
            lines.append(f"configurations at once: {self.chunk_size}")
        if self.first_layer is not None:
            lines.append(f"its first layer, {self.first_layer} sums over the sites, is updated and not computed")
        if self.rest:
            lines.append(self.rest)
        if self.determinants:
            times = "a determinant, whose ratios" if self.determinants == 1 else "determinants, whose ratios"
            lines.append(f"it is something times {times} come from Rust")
        lines += [f"not faster, because {reason}" for reason in self.reasons]
        return "\n".join(lines)


def explain(vstate: Any, operator: Any) -> Explanation:
    """Tells which way ``vstate.expect(operator)`` takes, and why not a faster one.

    Args:
        vstate: A variational state of NetKet's.
        operator: One of ours, or NetKet's.

    Returns:
        What evaluates the local energy; ``print`` it for a summary.
    """
    if isinstance(operator, Squared):
        operator = operator.parent
    operator = _evaluated_by_us(vstate, operator)
    if isinstance(operator, str):
        return Explanation("NetKet", None, "NetKet's own kernel", [operator])
    ansatz, reasons = known_model.find(vstate, operator)
    platform = jax.default_backend()
    if ansatz is not None and platform != "cpu":
        reasons = [f"the kernel for {ansatz.name} runs on CPUs, and this is {platform}"]
    if reasons:
        n_samples = -(-vstate.n_samples // jax.device_count())
        x = jax.ShapeDtypeStruct((n_samples, vstate.hilbert.size), vstate.sampler.dtype)
        network = (log_psi_of(vstate), vstate.variables)
        chunk_size = chunk_size_of(vstate.chunk_size, n_samples, operator._form, *network, x)
        words = "the network on the connected configurations whose matrix elements aren't zero, in chunks"
        why_not = update_unsupported_reason(*network, operator, vstate.sampler.dtype) if platform == "cpu" else None
        found = Factors() if platform != "cpu" or why_not else factors_of(*network, operator._form, x)
        layer, rest = found.structure.first_layer, found.structure.rest
        width = None if layer is None or not found.structure.is_updated else layer.width
        count = 0 if found.beside is None else found.beside.count
        n_layers = len(rest.activations) if isinstance(rest, Layers) else 0
        reasons += [f"nothing of the network is updated: {why_not}"] if why_not else []
        reasons += filter(None, [found.structure.reason])
        in_rust = "" if rest is None else str(rest)
        return Explanation("any network", None, words, reasons, chunk_size, width, n_layers, in_rust, count)
    assert ansatz is not None
    words = f"amplitude ratios of {ansatz.name} in Rust; no connected configurations"
    return Explanation("known ratios", ansatz.name, words)


def _evaluated_by_us(vstate: Any, operator: Any) -> Accelerated | str:
    """The operator that our kernels evaluate, or why NetKet's does."""
    if not isinstance(vstate, MCState):
        return f"{type(vstate).__name__} is no MCState, and has no local energies of samples to accelerate"
    if isinstance(vstate, MCMixedState):
        return "the state is a density matrix, for whose local values only NetKet has kernels"
    accelerated = patching.replacement(operator)
    if accelerated is not None:
        return patching.netket_only_reason(vstate) or accelerated
    try:
        accelerated = accelerate(operator)
    except TypeError as error:
        return str(error)
    if not isinstance(accelerated, Accelerated):
        return f"{type(operator).__name__} has parts that can't be accelerated together"
    return "the operator is NetKet's: call fk.enable(), or give fk.accelerate(operator)"
