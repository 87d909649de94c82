"""The two forms that operators are compiled to: non-branching terms, and local matrices.

Where a Hilbert space has a constraint that the kernels don't know, either is restricted to it.
"""

from ferroket.operator.compiled.form import Form
from ferroket.operator.compiled.local_states import LocalStates, local_states
from ferroket.operator.compiled.masks import site_bits
from ferroket.operator.compiled.matrices import Matrices
from ferroket.operator.compiled.restricted import Constraint, Constraints, Restricted, allowed
from ferroket.operator.compiled.terms import Terms

__all__ = [
    "Constraint",
    "Constraints",
    "Form",
    "LocalStates",
    "Matrices",
    "Restricted",
    "Terms",
    "allowed",
    "local_states",
    "site_bits",
]
