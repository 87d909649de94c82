"""Why something isn't done in a faster way: a text, and the kind of reason that it is."""

from enum import StrEnum, auto
from typing import Self


class ReasonKind(StrEnum):
    """The kinds of :class:`Reason`. Texts may change from version to version, and kinds stay."""

    NOT_ENABLED = auto()
    """The operator, sampler or driver is NetKet's own, and :func:`ferroket.enable` isn't in effect."""
    PLATFORM = auto()
    """What is faster is for CPUs, and JAX runs on another platform."""
    STATE = auto()
    """The variational state is of another class, or a density matrix."""
    SAMPLER = auto()
    """The sampler is of another class."""
    TRANSITION_RULE = auto()
    """There are no chains in Rust for the transition rule, or none in this Hilbert space."""
    OPERATOR = auto()
    """The operator has no accelerated version."""
    OPERATOR_FORM = auto()
    """The accelerated operator isn't a sum of non-branching terms."""
    DRIVER = auto()
    """The driver makes no update of stochastic reconfiguration, or has no operator."""
    HILBERT_SPACE = auto()
    """The Hilbert space is unknown, or another one than that of the model or of the rule's operator."""
    LOCAL_STATES = auto()
    """Sites have more than two local states, or different ones."""
    CONSTRAINT = auto()
    """The Hilbert space has a constraint of the user's own."""
    MODEL = auto()
    """The model is none of those whose amplitude ratios are known."""
    VARIABLES = auto()
    """The variables have other names or shapes than the model's, or there are others than parameters."""
    DTYPE = auto()
    """The kernels have no numbers of this dtype, or not in this place."""
    OPERATION = auto()
    """The network has an operation that the kernels don't have."""
    UNREADABLE = auto()
    """The network's program isn't understood, has nothing to evaluate, or JAX can't map it over configurations."""
    TOO_LARGE = auto()
    """The network's program would be too long."""
    MIXES_SAMPLES = auto()
    """The network's value for one sample depends on others, as with batch normalisation."""
    TRACED = auto()
    """Values that have to be known are traced by JAX."""
    NOT_VERIFIED = auto()
    """What was found of the network gives other values than the network itself, or there are none to compare."""
    LARGE_NUMBERS = auto()
    """Numbers are infinite or huge, and sums that are updated would lose the others."""
    NO_FACTORS = auto()
    """A parameter has rows of log-derivatives, and no factors."""
    SOLVER = auto()
    """The linear solver, or one of its settings, needs another form of the system."""
    MEMORY = auto()
    """It would take more memory than there is for it."""


class Reason(str):
    """Why something isn't done in a faster way, as the end of a sentence, with its kind.

    It is a text like others, so that it can be printed, compared and searched. A program that depends on the reason
    asks for :attr:`kind`.

    Args:
        text: The text.
        kind: Its kind.
    """

    kind: ReasonKind
    """What kind of reason it is."""

    def __new__(cls, text: str, kind: ReasonKind) -> Self:
        """See the class."""
        reason = super().__new__(cls, text)
        reason.kind = kind
        return reason

    def __getnewargs__(self) -> tuple[str, ReasonKind]:  # type: ignore[override]
        """What a copy is made of."""
        return str(self), self.kind

    @classmethod
    def of(cls, text: str, kind: ReasonKind) -> "Reason":
        """A text with a kind, which is its own if it has one."""
        return text if isinstance(text, Reason) else cls(text, kind)

    def after(self, words: str) -> "Reason":
        """A reason of the same kind with words before its text."""
        return Reason(f"{words}{self}", self.kind)


USER_CONSTRAINT = Reason(
    "the Hilbert space has a constraint of its own, which the kernels don't know", ReasonKind.CONSTRAINT
)
"""Of chains and of local energies."""
