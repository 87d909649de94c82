"""Stochastic reconfiguration without a Jacobian.

:mod:`~ferroket.natural_gradient.structure` reads from a network how its parameters enter ln ψ. From that
:mod:`~ferroket.natural_gradient.log_derivatives` makes the factors of the log-derivatives,
:mod:`~ferroket.natural_gradient.ntk` their Gram matrix, and :mod:`~ferroket.natural_gradient.vmc_sr` the updates of
NetKet's drivers. Users have :mod:`ferroket.driver` and :mod:`ferroket.optimizer`, or ``fk.enable()``.
"""

from ferroket.natural_gradient.explanation import Layer, explain
from ferroket.natural_gradient.patching import disable, enable, is_enabled
from ferroket.natural_gradient.vmc_sr import update_by_flat_ntk, update_by_ntk, update_by_qgt
from ferroket.network import Plan as Explanation

__all__ = [
    "Explanation",
    "Layer",
    "disable",
    "enable",
    "explain",
    "is_enabled",
    "update_by_flat_ntk",
    "update_by_ntk",
    "update_by_qgt",
]
