"""Stochastic reconfiguration as a preconditioner of gradients, with quantum geometric tensors that have no Jacobian."""

from ferroket.optimizer import qgt, solver
from ferroket.optimizer.sr import SR

__all__ = ["SR", "qgt", "solver"]
