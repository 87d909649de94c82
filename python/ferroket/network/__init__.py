"""Networks, read once: what the kernels evaluate, configuration by configuration, side by side."""

from ferroket.network.function import LaneFunction, read_function
from ferroket.network.plan import Plan
from ferroket.network.program import Program
from ferroket.network.reader import UnreadableError
from ferroket.network.structure import Structure, structure
from ferroket.network.trace import read

__all__ = ["LaneFunction", "Plan", "Program", "Structure", "UnreadableError", "read", "read_function", "structure"]
