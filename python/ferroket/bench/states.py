"""The variational states of the benchmarks of sampling and of whole steps, each by NetKet's samplers or by ours."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import netket as nk
import numpy as np

import ferroket as fk
from ferroket.bench.hamiltonians import SPINS, fermi_hubbard, heisenberg, ising

Library = Literal["ferroket", "netket"]

CHAINS = 16
"""Chains on each device."""


@dataclass(frozen=True)
class Case:
    """A Hamiltonian, how its space is sampled, and a model.

    Args:
        hamiltonian: Makes the operator, NetKet's.
        sampler: Makes the sampler, with the functions of ``nk.sampler`` or ``fk.sampler``.
        model: Makes the model.
        sampling_bar: How many times faster than NetKet sampling has to be.
        step_bar: How many times faster a whole step of VMC_SR has to be.
    """

    hamiltonian: Callable[[], Any]
    sampler: Callable[..., Any]
    model: Callable[[], Any]
    sampling_bar: float | None = None
    step_bar: float | None = None

    def state(self, library: Library, n_samples: int) -> tuple[Any, Any]:
        """The state and the Hamiltonian."""
        theirs = self.hamiltonian()
        operator, samplers = (fk.accelerate(theirs), fk.sampler) if library == "ferroket" else (theirs, nk.sampler)
        sampler = self.sampler(samplers, operator, n_chains_per_rank=CHAINS)
        state = nk.vqs.MCState(sampler, self.model(), n_samples=n_samples, seed=1, sampler_seed=2)
        if library == "ferroket":
            assert fk.sampler.explain(state).path == "chains in Rust"
        return state, operator


def _local(samplers: Any, operator: Any, **options: Any) -> Any:
    return samplers.MetropolisLocal(operator.hilbert, **options)


def _exchange(samplers: Any, operator: Any, **options: Any) -> Any:
    return samplers.MetropolisExchange(operator.hilbert, graph=nk.graph.Grid(SPINS, pbc=True), **options)


def _hamiltonian(samplers: Any, operator: Any, **options: Any) -> Any:
    return samplers.MetropolisHamiltonian(operator.hilbert, operator, **options)


def _fermions(samplers: Any, operator: Any, **options: Any) -> Any:
    graph = nk.graph.Grid((4, 4), pbc=True)
    return samplers.MetropolisFermionHop(operator.hilbert, graph=graph, **options)


_spins = partial(heisenberg, total_sz=0)

CASES = {
    "Ising chain 64, RBM α=1": Case(
        partial(ising, 64), _local, lambda: nk.models.RBM(alpha=1, param_dtype=float), 20, 1.6
    ),
    "Heisenberg 10×10, RBM α=1": Case(_spins, _exchange, lambda: nk.models.RBM(alpha=1, param_dtype=float), 20, 2),
    "Heisenberg 10×10, complex RBM α=4": Case(
        _spins, _exchange, lambda: nk.models.RBM(alpha=4, param_dtype=complex), 30, 1.4
    ),
    "Heisenberg 10×10, Jastrow": Case(_spins, _exchange, lambda: nk.models.Jastrow(param_dtype=float), 15, 2),
}
"""The cases that have to be a certain factor faster than NetKet."""

MORE = {
    "Heisenberg 10×10, RBM α=4, float32": Case(
        _spins, _exchange, lambda: nk.models.RBM(alpha=4, param_dtype=np.float32)
    ),
    "Heisenberg 10×10, RBM α=1, Hamiltonian rule": Case(
        _spins, _hamiltonian, lambda: nk.models.RBM(alpha=1, param_dtype=float)
    ),
    "Fermi-Hubbard 4×4, RBM α=2, fermion hops": Case(
        partial(fermi_hubbard, (4, 4)), _fermions, lambda: nk.models.RBM(alpha=2, param_dtype=float)
    ),
}
"""Cases of sampling alone."""
