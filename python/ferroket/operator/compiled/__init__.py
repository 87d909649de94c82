"""The two forms that operators are compiled to: non-branching terms, and local matrices."""

from ferroket.operator.compiled.form import Form
from ferroket.operator.compiled.local_states import LocalStates, local_states
from ferroket.operator.compiled.masks import site_bits
from ferroket.operator.compiled.matrices import Matrices
from ferroket.operator.compiled.terms import Terms

__all__ = [
    "Form",
    "LocalStates",
    "Matrices",
    "Terms",
    "local_states",
    "site_bits",
]
