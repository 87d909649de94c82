"""Local energies: what NetKet's variational states call for operators of ours.

:func:`local_values` serves any network. Models whose amplitude ratios are known are those of :mod:`ferroket.ansatz`.
"""

from typing import TYPE_CHECKING

from ferroket._deprecation import moved_names
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

if not TYPE_CHECKING:
    __getattr__ = moved_names(
        __name__,
        {
            "Amplitudes": "ferroket.ansatz.Amplitudes",
            "Family": "ferroket.ansatz.Ansatz",
            "Machine": "ferroket.ansatz.RBMAmplitudes",
            "ModulusAndPhase": "ferroket.ansatz.ModulusAndPhase",
            "Quadratic": "ferroket.ansatz.JastrowAmplitudes",
            "amplitudes": "ferroket.ansatz.amplitudes",
            "jastrow": "ferroket.ansatz.jastrow",
            "rbm": "ferroket.ansatz.rbm",
            "rbm_mod_phase": "ferroket.ansatz.rbm_mod_phase",
            "rbm_multi_val": "ferroket.ansatz.rbm_multi_val",
            "rbm_symm": "ferroket.ansatz.rbm_symm",
            "register": "ferroket.ansatz.register",
            "rules": "ferroket.local_energy.dispatch",
        },
    )
