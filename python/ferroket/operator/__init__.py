"""Drop-in operators: NetKet's constructors and NetKet's contract, with connected elements from Rust."""

from ferroket.operator import boson, fermion, permutation, spin
from ferroket.operator.algebra import composites as _composites  # noqa: F401 (it registers what it converts)
from ferroket.operator.algebra.registry import accelerate
from ferroket.operator.bose_hubbard import BoseHubbard
from ferroket.operator.conserving_fermion import (
    ParticleNumberAndSpinConservingFermioperator2nd,
    ParticleNumberConservingFermioperator2nd,
)
from ferroket.operator.fermi_hubbard import FermiHubbard
from ferroket.operator.fermion_operator import FermionOperator2nd
from ferroket.operator.graph_operator import GraphOperator
from ferroket.operator.heisenberg import Heisenberg
from ferroket.operator.ising import Ising
from ferroket.operator.kondo_lattice import KondoLattice
from ferroket.operator.local_operator import LocalOperator
from ferroket.operator.pauli_strings import PauliStrings
from ferroket.operator.permutation import PermutationOperator, PermutationOperatorFermion
from ferroket.operator.spin_flip import SpinFlipOperator
from ferroket.operator.t_j import TJ
from ferroket.operator.term_sum import TermSum

__all__ = [
    "TJ",
    "BoseHubbard",
    "FermiHubbard",
    "FermionOperator2nd",
    "GraphOperator",
    "Heisenberg",
    "Ising",
    "KondoLattice",
    "LocalOperator",
    "ParticleNumberAndSpinConservingFermioperator2nd",
    "ParticleNumberConservingFermioperator2nd",
    "PauliStrings",
    "PermutationOperator",
    "PermutationOperatorFermion",
    "SpinFlipOperator",
    "TermSum",
    "accelerate",
    "boson",
    "fermion",
    "permutation",
    "spin",
]
