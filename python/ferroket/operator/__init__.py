"""Drop-in operators: NetKet's constructors and NetKet's contract, with connected elements from Rust."""

from ferroket.operator import boson, fermion, permutation, spin
from ferroket.operator.algebra.composites import accelerate
from ferroket.operator.bose_hubbard import BoseHubbard
from ferroket.operator.conserving_fermion import (
    FermiHubbard,
    ParticleNumberAndSpinConservingFermioperator2nd,
    ParticleNumberConservingFermioperator2nd,
)
from ferroket.operator.fermion_operator import FermionOperator2nd
from ferroket.operator.graph_operator import GraphOperator, Heisenberg
from ferroket.operator.ising import Ising
from ferroket.operator.local_operator import LocalOperator
from ferroket.operator.pauli_strings import PauliStrings
from ferroket.operator.permutation import PermutationOperator, PermutationOperatorFermion, SpinFlipOperator
from ferroket.operator.term_sum import TermSum

__all__ = [
    "BoseHubbard",
    "FermiHubbard",
    "FermionOperator2nd",
    "GraphOperator",
    "Heisenberg",
    "Ising",
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

# Whoever has an operator wants NetKet's states to know how to evaluate it.
from ferroket import local_energy as _local_energy  # noqa: F401
