"""One small operator of each kind: what the contract tests run on, and the rows of the table in docs/operators.md."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import netket as nk
import numpy as np

import ferroket as fk
import reference
from ferroket._compat import netket as compat
from support.generated_operators import local_states

COLUMNS = ("padded", "compact", "sharded", "GPU")


@dataclass(frozen=True)
class Example:
    """An operator, as NetKet's and as ours."""

    title: str
    """The row in the table, and the id of the tests."""
    make: Callable[[Any], Any]
    """Builds it with the classes of a namespace: :data:`NETKET`'s or :mod:`ferroket.operator`'s."""
    reference: Callable[[], reference.Reference]
    netket: str
    """The name of NetKet's class."""
    ferroket: str
    """The name of ours."""
    by_accelerate: bool = False
    """Whether ours is made by :func:`ferroket.accelerate`: it has no constructor of its own."""
    lacks: tuple[str, ...] = ()
    """The columns of the table where there is nothing."""
    same_class: bool = True
    """Whether sums and products of it are of the same class."""
    has_coefficients: bool = True

    @cached_property
    def theirs(self) -> Any:
        """NetKet's; nobody may change it."""
        return self.make(NETKET)

    def ours(self) -> Any:
        """A new one."""
        return fk.accelerate(self.theirs) if self.by_accelerate else self.make(fk.operator)

    @cached_property
    def basis(self) -> np.ndarray:
        return np.asarray(self.ours().hilbert.all_states())

    @cached_property
    def matrix(self) -> np.ndarray:
        """By the slow reference."""
        return self.reference().matrix(self.basis)


class _Netket:
    """NetKet's names, wherever it keeps them."""

    def __getattr__(self, name: str) -> Any:
        for module in (nk.operator, nk.experimental.operator, nk.operator.permutation):
            if hasattr(module, name):
                return getattr(module, name)
        known = {cls.__name__: cls for cls in compat.SPIN_FLIPS}
        if name not in known:
            raise AttributeError(f"NetKet {nk.__version__} has no {name}")
        return known[name]


NETKET = _Netket()

CHAIN = nk.graph.Chain(4)
SPINS = nk.hilbert.Spin(0.5, 4)
SINGLETS = nk.hilbert.Spin(0.5, 4, total_sz=0)
BOSONS = nk.hilbert.Fock(2, 4, n_particles=3)
FERMIONS = nk.hilbert.SpinOrbitalFermions(4, n_fermions=2)
ELECTRONS = nk.hilbert.SpinOrbitalFermions(3, s=0.5, n_fermions_per_spin=(1, 2))
MIXED = nk.hilbert.Spin(0.5, 2) * nk.hilbert.Fock(2, 1)
SPIN_ONE = nk.hilbert.Spin(1, 3)

EXCHANGE = np.array([[0, 0, 0, 0], [0, 0, 2, 0], [0, 2, 0, 0], [0, 0, 0, 0]])
ZZ = np.diag([1.0, -1, -1, 1])
LADDER = np.array([[0, 1, 0], [0, 0, np.sqrt(2)], [0, 0, 0]])
MATRIX = np.array([[1, 2j], [-2j, 0.5]])
COUPLING = np.kron([[0, 1], [0, 0]], LADDER.T)
STRINGS, WEIGHTS = ["XXII", "IYYI", "IIZZ", "ZIIZ", "XIIX", "IIII"], [1.0, 0.5, -2.0, 0.25, 0.75, 3.0]
HOPPING = {((0, 1), (1, 0)): 1 + 0.5j, ((1, 1), (0, 0)): 1 - 0.5j, ((2, 1), (2, 0)): 0.25, ((3, 1), (1, 0)): 2.0}
PAIRS = {((0, 1), (1, 1), (3, 0), (2, 0)): 0.5, ((0, 1), (2, 0)): -1.0, ((2, 1), (0, 0)): -1.0, (): 0.75}
SPINFUL = {((0, 1), (1, 0)): 1.0, ((1, 1), (0, 0)): 1.0, ((0, 1), (0, 0), (3, 1), (3, 0)): 4.0, ((4, 1), (5, 0)): 0.5}
TRIANGLE = nk.graph.Chain(3)
SHIFT = nk.utils.group.Permutation(permutation_array=np.array([1, 2, 3, 0]))


