"""Slow twins: the matrix elements of each operator family straight from its definition, for the tests alone.

A twin knows the local states of its sites, in the order of their indices, and gives ``row(sample)``, the elements
⟨sample|O|configuration⟩ by configuration. ``matrix(basis)`` collects rows; ``kronecker()`` is built another way, from
Kronecker products of matrices of single sites. Nothing in here comes from NetKet or Ferroket.
"""

from twins.algebra import Adjoint, Embedded, Product, Sum, Transposed
from twins.bosons import BoseHubbard
from twins.core import Configuration, Row, Sites, Twin, as_configuration, configurations
from twins.fermions import Fermions, fermi_hubbard
from twins.local import Local
from twins.pauli import Pauli
from twins.spins import Heisenberg, Ising
from twins.symmetries import FermionPermutation, Permutation, SpinFlip

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
    "Row",
    "Sites",
    "SpinFlip",
    "Sum",
    "Transposed",
    "Twin",
    "as_configuration",
    "configurations",
    "fermi_hubbard",
]
