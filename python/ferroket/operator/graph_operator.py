"""Sums of operators on the nodes and edges of a graph."""

from typing import Any

import netket as nk

from ferroket.operator.local_operator import LocalOperator
from ferroket.operator.validation import check_graph


def GraphOperator(
    hilbert: Any,
    graph: Any,
    site_ops: Any = (),
    bond_ops: Any = (),
    bond_ops_colors: Any = (),
    dtype: Any = None,
    *,
    acting_on_subspace: Any = None,
    cls: Any = LocalOperator,
) -> Any:
    """The sum of operators on all nodes and edges of a graph.

    See :func:`netket.operator.GraphOperator`, whose arguments these are.

    Args:
        hilbert: A discrete Hilbert space.
        graph: The nodes and edges.
        site_ops: Matrices that act on each node.
        bond_ops: Matrices that act on the edges: one for all, or one for each of ``bond_ops_colors``.
        bond_ops_colors: The colours of the edges that the matrices act on.
        dtype: The dtype of the matrix elements.
        acting_on_subspace: The sites that the nodes of the graph are, or the first of them.
        cls: The class of the operator.

    Raises:
        TypeError: If the nodes and edges aren't a graph of :mod:`netket.graph`.
        ValueError: If the graph has more nodes than there are sites, or if there are several ``bond_ops`` without
            colours.
    """
    check_graph(hilbert, graph, acting_on_subspace)
    if len(bond_ops) > 1 and not len(bond_ops_colors):
        raise ValueError(
            f"there are {len(bond_ops)} bond_ops, but no bond_ops_colors: give the colour of the edges that each acts "
            "on, or add them up"
        )
    return nk.operator.GraphOperator(
        hilbert,
        graph,
        list(site_ops),
        list(bond_ops),
        list(bond_ops_colors),
        dtype,
        acting_on_subspace=acting_on_subspace,
        cls=cls,
    )
