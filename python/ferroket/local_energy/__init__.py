"""Local energies: what NetKet's variational states call for operators of ours.

:func:`local_values` serves any network. Models whose amplitude ratios are known are those of :mod:`ferroket.ansatz`.
"""

from ferroket.local_energy import dispatch, forces
from ferroket.local_energy.any_network import local_values
from ferroket.local_energy.lanczos import LanczosStep
from ferroket.local_energy.patching import disable, enable, is_enabled
from ferroket.local_energy.plan import explain
from ferroket.network import Plan as Explanation

__all__ = [
    "Explanation",
    "LanczosStep",
    "disable",
    "dispatch",
    "enable",
    "explain",
    "forces",
    "is_enabled",
    "local_values",
]
