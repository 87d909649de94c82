"""Slow references: the matrix elements of each operator family straight from its definition, for the tests alone.

A reference knows the local states of its sites, in the order of their indices, and gives ``row(sample)``, the elements
⟨sample|O|configuration⟩ by configuration. ``matrix(basis)`` collects rows; ``kronecker()`` is built another way, from
Kronecker products of matrices of single sites. Nothing in here comes from NetKet or Ferroket.
"""

from reference.algebra import Adjoint, Embedded, Product, Sum, Transposed
from reference.bosons import BoseHubbard
from reference.core import Configuration, Reference, Row, Sites, as_configuration, configurations
from reference.fermions import Fermions, fermi_hubbard
from reference.local import Local
from reference.pauli import Pauli
from reference.spins import Heisenberg, Ising
from reference.symmetries import FermionPermutation, Permutation, SpinFlip

__all__ = [
    "Adjoint",
    "BoseHubbard",
    "Configuration",
    "Embedded",
    "FermionPermutation",
    "Fermions",
    "Heisenberg",
    "Ising",
    "Local",
    "Pauli",
    "Permutation",
    "Product",
    "Reference",
    "Row",
    "Sites",
    "SpinFlip",
    "Sum",
    "Transposed",
    "as_configuration",
    "configurations",
    "fermi_hubbard",
]
