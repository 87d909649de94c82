"""Drop-in operators: NetKet's constructors and NetKet's contract, with connected elements from Rust."""

from ferroket.operator.conversion import accelerate
from ferroket.operator.ising import Ising

__all__ = ["Ising", "accelerate"]
