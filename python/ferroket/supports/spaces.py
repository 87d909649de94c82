"""Hilbert spaces, with a model whose amplitude ratios are known on sites with two local states."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk

from ferroket import local_energy, sampler
from ferroket.hilbert import SiteOccupations
from ferroket.operator import FermiHubbard
from ferroket.supports.systems import SQUARE, fermions, particles, spins_one, state_of
from ferroket.supports.tables import Row, Table
from ferroket.supports.words import of_samples

_N = SQUARE.n_nodes


class _Blockade(nk.hilbert.constraint.DiscreteHilbertConstraint):
    """No two neighbours on a ring are excited."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return ~((x > 0) & (jnp.roll(x, 1, axis=-1) > 0)).any(axis=-1)

    def __hash__(self) -> int:
        return hash("Blockade")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Blockade)


def _flips(hilbert: Any, n_sites: int = _N) -> tuple[Any, Any]:
    operator = nk.operator.LocalOperator(hilbert, [[[0, 1], [1, 0]]] * n_sites, [[site] for site in range(n_sites)])
    return nk.sampler.MetropolisLocal(hilbert), operator


def _ising(hilbert: Any) -> tuple[Any, Any]:
    return nk.sampler.MetropolisLocal(hilbert), nk.operator.Ising(hilbert, SQUARE, h=1.0)


def _exchanges(hilbert: Any) -> tuple[Any, Any]:
    return nk.sampler.MetropolisExchange(hilbert, graph=SQUARE), nk.operator.Heisenberg(hilbert, SQUARE)


def _bosons(hilbert: Any) -> tuple[Any, Any]:
    operator = nk.operator.BoseHubbard(hilbert, SQUARE, U=4.0)
    is_conserved = hilbert.n_particles is not None
    rule = nk.sampler.MetropolisExchange(hilbert, graph=SQUARE) if is_conserved else nk.sampler.MetropolisLocal(hilbert)
    return rule, operator


def _electrons(**settings: Any) -> tuple[Any, Any]:
    space = nk.hilbert.SpinOrbitalFermions(_N, s=1 / 2, n_fermions_per_spin=(5, 5), **settings)
    hops = nk.sampler.MetropolisFermionHop(space, graph=SQUARE)
    return hops, FermiHubbard(space, SQUARE, t=1.0, U=4.0)


_MAKE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "Spin(1/2)": lambda: _ising(nk.hilbert.Spin(0.5, _N)),
    "Spin(1/2, total_sz=0)": lambda: _exchanges(nk.hilbert.Spin(0.5, _N, total_sz=0)),
    "Spin(1)": lambda: (spins_one().sampler, spins_one().operator),
    "Qubit": lambda: _ising(nk.hilbert.Qubit(_N)),
    "Fock(1)": lambda: _flips(nk.hilbert.Fock(1, _N)),
    "Fock(3)": lambda: _bosons(nk.hilbert.Fock(3, _N)),
    "Fock(3, n_particles=16)": lambda: _bosons(nk.hilbert.Fock(3, _N, n_particles=16)),
    "SpinOrbitalFermions": lambda: (fermions().sampler, fermions().operator),
    "SpinOrbitalFermions(constraint=fk.hilbert.SiteOccupations)": lambda: _electrons(
        constraint=SiteOccupations(_N, maximum=1)
    ),
    "Fock(1, constraint=…)": lambda: _flips(nk.hilbert.Fock(1, _N, constraint=_Blockade())),
    "TensorHilbert": lambda: _flips(nk.hilbert.TensorHilbert(nk.hilbert.Spin(0.5, 8), nk.hilbert.Fock(3, 8)), 8),
    "Particle": lambda: (particles().sampler, particles().operator),
}


def _cells(make: Callable[[], tuple[Any, Any]]) -> list[str]:
    chosen, operator = make()
    space = chosen.hilbert
    model = nk.models.RBM() if isinstance(space, nk.hilbert.DiscreteHilbert) else nk.models.Gaussian()
    state = state_of(chosen, model)
    plans = sampler.explain(state), local_energy.explain(state, operator)
    return [of_samples(plan, is_known=True) for plan in plans]


SPACES = Table(
    "Hilbert spaces",
    ["space", "sampling", "local energies"],
    [Row(name, partial(_cells, make)) for name, make in _MAKE.items()],
)
