"""The arguments of the Rust handlers behind the samples: each table by its name, in the order in which Rust reads them.

This is the one place in Python that knows the order; ``rust/handlers/src`` has it where it reads each of them, and
``tests/ffi/test_handlers.py`` compares the two. All are tuples of arrays.
"""

from typing import Any, NamedTuple


class TermArguments(NamedTuple):
    """The form of non-branching terms; see :mod:`ferroket.ffi.references.terms`."""

    kind: Any
    flip: Any
    first: Any
    mask: Any
    pattern: Any
    sign: Any
    values: Any

    def of_rule(self) -> tuple[Any, ...]:
        """Those of the chains' rule ``hamiltonian``: without the kinds of sites, of which there is one."""
        _, *rest = self
        return tuple(rest)


class MatrixArguments(NamedTuple):
    """The form of matrices on a few sites; see :mod:`ferroket.ffi.references.matrices`."""

    kind: Any
    first_site: Any
    sites: Any
    table: Any
    first_row: Any
    first_entry: Any
    columns: Any
    values: Any

    def of_rule(self) -> tuple[Any, ...]:
        """Those of the chains' rule ``hamiltonian``: without the kinds of sites, which the chains know."""
        _, *rest = self
        return tuple(rest)


class IsingArguments(NamedTuple):
    """The transverse-field Ising Hamiltonian."""

    edges: Any
    h: Any
    J: Any


class ExchangeArguments(NamedTuple):
    """The chains' rule ``exchange``: clusters, their weights or none, and for each site the clusters that it is in."""

    clusters: Any
    weights: Any
    first: Any
    of_site: Any


class SwapArguments(NamedTuple):
    """The chains' rule ``swap``: the pairs of each swap, the swaps of each site, and the groups that have limits."""

    pairs: Any
    first_pair: Any
    first: Any
    of_site: Any
    group: Any
    limits: Any


class ChainArguments(NamedTuple):
    """What all chains have in common, before the arguments of their rule and of their amplitudes."""

    start: Any
    chains: Any
    key: Any
    power: Any


class PairArguments(NamedTuple):
    """Sums of Pfaffians whose pairs have parameters in common, see ``PairTables``."""

    parameters: Any
    weights: Any
    index: Any
    factors: Any
    permutations: Any
    signs: Any
