"""Flax modules that NetKet doesn't have; but for sums over symmetries, their amplitude ratios are known."""

from ferroket.models import mvmc
from ferroket.models.correlations import DensityJastrow, DoublonHolon, Gutzwiller
from ferroket.models.determinants import Backflow, HiddenFermions
from ferroket.models.pair_product import PairProduct, spin_rotations
from ferroket.models.product import Product
from ferroket.models.slater_jastrow import SlaterJastrow
from ferroket.models.symmetric_sum import SymmetricSum, symmetrise
from ferroket.models.ties import TiedParameters, free_fermion_characters, sublattice_translations

__all__ = [
    "Backflow",
    "DensityJastrow",
    "DoublonHolon",
    "Gutzwiller",
    "HiddenFermions",
    "PairProduct",
    "Product",
    "SlaterJastrow",
    "SymmetricSum",
    "TiedParameters",
    "free_fermion_characters",
    "mvmc",
    "spin_rotations",
    "sublattice_translations",
    "symmetrise",
]
