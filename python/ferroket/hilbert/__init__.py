"""What NetKet's Hilbert spaces may be given: constraints that the operators and samplers here know."""

from ferroket.hilbert import random_states as _random_states  # noqa: F401 (it teaches NetKet to draw)
from ferroket.hilbert.site_occupations import SiteOccupations

__all__ = ["SiteOccupations"]
