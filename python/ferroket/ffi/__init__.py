"""Where Rust meets JAX: primitives with their sharding, batching, derivative and platform rules.

This is the only package that knows :mod:`jax.ffi`. An operator family describes itself once, as a
:class:`Family`, and gets all the rules from the primitives behind :func:`connected_elements`,
:func:`compact_elements` and :func:`count_elements`.
"""

from ferroket.ffi.arguments import (
    ExchangeArguments,
    IsingArguments,
    MatrixArguments,
    PairArguments,
    SwapArguments,
    TermArguments,
)
from ferroket.ffi.chains import metropolis_chains
from ferroket.ffi.compact import compact_elements, count_elements
from ferroket.ffi.connected import connected_elements
from ferroket.ffi.determinants import determinant_ratios, log_determinants, log_determinants_p
from ferroket.ffi.distinct import distinct_rows
from ferroket.ffi.family import Attribute, Family
from ferroket.ffi.first_layer import FirstLayerTables, connected_sums
from ferroket.ffi.linear_algebra import gram_tiles, solve_gram, solve_positive
from ferroket.ffi.local_values import known_local_values
from ferroket.ffi.network import INSTRUCTIONS, network, network_results
from ferroket.ffi.proposals import Chains, chain_proposals
from ferroket.ffi.shared_systems import (
    SharedSystem,
    factor_shared,
    rows_of_gram,
    shared_rows,
    shared_solution,
    solve_shared,
    start_shared,
    start_shared_gram,
    update_shared,
)

__all__ = [
    "INSTRUCTIONS",
    "Attribute",
    "Chains",
    "ExchangeArguments",
    "Family",
    "FirstLayerTables",
    "IsingArguments",
    "MatrixArguments",
    "PairArguments",
    "SharedSystem",
    "SwapArguments",
    "TermArguments",
    "chain_proposals",
    "compact_elements",
    "connected_elements",
    "connected_sums",
    "count_elements",
    "determinant_ratios",
    "distinct_rows",
    "factor_shared",
    "gram_tiles",
    "known_local_values",
    "log_determinants",
    "log_determinants_p",
    "metropolis_chains",
    "network",
    "network_results",
    "rows_of_gram",
    "shared_rows",
    "shared_solution",
    "solve_gram",
    "solve_positive",
    "solve_shared",
    "start_shared",
    "start_shared_gram",
    "update_shared",
]
