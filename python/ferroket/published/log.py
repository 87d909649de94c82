"""The log of a run: energies, what they cost and on what machine, small enough to be kept beside its script."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

POINTS = 200
"""How many points of a curve are kept for the page."""

_SECONDS_PER_HOUR = 3600


@dataclass
class Segment:
    """Steps that one start of the script has made.

    Attributes:
        ranks: How many processes.
        cores: How many cores they had together.
        processor: The first one's.
        versions: Of Ferroket, JAX, NetKet.
        steps: How many steps.
        seconds: How long they took.
    """

    ranks: int
    cores: int
    processor: str
    versions: dict[str, str]
    steps: int = 0
    seconds: float = 0.0

    @property
    def core_hours(self) -> float:
        """Cores times hours."""
        return self.cores * self.seconds / _SECONDS_PER_HOUR


@dataclass
class Log:
    """What a run has found so far.

    Attributes:
        values: Of each step, the energy or the like, as the driver estimated it.
        errors: Their statistical errors.
        core_hours: The cost up to each step.
        segments: One for each start of the script.
        final: What was found in the end.
    """

    values: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    core_hours: list[float] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    final: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> "Log":
        """What :meth:`to_json` has written."""
        content = json.loads(text)
        return cls(**content | {"segments": [Segment(**segment) for segment in content["segments"]]})

    def to_json(self) -> str:
        """All of it."""
        return json.dumps(asdict(self))

    @property
    def total_core_hours(self) -> float:
        """The cost so far."""
        return sum(segment.core_hours for segment in self.segments)

    def add(self, statistics: Mapping[str, Any], seconds: float) -> None:
        """Adds steps of the present start.

        Args:
            statistics: Their values' ``Mean`` and ``Sigma``, as a log of NetKet's has them.
            seconds: How long they took.
        """
        means, errors = (np.real(np.asarray(statistics[key])).tolist() for key in ("Mean", "Sigma"))
        before = self.total_core_hours
        self.add_cost(len(means), seconds)
        cost = self.total_core_hours - before
        self.core_hours += [before + cost * (n + 1) / len(means) for n in range(len(means))]
        self.values += means
        self.errors += errors

    def add_cost(self, steps: int, seconds: float) -> None:
        """Adds what the present start has cost without energies of the result.

        Args:
            steps: How many steps of another system.
            seconds: How long they took, or what comes after the last step.
        """
        self.segments[-1].steps += steps
        self.segments[-1].seconds += seconds

    def for_page(self, scale: float) -> dict[str, Any]:
        """What is kept beside the script: means over neighbouring steps where there are many.

        Args:
            scale: What values are multiplied with.
        """
        groups = np.array_split(np.arange(len(self.values)), min(POINTS, max(1, len(self.values))))
        groups = [group for group in groups if group.size]
        values, errors = scale * np.asarray(self.values), scale * np.asarray(self.errors)
        return {
            "final": self.final,
            "segments": [asdict(segment) for segment in self.segments],
            "steps": [int(group[-1]) + 1 for group in groups],
            "core_hours": [round(self.core_hours[group[-1]], 6) for group in groups],
            "values": [round(float(values[group].mean()), 8) for group in groups],
            "errors": [round(float(np.sqrt((errors[group] ** 2).sum()) / group.size), 8) for group in groups],
        }
