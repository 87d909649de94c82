"""The Bose-Hubbard model."""

from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from netket.hilbert import Fock

from ferroket.operator.algebra.bounds import most_elements, most_elements_of_matrices
from ferroket.operator.algebra.compiling import form_of_matrices
from ferroket.operator.algebra.graph_hamiltonian import GraphHamiltonian
from ferroket.operator.algebra.registry import register
from ferroket.operator.compiled import Form, LocalStates, Terms, local_states, site_bits
from ferroket.operator.local_operator import LocalOperator
from ferroket.operator.sums.local_matrices import Entries, LocalTerms, sparse_matrix
from ferroket.operator.sums.term_list import TermList, pattern_terms
from ferroket.operator.validation import check_coefficient, lattice_edges, own

_NETKETS = (nk.operator.BoseHubbardJax, nk.operator.BoseHubbardNumba)
_COEFFICIENTS = ("U", "V", "J", "mu")


@register(*_NETKETS)
class BoseHubbard(GraphHamiltonian, nk.operator.BoseHubbardJax):
    r"""The extended Bose-Hubbard Hamiltonian.

    :math:`\sum_i \left(\frac{U}{2} n_i (n_i - 1) - μ n_i\right)
    + \sum_{(i,j)} \left(V n_i n_j - J (b^†_i b_j + b^†_j b_i)\right)`

    It takes the place of :class:`netket.operator.BoseHubbardJax`: the same constructor. Sums with operators on the
    same edges, and multiples, are :class:`BoseHubbard` again; other sums and products are
    :class:`ferroket.operator.LocalOperator`. The coefficients are leaves of the pytree: derivatives by them work, and
    new ones recompile nothing.

    Args:
        hilbert: A :class:`netket.hilbert.Fock` space with a largest occupation number.
        graph: The edges: a graph with one node for each site, a sequence of pairs of sites, or an integer array of
            shape ``(n_edges, 2)``.
        U: The interaction of two bosons on a site.
        V: The interaction of bosons on neighbouring sites.
        J: The hopping amplitude.
        mu: The chemical potential.
        dtype: The dtype of the matrix elements. By default one that holds the coefficients, at least a float.

    Raises:
        TypeError: If the Hilbert space isn't a Fock space or has no largest occupation number, or if a coefficient
            isn't a number.
        ValueError: If the graph doesn't fit the space or has an edge from a site to itself, or if a coefficient isn't a
            finite scalar or can't be held by ``dtype``.
    """

    _made_from = _NETKETS
    _coefficients = _COEFFICIENTS

    def __init__(
        self,
        hilbert: Any,
        graph: Any,
        U: Any,
        V: Any = 0.0,
        J: Any = 1.0,
        mu: Any = 0.0,
        dtype: Any = None,
    ) -> None:
        if not isinstance(hilbert, Fock):
            raise TypeError(f"BoseHubbard acts on bosons, not on {hilbert!r}: take nk.hilbert.Fock(n_max=..., N=...)")
        for name, value in zip(_COEFFICIENTS, (U, V, J, mu), strict=True):
            check_coefficient(name, value, dtype)
        edges = lattice_edges(graph, hilbert.size)
        loops = np.flatnonzero(edges[:, 0] == edges[:, 1])
        if loops.size:
            raise ValueError(
                f"edge {int(loops[0])} joins site {int(edges[loops[0], 0])} with itself, but bosons hop between two "
                "sites: leave it out"
            )
        local_states(hilbert)
        super().__init__(hilbert, edges, U, V, J, mu, dtype)
        self._structure_: tuple[Form, Any] | None = None

    @classmethod
    def from_netket(cls, operator: Any) -> Self:
        """The operator that equals one of NetKet's, of the same dtype."""
        U, V, J, mu = map(own, (operator.U, operator.V, operator.J, operator.mu))
        return cls(operator.hilbert, np.asarray(operator.edges), U, V, J, mu, dtype=operator.dtype)

    # The form: one for all coefficients, whose values are a matrix times these.

    @property
    def _structure(self) -> tuple[Form, Any]:
        if self._structure_ is None:
            self._structure_ = _structure(self.hilbert, np.asarray(self._edges))
        return self._structure_

    def _compile(self) -> Form:
        form, basis = self._structure
        coefficients = jnp.stack([jnp.asarray(value) for value in self._values()])
        values = (basis * coefficients.astype(_wide(coefficients.dtype))).sum(axis=1)
        return form.replace_values(values.astype(self.dtype))

    @property
    def max_conn_size(self) -> int:
        """K, the largest number of connected elements that a sample has."""
        return self._structure[0].max_conn_size

    def copy(self, *, dtype: Any = None) -> Self:
        """The same operator, maybe of another dtype."""
        return self._map(lambda value: value.astype(dtype or self.dtype))

    def to_local_operator(self) -> LocalOperator:
        """The operator as a :class:`ferroket.operator.LocalOperator`, of sparse matrices as those of single bosons."""
        n = np.arange(self.hilbert.n_max + 1)
        U, V, J, mu = map(np.asarray, self._values())
        on_site = sparse_matrix(np.diag(U / 2 * n * (n - 1) - mu * n), self.dtype)
        on_edge = sparse_matrix(V * _PARTS["V"](n) - J * _PARTS["J"](n), self.dtype)
        sites = [[site] for site in range(self.hilbert.size)]
        edges = np.asarray(self._edges).tolist()
        matrices = [on_site] * len(sites) + [on_edge] * len(edges)
        return LocalOperator(self.hilbert, matrices, sites + edges, dtype=self.dtype)

    # Identity and pytree

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_structure_": None}

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The coefficients, the edges and the arrays of the form as leaves."""
        leaves, metadata = super().tree_flatten()
        return (*leaves, self._structure), (*metadata, self._max_conn)

    @classmethod
    def tree_unflatten(cls, metadata: tuple[Any, ...], data: tuple[Any, ...]) -> Self:
        """The operator with these leaves, whatever they are: JAX also puts placeholders there."""
        *of_space, max_conn = metadata
        *leaves, structure = data
        operator = super().tree_unflatten(tuple(of_space), tuple(leaves))
        operator._max_conn, operator._structure_ = max_conn, structure
        return operator


_PARTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "U": lambda n: np.diag(n * (n - 1) / 2),
    "mu": lambda n: np.diag(-n.astype(float)),
    "V": lambda n: np.kron(np.diag(n), np.diag(n)).astype(float),
    "J": lambda n: _hops(np.diag(np.sqrt(n[1:]), 1)),
}


def _hops(lowering: np.ndarray) -> np.ndarray:
    """b† b + b b† of two sites."""
    hop = np.kron(lowering.T, lowering)
    result: np.ndarray = hop + hop.T
    return result


def _wide(dtype: Any) -> Any:
    """The dtype that values are computed in, so that roots are rounded once."""
    return jnp.promote_types(dtype, jnp.float64)


def _structure(hilbert: Any, edges: np.ndarray) -> tuple[Form, Any]:
    """The form, whichever values it has, and the matrix that takes U, V, J and mu to its values."""
    sites = local_states(hilbert)
    if set(sites.sizes) == {2}:
        return _structure_of_two_states(sites, hilbert, edges)
    n = np.arange(hilbert.n_max + 1)
    # Each entry is there, and stands for itself until its value is known.
    on_site = {"U": _PARTS["U"](n), "mu": _PARTS["mu"](n)}
    on_edge = {"V": _PARTS["V"](n), "J": -_PARTS["J"](n)}
    site, edge = (Entries.of(sum(np.abs(part) for part in parts.values()), 0.0) for parts in (on_site, on_edge))
    local: LocalTerms = [((i,), site) for i in range(hilbert.size)] + [(tuple(e), edge) for e in edges.tolist()]
    most = most_elements_of_matrices(local, hilbert, sites.sizes_of_sites)
    form = form_of_matrices(sites, local, diagonal=True, most=most, dtype=np.float64)
    basis = np.zeros((site.values.size + (edge.values.size if len(edges) else 0), len(_COEFFICIENTS)))
    for entries, parts, first in ((site, on_site, 0), (edge, on_edge, site.values.size)):
        if not first or len(edges):
            for name, part in parts.items():
                rows = slice(first, first + entries.values.size)
                basis[rows, _COEFFICIENTS.index(name)] = part[entries.row, entries.column]
    with jax.ensure_compile_time_eval():
        return form, jnp.asarray(basis)


def _structure_of_two_states(sites: LocalStates, hilbert: Any, edges: np.ndarray) -> tuple[Form, Any]:
    """As :func:`_structure`, where a site holds one boson at most: non-branching terms, without U."""

    def terms(places: np.ndarray, flip: int, mask: int, patterns: list[int], value: float) -> TermList:
        each = np.ones(len(patterns), int)
        of_each = each * flip, each * mask, np.array(patterns), each * 0, each * value
        return pattern_terms(hilbert.size, places, site_bits(hilbert.size), *of_each)

    pairs = edges.astype(int).reshape(-1, 2)
    parts = {
        "V": terms(pairs, 0b00, 0b11, [0b11], 1.0),
        "J": terms(pairs, 0b11, 0b11, [0b01, 0b10], -1.0),
        "mu": terms(np.arange(hilbert.size)[:, None], 0b0, 0b1, [0b1], -1.0),
    }
    found = TermList.total(hilbert.size, parts.values())
    coefficient = np.repeat([_COEFFICIENTS.index(name) for name in parts], [len(part) for part in parts.values()])
    most = most_elements(found, hilbert) + 1
    masks = found.mask, found.pattern, found.flip, found.sign
    # Terms of edges that are there twice are added up, for each coefficient.
    of_each = [
        Terms.from_masks(
            sites, *masks, np.where(coefficient == number, found.values, 0.0), diagonal=True, max_conn_size=most
        )
        for number in range(len(_COEFFICIENTS))
    ]
    with jax.ensure_compile_time_eval():
        return of_each[0], jnp.asarray(np.stack([np.asarray(form.values) for form in of_each], axis=1))
