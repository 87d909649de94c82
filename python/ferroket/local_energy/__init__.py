"""Local energies: what NetKet's variational states call for operators of ours."""

from ferroket.local_energy import rules
from ferroket.local_energy.any_network import local_values

__all__ = ["local_values", "rules"]
