"""mVMC's wave functions and Hamiltonians from its files, and parameters written back to them.

T. Misawa et al., Comput. Phys. Commun. 235, 447 (2019). The files are those of mVMC's expert mode, which its standard
mode writes, too: ``namelist.def`` and what it names.
"""

from ferroket.models.mvmc.states import Loaded, load, save

__all__ = ["Loaded", "load", "save"]
