"""The variational states of the benchmarks of sampling and of whole steps, each by NetKet's samplers or by ours."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Literal

import netket as nk
import numpy as np

import ferroket as fk
from ferroket.bench import models
from ferroket.bench.hamiltonians import KAGOME, SPINS, fermi_hubbard, heisenberg, ising, kagome, t_v
from ferroket.bench.molecules import hydrogen_chain

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
        update_bar: How many times faster the update has to be, in such a step.
        samples: How many samples a step takes.
        netkets: The same model with the same parameters as NetKet's users have it, where it is another one.
    """

    hamiltonian: Callable[[], Any]
    sampler: Callable[..., Any]
    model: Callable[[], Any]
    sampling_bar: float | None = None
    step_bar: float | None = None
    update_bar: float | None = None
    samples: int = 1024
    netkets: Callable[[], Any] | None = None

    def state(self, library: Library, n_samples: int) -> tuple[Any, Any]:
        """The state and the Hamiltonian."""
        theirs = self.hamiltonian()
        operator, samplers = (fk.accelerate(theirs), fk.sampler) if library == "ferroket" else (theirs, nk.sampler)
        sampler = self.sampler(samplers, operator, n_chains_per_rank=CHAINS)
        model = (self.netkets or self.model)() if library == "netket" else self.model()
        return nk.vqs.MCState(sampler, model, n_samples=n_samples, seed=1, sampler_seed=2), operator


def _local(samplers: Any, operator: Any, **options: Any) -> Any:
    return samplers.MetropolisLocal(operator.hilbert, **options)


def _exchange(samplers: Any, operator: Any, *, shape: tuple[int, ...] = SPINS, **options: Any) -> Any:
    return samplers.MetropolisExchange(operator.hilbert, graph=nk.graph.Grid(shape, pbc=True), **options)


def _exchange_on_kagome(samplers: Any, operator: Any, **options: Any) -> Any:
    return samplers.MetropolisExchange(operator.hilbert, graph=nk.graph.Kagome(KAGOME, pbc=True), **options)


def _hamiltonian(samplers: Any, operator: Any, **options: Any) -> Any:
    return samplers.MetropolisHamiltonian(operator.hilbert, operator, **options)


def _fermions(samplers: Any, operator: Any, *, shape: tuple[int, int] = (4, 4), **options: Any) -> Any:
    graph = nk.graph.Grid(shape, pbc=True)
    return samplers.MetropolisFermionHop(operator.hilbert, graph=graph, **options)


def _all_hops(samplers: Any, operator: Any, **options: Any) -> Any:
    # NetKet's Hamiltonian rule names a configuration once for each term that leads there: its law isn't ours.
    graph = nk.graph.Graph(edges=list(combinations(range(operator.hilbert.n_orbitals), 2)))
    return samplers.MetropolisFermionHop(operator.hilbert, graph=graph, **options)


def _symmetric() -> Any:
    return nk.models.RBMSymm(symmetries=nk.graph.Chain(60).translation_group(), alpha=3, param_dtype=float)


def _determinants() -> Iterator[tuple[str, Case, float | None]]:
    """The names and cases of determinants, and how many times faster than NetKet's their local energies have to be."""
    lattices: dict[str, tuple[Callable[[], Any], tuple[int, int]]] = {
        "Fermi-Hubbard 6×6": (partial(fermi_hubbard, (6, 6)), (6, 6)),
        "Fermi-Hubbard 8×8": (fermi_hubbard, (8, 8)),
        "t-V 8×8": (t_v, (8, 8)),
    }
    bars = {"Fermi-Hubbard 6×6, Slater2nd": (50, 15), "Fermi-Hubbard 8×8, Slater2nd": (100, 30)}
    for lattice, (hamiltonian, shape) in lattices.items():
        for name, model in models.DETERMINANTS.items():
            if lattice == "t-V 8×8" and name != "Slater2nd":
                continue
            of_local_energies, of_sampling = bars.get(f"{lattice}, {name}", (30, 10))
            make = partial(_on_space_of, hamiltonian, model)
            case = Case(hamiltonian, partial(_fermions, shape=shape), make, of_sampling, 15)
            yield f"{lattice}, {name}", case, of_local_energies
    del lattices["t-V 8×8"]
    lattices["Fermi-Hubbard 4×16"] = partial(fermi_hubbard, (4, 16)), (4, 16)
    for lattice, (hamiltonian, shape) in lattices.items():
        for name, model in models.BACKFLOW.items():
            make = partial(_on_space_of, hamiltonian, model)
            yield f"{lattice}, {name}", Case(hamiltonian, partial(_fermions, shape=shape), make, 5), 15
        of_pairs: dict[str, dict[str, Any]] = {
            "pairs, Jastrow, Gutzwiller": {},
            "pairs of 2×2 sites": {"lattice": shape},
            "pairs of 2×2 sites, doublons and holons": {"lattice": shape, "doublons": True},
            "singlet pairs of 2×2 sites": {"lattice": shape, "angles": 8},
        }
        for name, options in of_pairs.items():
            pairs = partial(models.pairs, **options)
            # JAX has no Pfaffians.
            theirs = None if "angles" in options else partial(_on_space_of, hamiltonian, partial(pairs, by_xla=True))
            make = partial(_on_space_of, hamiltonian, pairs)
            yield f"{lattice}, {name}", Case(hamiltonian, partial(_fermions, shape=shape), make, netkets=theirs), None
    for name, model in models.BACKFLOW.items():
        make = partial(_on_space_of, hydrogen_chain, model)
        yield f"H6 in STO-3G, {name}", Case(hydrogen_chain, _all_hops, make), None
    orbitals = partial(nk.models.Slater2nd, generalized=True)
    molecule = Case(hydrogen_chain, _all_hops, partial(_on_space_of, hydrogen_chain, orbitals))
    yield "H6 in STO-3G, generalised Slater2nd", molecule, None


