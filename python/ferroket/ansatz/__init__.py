"""Models whose amplitude ratios are known, one file for each kind, and what the kernels take in their place.

:func:`register` adds an :class:`Ansatz` of your own.
"""

from ferroket.ansatz import (
    jastrow,
    pair_product,
    product,
    rbm,
    rbm_mod_phase,
    rbm_multi_val,
    rbm_symm,
    slater,
    slater_jastrow,
)
from ferroket.ansatz.amplitudes import (
    Amplitudes,
    CorrelatedAmplitudes,
    DoublonHolonAmplitudes,
    JastrowAmplitudes,
    ModulusAndPhase,
    PfaffianAmplitudes,
    ProductAmplitudes,
    RBMAmplitudes,
    SlaterAmplitudes,
)
from ferroket.ansatz.registry import Ansatz, register

__all__ = [
    "Amplitudes",
    "Ansatz",
    "CorrelatedAmplitudes",
    "DoublonHolonAmplitudes",
    "JastrowAmplitudes",
    "ModulusAndPhase",
    "PfaffianAmplitudes",
    "ProductAmplitudes",
    "RBMAmplitudes",
    "SlaterAmplitudes",
    "jastrow",
    "pair_product",
    "product",
    "rbm",
    "rbm_mod_phase",
    "rbm_multi_val",
    "rbm_symm",
    "register",
    "slater",
    "slater_jastrow",
]
