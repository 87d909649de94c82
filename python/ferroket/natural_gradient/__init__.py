"""Stochastic reconfiguration without a Jacobian."""
