"""How long a step would take on more ranks than there are here, on a cluster: a model, made of what was measured.

It leaves out how much ranks wait for the slowest of them, and how much slower a core is when all of its node compute.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ferroket.natural_gradient.blocks import Blocks


@dataclass(frozen=True)
class Interconnect:
    """What carries messages."""

    latency: float = 2e-6
    """Seconds that a message takes from one rank to another; between nodes with InfiniBand, 1 to 2 µs."""
    rate: float = 1.5e9
    """Bytes a second that each rank sends and receives while all do: what 64 ranks have of the 300 GB/s of a node's
    memory if each byte is moved three times. InfiniBand of 25 GB/s a node carries each byte of a ring once, and isn't
    what limits it."""


@dataclass(frozen=True)
class Work:
    """What one rank alone needs for a step, in seconds of one core, and what is sent in it."""

    samples: int
    """How many samples that is for."""
    sampling: float
    local_energy: float
    derivatives: float
    """The update without its linear system."""
    solve: float
    rest: float
    """What each rank does by itself: Python, statistics, the optimizer."""
    gathered: float
    """Bytes of the factors of all samples."""
    collectives: float
    """Collectives in a step beside those of the linear system."""


def seconds(work: Work, ranks: int, samples: int, interconnect: Interconnect) -> dict[str, float]:
    """The seconds of each part of a step.

    Sampling and local energies grow with the samples. The update's matrix grows with their square, the linear system
    with their cube. All is shared by the ranks, but for the rest, and for the diagonal parts that each rank factors.

    Args:
        work: Of one rank.
        ranks: How many there are.
        samples: Of all ranks together.
        interconnect: Between them.
    """
    times = samples / work.samples
    blocks = Blocks.of(max(1, samples // ranks), ranks)
    shared = 1 / ranks + (1 / blocks.n_steps**2 if ranks > 1 else 0)
    matrix = 8 * samples**2 / 2 if ranks > 1 else 0
    # A panel has two gathers, and going back a sum.
    messages = work.collectives + 3 * blocks.n_steps
    return {
        "sampling": work.sampling * times / ranks,
        "local energy": work.local_energy * times / ranks,
        "update": work.derivatives * times**2 / ranks + work.solve * times**3 * shared,
        "rest": work.rest,
        "messages": (messages * math.ceil(math.log2(ranks)) * interconnect.latency)
        + (work.gathered * times * (ranks > 1) + matrix) / interconnect.rate,
    }


def work_of(measured: Mapping[str, Mapping[str, float]], samples: int, gathered: float, collectives: float) -> Work:
    """The work of a step, of what its parts cost one rank, and the solve alone.

    Args:
        measured: By part, with its ``cpu``.
        samples: How many samples that was for.
        gathered: See :class:`Work`.
        collectives: See :class:`Work`.
    """
    cpu = {part: cost["cpu"] for part, cost in measured.items()}
    return Work(
        samples,
        cpu["sampling"],
        cpu["local energy"],
        max(0.0, cpu["update"] - cpu["solve"]),
        cpu["solve"],
        cpu["rest"],
        gathered,
        collectives,
    )
