"""NetKet's own samplers with chains in Rust, in an unchanged script."""

from typing import Any

import netket as nk

from ferroket._compat.netket import replace_sampling_methods, sampling_methods
from ferroket.sampler import chains
from ferroket.sampler.chains import is_netkets

_NETKETS = sampling_methods()


def enable() -> None:
    """Has NetKet's Metropolis samplers run the chains in Rust that those of :mod:`ferroket.sampler` run.

    Those for which there are no such chains, and subclasses of :class:`netket.sampler.MetropolisSampler`, sample as
    before; but in Hilbert spaces with a constraint of the user's own NetKet's samplers reject moves that lead out.
    """
    replace_sampling_methods({"_sample_chain": _sample_chain, "_sample_next": _sample_next})


def disable() -> None:
    """Takes :func:`enable` back."""
    replace_sampling_methods(_NETKETS)


def is_enabled() -> bool:
    """Whether :func:`enable` is in effect."""
    return vars(nk.sampler.MetropolisSampler)["_sample_chain"] is _sample_chain


def _sample_chain(self: Any, *args: Any, **kwargs: Any) -> Any:
    netkets = _NETKETS["_sample_chain"]
    return chains.sample_chain(netkets, self, *args, **kwargs) if is_netkets(self) else netkets(self, *args, **kwargs)


def _sample_next(self: Any, *args: Any, **kwargs: Any) -> Any:
    netkets = _NETKETS["_sample_next"]
    return chains.sample_next(netkets, self, *args, **kwargs) if is_netkets(self) else netkets(self, *args, **kwargs)
