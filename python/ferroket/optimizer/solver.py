"""Solvers of linear systems that all devices share."""

from ferroket.natural_gradient.solvers import cg, cholesky

__all__ = ["cg", "cholesky"]
