"""What runs a part of a step: decided once, carried out by the code that runs, and printed by ``explain``."""

from dataclasses import dataclass, field
from typing import Any

from ferroket.ansatz import Ansatz
from ferroket.network.structure import Structure
from ferroket.reasons import Reason


@dataclass(frozen=True)
class Plan:
    """How samples, local energies or an update are computed, and why not faster; ``print`` it for a summary."""

    path: str
    """``NetKet``, or for samples ``chains in Rust`` or ``chains in Rust around the network``, for local energies
    ``known ratios`` or ``any network``, for an update ``factors``."""
    kernel: str = ""
    """What is computed there, in words."""
    reasons: list[Reason] = field(default_factory=list)
    """Why not a faster one, as ends of sentences, each with its ``kind``."""
    known: Ansatz | None = None
    """The ansatz of a model whose amplitude ratios are known."""
    moves: Any = field(default=None, compare=False, repr=False)
    """The transition rule of chains in Rust, as the kernels take it."""
    structure: Structure = field(default=Structure(), repr=False)
    """What of another network is updated, and what Rust evaluates."""
    determinants: int = 0
    """How many determinants with known ratios it is a product with."""
    at_once: int = 1
    """How many proposals of a chain the network sees at once, as far as the calls until now have found out."""
    chunk_size: int | None = None
    """How many configurations are evaluated, or samples differentiated, at once on each device."""
    layers: list[Any] = field(default_factory=list)
    """The parameters of an update, see :class:`ferroket.natural_gradient.Layer`."""
    derivatives: str = ""
    """What differentiates the network for an update, in words."""
    matrix: str = ""
    """The matrix of an update's linear system, in words."""
    solver: str = ""
    """What solves it, and how the devices share that."""
    memory: int | None = None
    """How many bytes the factors and rows take that each device holds at once."""
    memory_of_matrix: int | None = None
    """How many bytes it holds of the matrix of an update's linear system, and for its solution."""

    @classmethod
    def netkets(cls, what: str, *reasons: Reason) -> "Plan":
        """NetKet's own sampler, kernel or update, as without us."""
        return cls("NetKet", f"NetKet's own {what}", list(reasons))

    @property
    def is_netkets(self) -> bool:
        """Whether NetKet's own code runs."""
        return self.path == "NetKet"

    @property
    def ansatz(self) -> str | None:
        """The name of the ansatz whose amplitude ratios are known."""
        return None if self.known is None else self.known.name

    @property
    def rule(self) -> str | None:
        """What proposes moves of chains in Rust, ``local``, ``exchange`` or ``hamiltonian``."""
        return None if self.moves is None else str(self.moves.name)

    @property
    def first_layer(self) -> int | None:
        """How many sums over the sites a network's first layer has, which are updated; None if none are."""
        layer = self.structure.first_layer
        return layer.width if layer is not None and self.structure.is_updated else None

    @property
    def rest(self) -> str:
        """What Rust evaluates of a network, in words; empty where XLA does."""
        return "" if self.structure.rest is None else f"evaluated {self.structure.rest}"

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.kernel}", *(f"  {layer}" for layer in self.layers)]
        lines += [self.derivatives] if self.derivatives else []
        lines += [f"solver: {self.solver}"] if self.solver else []
        lines += [f"configurations at once: {self.chunk_size}"] if self.chunk_size is not None else []
        if self.memory is not None:
            lines.append(f"memory of factors and rows on each device: {self.memory / 2**20:.3g} MiB")
        if self.memory_of_matrix is not None:
            lines.append(
                f"memory of the matrix and its solution on each device: {self.memory_of_matrix / 2**20:.3g} MiB"
            )
        if self.first_layer is not None:
            lines.append(f"its first layer, {self.first_layer} sums over the sites, is updated and not computed")
        lines += [self.rest] if self.rest else []
        if self.determinants:
            times = "a determinant" if self.determinants == 1 else "determinants"
            lines.append(f"it is something times {times}, whose ratios come from Rust")
        if self.at_once > 1:
            lines.append(f"it sees {self.at_once} proposals of a chain at once, most of which are rejected")
        return "\n".join(lines + [f"not faster, because {reason}" for reason in self.reasons])
