"""Determinants and Pfaffians of many small matrices at once, as wave functions of fermions have them."""

from ferroket.linalg.determinants import logdet, slogdet
from ferroket.linalg.pfaffians import logpfaffian, slogpfaffian

__all__ = ["logdet", "logpfaffian", "slogdet", "slogpfaffian"]
