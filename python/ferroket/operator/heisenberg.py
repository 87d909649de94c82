"""The Heisenberg Hamiltonian."""

from collections.abc import Sequence
from typing import Any

import netket as nk

from ferroket.operator.local_operator import LocalOperator
from ferroket.operator.validation import check_graph


def Heisenberg(
    hilbert: Any,
    graph: Any,
    J: Any = 1.0,
    sign_rule: Any = None,
    dtype: Any = None,
    *,
    acting_on_subspace: Any = None,
    cls: Any = LocalOperator,
) -> Any:
    r"""The Heisenberg Hamiltonian, :math:`\sum_{(i,j)} J_{ij} \vec σ_i \vec σ_j`.

    See :func:`netket.operator.Heisenberg`, whose arguments these are.

    Args:
        hilbert: A Hilbert space with two local states a site.
        graph: The edges.
        J: The coupling, or a sequence of them for the colours of the edges.
        sign_rule: Whether to turn every second site of a bipartite graph about z, Marshall's sign rule; or a sequence
            of that for a sequence of couplings. By default, whether the graph is bipartite, and no for sequences.
        dtype: The dtype of the matrix elements.
        acting_on_subspace: The sites that the nodes of the graph are, or the first of them.
        cls: The class of the operator.

    Raises:
        TypeError: If the edges aren't a graph of :mod:`netket.graph`.
        ValueError: If the graph has more nodes than there are sites, or if there isn't one coupling for each colour.
    """
    check_graph(hilbert, graph, acting_on_subspace)
    if isinstance(J, Sequence):
        n_colors = max(graph.edge_colors) + 1
        for name, values in (("J", J), ("sign_rule", sign_rule)):
            if values is not None and (not isinstance(values, Sequence) or len(values) != n_colors):
                raise ValueError(
                    f"{name} is {values!r}, but the edges of the graph have {n_colors} colours, numbered from 0: give "
                    "one for each colour"
                )
    return nk.operator.Heisenberg(hilbert, graph, J, sign_rule, dtype, acting_on_subspace=acting_on_subspace, cls=cls)
