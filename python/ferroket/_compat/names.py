"""How a private name of another package is declared."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Private:
    """A private name of JAX or NetKet that is used or replaced. A test fails where it is gone.

    Attributes:
        name: ``module:object.attribute``. The attribute may be one that only the instances of a class have.
        why: What it is for.
        parameters: Those of a function that is called or replaced. All others must have a default.
        inherited: Whether our classes inherit it. It is used in their modules then, and others only in ``_compat``.
    """

    name: str
    why: str
    parameters: tuple[str, ...] = ()
    inherited: bool = False
