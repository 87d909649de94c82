"""Operators on the nodes and edges of a graph."""

from collections.abc import Sequence
from typing import Any

from netket.graph import AbstractGraph
from netket.operator import GraphOperator as NetKetsGraphOperator
from netket.operator import Heisenberg as NetKetsHeisenberg

from ferroket.operator.local_operator import LocalOperator


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
    _check_graph(hilbert, graph, acting_on_subspace)
    if isinstance(J, Sequence):
        n_colors = max(graph.edge_colors) + 1
        for name, values in (("J", J), ("sign_rule", sign_rule)):
            if values is not None and (not isinstance(values, Sequence) or len(values) != n_colors):
                raise ValueError(
                    f"{name} is {values!r}, but the edges of the graph have {n_colors} colours, numbered from 0: give "
                    "one for each colour"
                )
    return NetKetsHeisenberg(hilbert, graph, J, sign_rule, dtype, acting_on_subspace=acting_on_subspace, cls=cls)


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
    _check_graph(hilbert, graph, acting_on_subspace)
    if len(bond_ops) > 1 and not len(bond_ops_colors):
        raise ValueError(
            f"there are {len(bond_ops)} bond_ops, but no bond_ops_colors: give the colour of the edges that each acts "
            "on, or add them up"
        )
    return NetKetsGraphOperator(
        hilbert,
        graph,
        list(site_ops),
        list(bond_ops),
        list(bond_ops_colors),
        dtype,
        acting_on_subspace=acting_on_subspace,
        cls=cls,
    )


def _check_graph(hilbert: Any, graph: Any, acting_on_subspace: Any) -> None:
    """Checks that a graph fits a Hilbert space.

    Raises:
        TypeError: If it is no graph.
        ValueError: If it has more nodes than there are sites.
    """
    if not isinstance(graph, AbstractGraph):
        raise TypeError(f"the graph is {graph!r}, but must be one of nk.graph: make it by nk.graph.Graph(edges)")
    if acting_on_subspace is None and graph.n_nodes > hilbert.size:
        raise ValueError(
            f"the graph has {graph.n_nodes} nodes, but the Hilbert space has {hilbert.size} sites: each node is a site"
        )
