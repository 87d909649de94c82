"""Solvers of linear systems that all devices share."""

from ferroket.natural_gradient.by_samples import ntk
from ferroket.natural_gradient.solvers import cg, cholesky, pinv_smooth

__all__ = ["cg", "cholesky", "ntk", "pinv_smooth"]
