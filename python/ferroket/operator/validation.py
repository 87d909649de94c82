"""Checks of what users pass to the operators' constructors.

Each error names the value, the rule that it broke and the mend. Traced values pass unseen: they have no value yet.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from netket.graph import AbstractGraph
from netket.hilbert import DiscreteHilbert, SpinOrbitalFermions


def is_traced(*values: Any) -> bool:
    """Whether any of these values is not known yet, in :func:`jax.jit` or the like."""
    return any(isinstance(value, jax.core.Tracer) for value in values)


def two_local_states(hilbert: Any, operator: str) -> tuple[float, float]:
    """The two local states of a Hilbert space, by index.

    Raises:
        TypeError: If it is no discrete Hilbert space whose sites are all alike.
        ValueError: If its sites don't have two local states.
    """
    mend = (
        "take nk.hilbert.Spin(s=1/2, N=...), nk.hilbert.Qubit(N=...) or another space whose sites have two local states"
    )
    if not isinstance(hilbert, DiscreteHilbert) or not hasattr(hilbert, "local_states"):
        raise TypeError(
            f"{operator} acts on a discrete Hilbert space with the same local states on each site, "
            f"not on {hilbert!r}: {mend}"
        )
    size = hilbert.local_size
    if size != 2:  # noqa: PLR2004
        raise ValueError(
            f"{operator} acts on sites with two local states, but those of {hilbert!r} have {size}: {mend}"
        )
    first, second = hilbert.local_states
    return float(first), float(second)


def has_two_states(hilbert: Any) -> bool:
    """Whether all sites have two local states."""
    return all(size == 2 for size in hilbert.shape)  # noqa: PLR2004


def lattice_edges(graph: Any, n_sites: int) -> Any:
    """The edges of a graph, a sequence of pairs or an array, as an int32 array of shape ``(E, 2)``.

    Raises:
        TypeError: If the sites aren't integers.
        ValueError: If the graph or an edge doesn't fit on ``n_sites`` sites.
    """
    if isinstance(graph, AbstractGraph):
        if graph.n_nodes != n_sites:
            raise ValueError(
                f"the graph has {graph.n_nodes} nodes, but the Hilbert space has {n_sites} sites: "
                "they must be as many, one node a site"
            )
        graph = graph.edges()
    if is_traced(graph):
        return graph
    edges = np.asarray(graph)
    if edges.size == 0:
        return np.empty((0, 2), np.int32)
    if edges.shape[1:] != (2,):
        raise ValueError(
            f"the edges have shape {edges.shape}, but must be a graph or pairs of sites, of shape (n_edges, 2)"
        )
    if not np.issubdtype(edges.dtype, np.integer):
        raise TypeError(f"the edges are of dtype {edges.dtype}, but sites are numbered by integers: convert them first")
    outside = np.flatnonzero(((edges < 0) | (edges >= n_sites)).any(axis=1))
    if outside.size:
        which = int(outside[0])
        i, j = edges[which].tolist()
        raise ValueError(
            f"edge {which} joins the sites {i} and {j}, but the {n_sites} sites are numbered from 0 to {n_sites - 1}"
        )
    return edges.astype(np.int32)


def check_graph(hilbert: Any, graph: Any, acting_on_subspace: Any) -> None:
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


def check_coefficient(name: str, value: Any, dtype: Any = None) -> None:
    """Checks that a coefficient is a finite scalar, and that ``dtype`` can hold it.

    Raises:
        TypeError: If it isn't a number.
        ValueError: If it isn't a finite scalar, or if ``dtype`` would cut off a part of it.
    """
    if is_traced(value):
        return
    array = np.asarray(value)
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool):
        raise TypeError(f"{name} is {value!r}, but must be a number")
    if array.ndim:
        raise ValueError(
            f"{name} has shape {array.shape}, but must be a single number: for a coefficient that differs from place "
            "to place, sum the terms up as a nk.operator.LocalOperator or nk.operator.PauliStrings"
        )
    # NumPy knows nothing of bfloat16, and complex128 holds every number that counts here.
    number = complex(array)
    if not np.isfinite(number):
        raise ValueError(f"{name} is {value!r}, but must be finite")
    if dtype is None:
        return
    if number.imag and not jnp.issubdtype(dtype, jnp.complexfloating):
        raise ValueError(
            f"{name} is {value!r}, which dtype {jnp.dtype(dtype)} can't hold: give a complex dtype or none"
        )
    if not number.real.is_integer() and jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(f"{name} is {value!r}, which dtype {jnp.dtype(dtype)} can't hold: give a float dtype or none")


def check_dtype(name: str, values: Any, dtype: Any = None) -> None:
    """Checks that numbers are finite, and that ``dtype`` can hold them.

    Raises:
        ValueError: If one isn't finite, or if ``dtype`` would cut off a part of it.
    """
    array = np.asarray(values)
    wide = array.astype(np.complex128)
    if not np.isfinite(wide).all():
        raise ValueError(f"{name} holds {wide[~np.isfinite(wide)][0]}, but must be finite")
    if dtype is None:
        return
    if wide.imag.any() and not jnp.issubdtype(dtype, jnp.complexfloating):
        raise ValueError(
            f"{name} holds {wide[wide.imag != 0][0]}, which dtype {jnp.dtype(dtype)} can't hold: give a complex dtype "
            "or none"
        )
    if jnp.issubdtype(dtype, jnp.integer) and (wide.real != np.round(wide.real)).any():
        raise ValueError(
            f"{name} holds {wide.real[wide.real != np.round(wide.real)][0]}, which dtype {jnp.dtype(dtype)} can't "
            "hold: give a float dtype or none"
        )


def one_for_each(name: str, value: Any, n: int, what: str, dtype: Any = None) -> np.ndarray:
    """A coefficient for each of n things, ``(n,)``, given one for all or one for each.

    Raises:
        ValueError: If there are more or fewer, or if one isn't finite or can't be held by ``dtype``.
    """
    values = np.asarray(value)
    if values.shape not in ((), (n,)):
        raise ValueError(
            f"{name} has shape {values.shape}, but there are {n} {what}: give a single number, or one for each of them"
        )
    check_dtype(name, values, dtype)
    return np.broadcast_to(values, (n,))


def check_fermions(hilbert: Any) -> None:
    """Checks that a Hilbert space is one of fermions.

    Raises:
        TypeError: If it isn't.
    """
    if not isinstance(hilbert, SpinOrbitalFermions):
        raise TypeError(f"fermions aren't on {hilbert!r}: take nk.hilbert.SpinOrbitalFermions")


def check_hilbert(hilbert: Any, operator: str) -> None:
    """Checks that a Hilbert space is discrete.

    Raises:
        TypeError: If it isn't.
    """
    if not isinstance(hilbert, DiscreteHilbert):
        raise TypeError(
            f"{operator} acts on a discrete Hilbert space, not on {hilbert!r}: take one such as "
            "nk.hilbert.Spin(s=1/2, N=...) or nk.hilbert.Fock(n_max=..., N=...)"
        )


def promoted(a: Any, b: Any) -> Any:
    """The dtype of both, by NumPy's rules as far as NumPy has one, which knows nothing of bfloat16, and else JAX's."""
    try:
        return np.promote_types(a, b)
    except TypeError:
        return jnp.promote_types(a, b)


def tolerance(dtype: Any) -> float:
    """How far numbers of a dtype may differ, beside their size, to be taken as equal."""
    inexact = jnp.issubdtype(dtype, jnp.inexact)
    return max(1e-10, 128 * float(jnp.finfo(dtype).eps)) if inexact else 1e-10


def own(value: Any) -> Any:
    """A number or an array of NetKet's that doesn't change when NetKet changes an operator in place.

    JAX may take the memory of a NumPy array for its own, without a copy.
    """
    return value.copy() if isinstance(value, np.ndarray) else value
