"""The two forms that operators are compiled to: non-branching terms, and tables of local matrices."""

from ferroket.operator.compiled.form import Form
from ferroket.operator.compiled.local_states import LocalStates, local_states
from ferroket.operator.compiled.tables import Tables
from ferroket.operator.compiled.terms import Terms, site_bits

__all__ = ["Form", "LocalStates", "Tables", "Terms", "local_states", "site_bits"]