def _on_space_of(hamiltonian: Callable[[], Any], model: Callable[..., Any]) -> Any:
    return model(hamiltonian().hilbert)


DETERMINANTS = {name: (case, bar) for name, case, bar in _determinants()}
"""Cases of determinants, and how many times faster than NetKet's their local energies have to be."""

_spins = partial(heisenberg, total_sz=0)
# The networks that cost most have fewer samples, and a tenth of a sweep between two of them: else a step takes minutes,
# and sampling is all that it does.
_seldom = partial(_exchange, sweep_size=10)

CASES = {
    "Ising chain 64, RBM α=1": Case(
        partial(ising, 64), _local, lambda: nk.models.RBM(alpha=1, param_dtype=float), 20, 6, 6
    ),
    "Heisenberg 10×10, RBM α=1": Case(_spins, _exchange, lambda: nk.models.RBM(alpha=1, param_dtype=float), 20, 15, 9),
    "Heisenberg 10×10, complex RBM α=4": Case(
        _spins, _exchange, lambda: nk.models.RBM(alpha=4, param_dtype=complex), 30, 40, 50
    ),
    "Heisenberg kagome 75, complex RBM α=2": Case(
        kagome, _exchange_on_kagome, lambda: nk.models.RBM(alpha=2, param_dtype=complex), 30, 30
    ),
    "Heisenberg 10×10, Jastrow": Case(_spins, _exchange, lambda: nk.models.Jastrow(param_dtype=float), 15, 8, 6),
}
"""Cases of sampling and of whole steps."""

NETWORKS = {
    "Heisenberg 10×10, MLP (100, 200, 200)": Case(_spins, _exchange, models.MLP, 6, 10, 25),
    "Heisenberg 10×10, ResCNN": Case(_spins, _seldom, partial(models.ResCNN, SPINS), 8, 25, samples=512),
    "Heisenberg 10×10, ResCNN, 16 features": Case(
        _spins, _seldom, partial(models.ResCNN, SPINS, features=16, blocks=4), 15, 30, samples=256
    ),
    "Heisenberg 10×10, GCNN": Case(_spins, _seldom, partial(models.gcnn, SPINS), 10, 20, samples=512),
    "Heisenberg 10×10, GCNN with the point group": Case(
        _spins, _seldom, partial(models.gcnn_of_space_group, SPINS[0]), 5, 10, samples=128
    ),
    "Heisenberg 10×10, ViT": Case(_spins, _seldom, partial(models.ViT, SPINS), 8, 30, samples=512),
    "Heisenberg 10×10, ViT, 32 features, 4 layers": Case(
        _spins, _seldom, partial(models.ViT, SPINS, features=32, layers=4), 4, 15, samples=256
    ),
    "Heisenberg chain 60, RBMSymm α=3": Case(
        partial(heisenberg, (60,), total_sz=0), partial(_exchange, shape=(60,)), _symmetric, 20, 12, samples=2000
    ),
    "Heisenberg 10×10, complex MLP": Case(_spins, _seldom, models.complex_mlp, 4, 10, samples=512),
    "Heisenberg 10×10, complex ResCNN": Case(
        _spins, _seldom, partial(models.ResCNN, SPINS, dtype=complex), 4, 10, samples=512
    ),
}
"""Cases of sampling and of whole steps of networks that are evaluated in lanes."""

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
    "Heisenberg 10×10, MLP (64, 64)": Case(_spins, _exchange, partial(models.MLP, (64, 64)), 5),
    "Fermi-Hubbard 4×4, MLP (100, 200, 200), fermion hops": Case(
        partial(fermi_hubbard, (4, 4)), _fermions, models.MLP, 4
    ),
    **NETWORKS,
}
"""Cases of sampling alone, beside those of determinants."""

STEPS = {
    **NETWORKS,
    "Ising chain 20, RBM α=1": Case(
        partial(ising, 20, -1.0), _local, lambda: nk.models.RBM(alpha=1, param_dtype=float), step_bar=1
    ),
    **{name: case for name, (case, _) in DETERMINANTS.items()},
}
"""Cases of whole steps alone. That of the Ising chain is in ``examples/ising_vmc.py``."""