def _fermions(op: Any, hilbert: Any, terms: dict[Any, complex]) -> Any:
    return op.FermionOperator2nd(hilbert, [t for t in terms if t], [terms[t] for t in terms if t], terms.get((), 0))


def _conserving(name: str, hilbert: Any, terms: dict[Any, complex]) -> Callable[[Any], Any]:
    return lambda op: getattr(op, name).from_fermionoperator2nd(_fermions(NETKET, hilbert, terms))


def _spin_sum(op: Any) -> Any:
    return op.LocalOperator(SPINS, [MATRIX, ZZ], [[0], [1, 2]], constant=0.5)


def _pauli(op: Any) -> Any:
    return op.PauliStrings(SPINS, STRINGS, WEIGHTS)


def _spin_sum_reference() -> reference.Reference:
    return reference.Local(local_states(SPINS), [(MATRIX, [0]), (ZZ, [1, 2])], 0.5)


def _pauli_reference() -> reference.Reference:
    return reference.Pauli(local_states(SPINS), STRINGS, WEIGHTS)


def _raising(op: Any) -> Any:
    return op.LocalOperator(SPIN_ONE, [LADDER, np.kron(LADDER, LADDER.T)], [[0], [2, 1]])


def _raising_reference() -> reference.Reference:
    return reference.Local(local_states(SPIN_ONE), [(LADDER, [0]), (np.kron(LADDER, LADDER.T), [2, 1])])


EDGES = [tuple(edge) for edge in CHAIN.edges()]

