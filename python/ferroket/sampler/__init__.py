"""Metropolis samplers whose chains run in Rust where the model allows it, and are NetKet's own where not.

The constructors are NetKet's. Models whose amplitude ratios are known, those of :mod:`ferroket.ansatz`, are
sampled by chains in Rust on CPUs; :func:`explain` tells whether a state is, and why not.
"""

from ferroket.network import Plan as Explanation
from ferroket.sampler import rules
from ferroket.sampler.explanation import explain
from ferroket.sampler.metropolis import (
    MetropolisExchange,
    MetropolisFermionHop,
    MetropolisHamiltonian,
    MetropolisLocal,
    MetropolisSampler,
    MetropolisSiteExchange,
)
from ferroket.sampler.patching import disable, enable, is_enabled

__all__ = [
    "Explanation",
    "MetropolisExchange",
    "MetropolisFermionHop",
    "MetropolisHamiltonian",
    "MetropolisLocal",
    "MetropolisSampler",
    "MetropolisSiteExchange",
    "disable",
    "enable",
    "explain",
    "is_enabled",
    "rules",
]
