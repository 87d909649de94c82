"""What the doctor has found out, and the form of what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ferroket.distributed.affinity import describe
from ferroket.distributed.doctor.facts import Facts, Library
from ferroket.distributed.doctor.trial import Failure, Outcome
from ferroket.distributed.doctor.worker import Running


class Severity(StrEnum):
    """Whether a run would fail."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Problem:
    """What is wrong.

    Attributes:
        severity: an error lets a run fail; with a warning it is slow, or right by luck.
        text: what, with the values that show it.
        mend: what to do.
    """

    severity: Severity
    text: str
    mend: str


@dataclass(frozen=True, kw_only=True)
class Examination:
    """All that was found out.

    Attributes:
        facts: of the process that reports.
        neighbours: of the ranks of its node, itself among them, by rank.
        library: the MPI library, None if there is none.
        library_error: why.
        outcome: of the trial, None if none was made.
    """

    facts: Facts
    neighbours: list[Facts]
    library: Library | None
    library_error: str | None
    outcome: Outcome | None

    @property
    def running(self) -> dict[int, Running]:
        """The ranks that have started MPI and JAX; empty if one of them hasn't."""
        return {rank.facts.rank: rank for rank in (self.outcome.ranks if self.outcome else [])}

    @property
    def ranks(self) -> list[Facts]:
        """The facts of all ranks of the job, or of those of this node if they never met."""
        return [rank.facts for rank in self.running.values()] or self.neighbours

    @property
    def failures(self) -> list[Failure]:
        """What went wrong in the trial."""
        return self.outcome.failures if self.outcome else []

    @property
    def works(self) -> bool:
        """Whether a trial was made, and went well."""
        return self.outcome is not None and not self.outcome.failures


def is_gloo(facts: Facts) -> bool:
    """Whether gloo was asked for, which needs no MPI."""
    return facts.variables.get("FERROKET_COLLECTIVES") == "gloo"


def ranks_of(facts: Sequence[Facts]) -> str:
    """``ranks 0-3,8``."""
    ranks = sorted(own.rank for own in facts)
    return f"rank{'s' * (len(ranks) > 1)} {describe(tuple(ranks))}"


def count(number: int, what: str) -> str:
    """``3 cores``."""
    return f"{number} {what}{'s' * (number != 1)}"
