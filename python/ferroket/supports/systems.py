"""Small systems: a Hilbert space, a sampler and an operator of NetKet's for each kind of model."""

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket import acceleration
from ferroket.operator import FermiHubbard

N_SAMPLES = 16


@dataclass(frozen=True)
class System:
    """What a model's state and driver are made with."""

    title: str
    sampler: Any
    operator: Any

    @property
    def hilbert(self) -> Any:
        """The space."""
        return self.sampler.hilbert

    def state(self, model: Any) -> Any:
        """A state of a model, whose parameters are small random numbers."""
        return state_of(self.sampler, model)

    def driver(self, model: Any) -> Any:
        """NetKet's ``VMC_SR`` for a model."""
        return vmc_sr(self.operator, self.state(model))


SQUARE = nk.graph.Square(4)


@cache
def spins() -> System:
    """Sixteen spins ½ on a square lattice, the Ising model, and flips of single spins."""
    hilbert = nk.hilbert.Spin(0.5, SQUARE.n_nodes)
    return System("spins ½", nk.sampler.MetropolisLocal(hilbert), nk.operator.Ising(hilbert, SQUARE, h=1.0))


@cache
def spins_one() -> System:
    """Spins 1, alike."""
    hilbert = nk.hilbert.Spin(1, SQUARE.n_nodes)
    flips = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], float)
    operator = nk.operator.LocalOperator(hilbert, [flips] * hilbert.size, [[site] for site in range(hilbert.size)])
    return System("spins 1", nk.sampler.MetropolisLocal(hilbert), operator)


@cache
def fermions() -> System:
    """Five fermions of each spin on a square lattice, the Hubbard model, and hops."""
    hilbert = nk.hilbert.SpinOrbitalFermions(SQUARE.n_nodes, s=1 / 2, n_fermions_per_spin=(5, 5))
    hops = nk.sampler.MetropolisFermionHop(hilbert, graph=SQUARE)
    # NetKet's has numba compile for a while.
    return System("fermions", hops, FermiHubbard(hilbert, SQUARE, t=1.0, U=4.0))


@cache
def particles() -> System:
    """Particles on a line, which have no connected elements."""
    hilbert = nk.experimental.hilbert.Particle(N=4, geometry=nk.experimental.geometry.Cell(d=1, L=5.0))
    return System(
        "continuous space",
        nk.sampler.MetropolisGaussian(hilbert, sigma=0.5),
        nk.operator.KineticEnergy(hilbert, mass=1.0),
    )


class DensityMatrices(System):
    """States of NetKet's for density matrices, and the driver for steady states."""

    def state(self, model: Any) -> Any:
        """A mixed state of a model."""
        return nk.vqs.MCMixedState(
            self.sampler, model, n_samples=N_SAMPLES, variables=variables_of(model, self.hilbert), seed=1
        )

    def driver(self, model: Any) -> Any:
        """NetKet's driver for steady states, with the preconditioner SR."""
        preconditioner = nk.optimizer.SR(diag_shift=0.1)
        return nk.driver.SteadyState(
            self.operator, nk.optimizer.Sgd(0.1), variational_state=self.state(model), preconditioner=preconditioner
        )


@cache
def density_matrices() -> System:
    """Four spins that decay."""
    chain = nk.graph.Chain(4)
    hilbert = nk.hilbert.Spin(0.5, 4)
    hamiltonian = nk.operator.Ising(hilbert, chain, h=1.0, dtype=complex).to_local_operator()
    decays = [nk.operator.spin.sigmam(hilbert, site) for site in range(4)]
    lindbladian = nk.operator.LocalLiouvillian(hamiltonian, decays)
    return DensityMatrices("density matrices", nk.sampler.MetropolisLocal(lindbladian.hilbert), lindbladian)


def variables_of(model: Any, hilbert: Any) -> Any:
    """A model's variables, small random numbers: so its initialisation isn't compiled."""
    sample = jax.ShapeDtypeStruct((1, hilbert.size), float)
    shapes = jax.eval_shape(model.init, jax.random.key(0), sample)
    random = np.random.default_rng(0)

    def numbers(leaf: Any) -> jax.Array:
        values = random.normal(size=leaf.shape, scale=0.1)
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            values = values + 1j * random.normal(size=leaf.shape, scale=0.1)
        return jnp.asarray(values.astype(leaf.dtype))

    return jax.tree.map(numbers, shapes)


def state_of(sampler: Any, model: Any) -> Any:
    """A Monte Carlo state with few samples."""
    return nk.vqs.MCState(
        sampler, model, n_samples=N_SAMPLES, variables=variables_of(model, sampler.hilbert), seed=1, sampler_seed=1
    )


def vmc_sr(operator: Any, state: Any, **settings: Any) -> Any:
    """NetKet's ``VMC_SR``; by default it solves for the samples."""
    settings = {"use_ntk": True, "on_the_fly": True, "diag_shift": 0.1, **settings}
    return nk.driver.VMC_SR(operator, nk.optimizer.Sgd(0.1), variational_state=state, **settings)


@contextlib.contextmanager
def netkets_classes() -> Iterator[None]:
    """With ``fk.enable()``, so that the tables are of NetKet's own classes, and without what NetKet says meanwhile."""
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()), acceleration.enable():
        yield
