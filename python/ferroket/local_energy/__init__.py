"""Local energies: what NetKet's variational states call for operators of ours.

:func:`local_values` serves any network. Models whose amplitude ratios are known have a :class:`Family` each.
"""

from ferroket.local_energy import amplitudes, forces, jastrow, rbm, rbm_mod_phase, rbm_multi_val, rbm_symm, rules
from ferroket.local_energy.amplitudes import Amplitudes, Machine, ModulusAndPhase, Quadratic
from ferroket.local_energy.any_network import local_values
from ferroket.local_energy.enabling import disable, enable, is_enabled
from ferroket.local_energy.explaining import Explanation, explain
from ferroket.local_energy.family import Family, register

__all__ = [
    "Amplitudes",
    "Explanation",
    "Family",
    "Machine",
    "ModulusAndPhase",
    "Quadratic",
    "amplitudes",
    "disable",
    "enable",
    "explain",
    "forces",
    "is_enabled",
    "jastrow",
    "local_values",
    "rbm",
    "rbm_mod_phase",
    "rbm_multi_val",
    "rbm_symm",
    "register",
    "rules",
]
