"""Flax modules that NetKet doesn't have, and whose amplitude ratios are known."""

from ferroket.models.product import Product
from ferroket.models.slater_jastrow import SlaterJastrow

__all__ = ["Product", "SlaterJastrow"]
