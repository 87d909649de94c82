"""Flax modules that NetKet doesn't have, and whose amplitude ratios are known."""

from ferroket.models.determinants import Backflow, HiddenFermions
from ferroket.models.product import Product
from ferroket.models.slater_jastrow import SlaterJastrow

__all__ = ["Backflow", "HiddenFermions", "Product", "SlaterJastrow"]
