"""Quantum geometric tensors."""

from ferroket.natural_gradient.qgt import QGTFactors, quantum_geometric_tensor

__all__ = ["QGTFactors", "quantum_geometric_tensor"]
