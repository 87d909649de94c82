"""Networks, read once: what the kernels evaluate, configuration by configuration, side by side."""

from ferroket.network.plan import Plan
from ferroket.network.program import Program
from ferroket.network.several import Several, read_several
from ferroket.network.structure import Structure, structure
from ferroket.network.trace import UnreadableError, read

__all__ = ["Plan", "Program", "Several", "Structure", "UnreadableError", "read", "read_several", "structure"]