EXAMPLES = [
    Example(
        "transverse-field Ising model",
        lambda op: op.Ising(SPINS, CHAIN, h=1.3, J=0.7),
        lambda: reference.Ising(local_states(SPINS), EDGES, 1.3, 0.7),
        "Ising",
        "Ising",
    ),
    Example(
        "Heisenberg model",
        lambda op: op.Heisenberg(SINGLETS, CHAIN, J=0.75),
        lambda: reference.Heisenberg(local_states(SINGLETS), EDGES, [0.75] * 4, [True] * 4),
        "Heisenberg",
        "Heisenberg",
    ),
    Example(
        "sum over the sites and bonds of a graph",
        lambda op: op.GraphOperator(SPINS, CHAIN, site_ops=[MATRIX], bond_ops=[ZZ + 0.5 * EXCHANGE]),
        lambda: reference.Local(
            local_states(SPINS),
            [*((MATRIX, [i]) for i in range(4)), *((ZZ + 0.5 * EXCHANGE, edge) for edge in EDGES)],
        ),
        "GraphOperator",
        "GraphOperator",
    ),
    Example("sum of local matrices, spin ½", _spin_sum, _spin_sum_reference, "LocalOperator", "LocalOperator"),
    Example("sum of local matrices, spin 1", _raising, _raising_reference, "LocalOperator", "LocalOperator"),
    Example(
        "sum of local matrices, mixed sites",
        lambda op: op.LocalOperator(MIXED, [COUPLING, COUPLING.T, MATRIX], [[0, 2], [0, 2], [1]]),
        lambda: reference.Local(local_states(MIXED), [(COUPLING, [0, 2]), (COUPLING.T, [0, 2]), (MATRIX, [1])]),
        "LocalOperator",
        "LocalOperator",
    ),
    Example("Pauli strings", _pauli, _pauli_reference, "PauliStrings", "PauliStrings"),
    Example(
        "Bose-Hubbard model",
        lambda op: op.BoseHubbard(BOSONS, CHAIN, U=4.0, V=0.5, J=0.75, mu=0.25),
        lambda: reference.BoseHubbard(local_states(BOSONS), EDGES, U=4.0, V=0.5, J=0.75, mu=0.25),
        "BoseHubbard",
        "BoseHubbard",
    ),
    Example(
        "fermions in second quantisation",
        lambda op: _fermions(op, nk.hilbert.SpinOrbitalFermions(4), HOPPING),
        lambda: reference.Fermions(((0.0, 1.0),) * 4, HOPPING),
        "FermionOperator2nd",
        "FermionOperator2nd",
    ),
    Example(
        "Fermi-Hubbard model",
        lambda op: (
            op.FermiHubbard(ELECTRONS, TRIANGLE, t=1.5, U=4.0)
            if op is not NETKET
            else op.FermiHubbardJax(ELECTRONS, TRIANGLE, t=1.5, U=4.0)
        ),
        lambda: reference.fermi_hubbard(local_states(ELECTRONS), TRIANGLE.edges(), [1.5] * 3, [4.0] * 3),
        "FermiHubbardJax",
        "FermiHubbard",
    ),
    Example(
        "fermions, particle number conserved",
        _conserving("ParticleNumberConservingFermioperator2nd", FERMIONS, PAIRS),
        lambda: reference.Fermions(local_states(FERMIONS), PAIRS),
        "ParticleNumberConservingFermioperator2nd",
        "ParticleNumberConservingFermioperator2nd",
    ),
    Example(
        "fermions, particle number of each spin conserved",
        _conserving("ParticleNumberAndSpinConservingFermioperator2nd", ELECTRONS, SPINFUL),
        lambda: reference.Fermions(local_states(ELECTRONS), SPINFUL),
        "ParticleNumberAndSpinConservingFermioperator2nd",
        "ParticleNumberAndSpinConservingFermioperator2nd",
    ),
    Example(
        "permutation of sites",
        lambda op: op.PermutationOperator(SPINS, SHIFT),
        lambda: reference.Permutation(local_states(SPINS), SHIFT.permutation_array.tolist()),
        "permutation.PermutationOperator",
        "PermutationOperator",
        has_coefficients=False,
    ),
    Example(
        "permutation of orbitals",
        lambda op: op.PermutationOperatorFermion(FERMIONS, SHIFT),
        lambda: reference.FermionPermutation(local_states(FERMIONS), SHIFT.permutation_array.tolist()),
        "permutation.PermutationOperatorFermion",
        "PermutationOperatorFermion",
        has_coefficients=False,
    ),
    Example(
        "spin flip",
        lambda op: op.SpinFlipOperator(SINGLETS),
        lambda: reference.SpinFlip(local_states(SINGLETS)),
        "SpinFlipOperator",
        "SpinFlipOperator",
        has_coefficients=False,
    ),
    Example(
        "identity",
        lambda op: op.LocalOperator(SPINS, constant=1.0),
        lambda: reference.Local(local_states(SPINS), [], 1.0),
        "spin.identity",
        "LocalOperator",
    ),
    Example(
        "zero",
        lambda op: op.LocalOperator(SPINS),
        lambda: reference.Local(local_states(SPINS), []),
        "LocalOperator",
        "LocalOperator",
    ),
    Example(
        "sum of operators",
        lambda op: op.SumOperator(_spin_sum(op), _pauli(op), coefficients=[0.5, 2.0]),
        lambda: reference.Sum([_spin_sum_reference(), _pauli_reference()], [0.5, 2.0]),
        "SumOperator",
        "",
        by_accelerate=True,
    ),
    Example(
        "product of operators",
        lambda op: op.ProductOperator(_spin_sum(op), _pauli(op), coefficient=0.5),
        lambda: reference.Sum([reference.Product(_spin_sum_reference(), _pauli_reference())], [0.5]),
        "ProductOperator",
        "",
        by_accelerate=True,
    ),
    Example(
        "operator on a part of a system",
        lambda op: op.EmbedOperator(nk.hilbert.TensorHilbert(nk.hilbert.Qubit(1), SPIN_ONE), _raising(op), 1),
        lambda: reference.Embedded(((0.0, 1.0), *local_states(SPIN_ONE)), _raising_reference(), 1),
        "EmbedOperator",
        "",
        by_accelerate=True,
    ),
    Example(
        "transpose",
        lambda op: _raising(op).transpose(),
        lambda: reference.Transposed(_raising_reference()),
        "Transpose",
        "",
        by_accelerate=True,
    ),
    Example(
        "adjoint",
        lambda op: _raising(op).H,
        lambda: reference.Adjoint(_raising_reference()),
        "Adjoint",
        "",
        by_accelerate=True,
    ),
    Example(
        "squared modulus O†O",
        lambda op: op.Squared(_raising(op)),
        lambda: reference.Product(reference.Adjoint(_raising_reference()), _raising_reference()),
        "Squared",
        "",
        by_accelerate=True,
    ),
]

TITLES = [example.title for example in EXAMPLES]
# Those that this version of NetKet has.
EXAMPLES = [example for example in EXAMPLES if hasattr(NETKET, example.netket.split(".")[-1]) or "." in example.netket]
