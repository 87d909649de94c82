"""Models whose amplitude ratios are known, one file for each kind, and what the kernels take in their place.

:func:`register` adds an :class:`Ansatz` of your own.
"""

from ferroket.ansatz import jastrow, rbm, rbm_mod_phase, rbm_multi_val, rbm_symm, slater
from ferroket.ansatz.amplitudes import Amplitudes, JastrowAmplitudes, ModulusAndPhase, RBMAmplitudes, SlaterAmplitudes
from ferroket.ansatz.registry import Ansatz, register

__all__ = [
    "Amplitudes",
    "Ansatz",
    "JastrowAmplitudes",
    "ModulusAndPhase",
    "RBMAmplitudes",
    "SlaterAmplitudes",
    "jastrow",
    "rbm",
    "rbm_mod_phase",
    "rbm_multi_val",
    "rbm_symm",
    "register",
    "slater",
]
