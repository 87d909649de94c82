"""NetKet's operators, what they become, and how a state whose amplitude ratios are known evaluates them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import netket as nk
import numpy as np

from ferroket import local_energy
from ferroket._compat import netket
from ferroket.operator import accelerate
from ferroket.supports.systems import SQUARE, density_matrices, fermions, particles, spins, spins_one, state_of
from ferroket.supports.tables import Row, Table
from ferroket.supports.words import of_samples

Make = Callable[[], Any]


class _OwnOperator(nk.operator.IsingJax):
    """A subclass, which may be another operator."""


def _on_spins(make: Callable[[Any], Any]) -> Make:
    return lambda: make(spins().hilbert)


def _strings(hilbert: Any) -> Any:
    return nk.operator.PauliStrings(hilbert, ["XX" + "I" * 14, "ZZ" + "I" * 14], [1.0, 0.5])


def _field(hilbert: Any) -> Any:
    return nk.operator.spin.sigmax(hilbert, 0)


def _graph(hilbert: Any) -> Any:
    return nk.operator.GraphOperator(hilbert, SQUARE, bond_ops=[np.diag([1.0, -1.0, -1.0, 1.0])])


def _hopping() -> Any:
    return nk.operator.FermionOperator2nd(fermions().hilbert, ["0^ 1", "1^ 0"], [1.0, 1.0])


def _bosons() -> Any:
    return nk.operator.BoseHubbard(nk.hilbert.Fock(3, 16, n_particles=16), SQUARE, U=4.0)


def _conserving(cls: Any) -> Make:
    return lambda: cls.from_fermionoperator2nd(_hopping())


def _permutation(hilbert: Any) -> Any:
    return nk.operator.permutation.PermutationOperator(hilbert, SQUARE.translation_group().elems[1])


def _permutation_of_fermions() -> Any:
    space = nk.hilbert.SpinOrbitalFermions(16, n_fermions=5)
    return nk.operator.permutation.PermutationOperatorFermion(space, SQUARE.translation_group().elems[1])


def _embedded() -> Any:
    half = nk.hilbert.Spin(0.5, 8)
    return nk.operator.EmbedOperator(nk.hilbert.TensorHilbert(half, half), nk.operator.spin.sigmax(half, 0), 1)


_MAKE: dict[str, Make] = {
    "Ising": _on_spins(lambda space: nk.operator.Ising(space, SQUARE, h=1.0)),
    "Heisenberg": _on_spins(lambda space: nk.operator.Heisenberg(space, SQUARE)),
    "GraphOperator": _on_spins(_graph),
    "LocalOperator": _on_spins(_field),
    "LocalOperator, spins 1": lambda: spins_one().operator,
    "PauliStrings": _on_spins(_strings),
    "BoseHubbard": _bosons,
    "FermionOperator2nd": _hopping,
    "FermiHubbardJax": lambda: netket.FermiHubbard(fermions().hilbert, graph=SQUARE, t=1.0, U=4.0),
    "ParticleNumberConservingFermioperator2nd": _conserving(netket.ParticleNumberConserving),
    "ParticleNumberAndSpinConservingFermioperator2nd": _conserving(netket.ParticleNumberAndSpinConserving),
    "PermutationOperator": _on_spins(_permutation),
    "PermutationOperatorFermion": _permutation_of_fermions,
    **{
        cls.__name__: _on_spins(cls)
        for cls in netket.SPIN_FLIPS  # NetKet 3.20 has none
    },
    "SumOperator": _on_spins(lambda space: nk.operator.SumOperator(_field(space), _strings(space))),
    "ProductOperator": _on_spins(lambda space: nk.operator.ProductOperator(_field(space), _strings(space))),
    **({"EmbedOperator": _embedded} if netket.EMBEDDINGS else {}),
    "Transpose": _on_spins(lambda space: nk.operator.Transpose(_strings(space))),
    "Adjoint": _on_spins(lambda space: nk.operator.Adjoint(_strings(space))),
    "Squared": _on_spins(lambda space: nk.operator.Squared(_strings(space))),
    "LocalLiouvillian": lambda: density_matrices().operator,
    "KineticEnergy": lambda: particles().operator,
    "PotentialEnergy": lambda: nk.operator.PotentialEnergy(particles().hilbert, lambda x: (x**2).sum()),
}


def _cells(make: Make) -> list[str]:
    operator = make()
    try:
        found = accelerate(operator)
    except TypeError as error:
        return [f"no: {_reason(error)}", ""]
    space = operator.hilbert
    model = nk.models.Slater2nd(space) if hasattr(space, "n_fermions") else nk.models.RBM()
    sampler = nk.sampler.MetropolisSampler(space, nk.sampler.rules.HamiltonianRule(found))
    plan = local_energy.explain(state_of(sampler, model), operator)
    return [f"`{type(found).__name__}`", of_samples(plan, is_known=True)]


def _reason(error: TypeError) -> str:
    """What an error says of the class, without what to do."""
    return str(error).partition(": ")[2].partition(". ")[0]


def _of_ones_own() -> list[str]:
    try:
        accelerate(_OwnOperator(spins().hilbert, SQUARE, h=1.0))
    except TypeError as error:
        return [f"no: {_reason(error).partition(':')[0]}", ""]
    raise AssertionError("a subclass may be another operator, and must not be replaced")


OPERATORS = Table(
    "Operators",
    ["NetKet's", "becomes", "local energies with known amplitude ratios"],
    [
        *(Row(name, partial(_cells, make)) for name, make in _MAKE.items()),
        Row("a subclass of your own", _of_ones_own, is_code=False),
    ],
)
