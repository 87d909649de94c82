"""The transverse-field Ising Hamiltonian."""

from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from netket.utils.numbers import StaticZero

from ferroket.operator.algebra.graph_hamiltonian import GraphHamiltonian
from ferroket.operator.algebra.registry import register
from ferroket.operator.compiled import Form, Terms, local_states, site_bits
from ferroket.operator.compiled.ising import ising_elements
from ferroket.operator.constraints.hilbert import conserved_charges, constraint_functions, site_limits, violation_error
from ferroket.operator.constraints.projected_form import Projected
from ferroket.operator.local_operator import LocalOperator
from ferroket.operator.sums.local_matrices import sparse_matrix
from ferroket.operator.validation import check_coefficient, is_traced, lattice_edges, own, two_local_states

_NETKETS = (nk.operator.IsingJax, nk.operator.IsingNumba)


@register(*_NETKETS)
class Ising(GraphHamiltonian, nk.operator.IsingJax):
    r"""The transverse-field Ising Hamiltonian, :math:`-h\sum_i σ^x_i + J\sum_{(i,j)} σ^z_i σ^z_j`.

    It takes the place of :class:`netket.operator.IsingJax`: the same constructor, the same connected elements
    in the same order, computed in Rust on CPUs and in JAX elsewhere. Operators are immutable; ``a += b`` makes
    a new one.

    Where it differs from NetKet's: without a field (``h`` is ``None`` or the Python number 0) there is one
    connected element, not N + 1 with N of them zero; ``n_conn`` counts the elements that aren't zero, also
    when ``h`` is an array that holds 0; sums with operators on the same edges, and multiples, are
    :class:`Ising` again, and other sums and products :class:`ferroket.operator.LocalOperator`; with complex
    coefficients ``is_hermitian`` says whether they are real.

    Args:
        hilbert: A Hilbert space of N sites with two local states each: spins ½, qubits, hard-core bosons.
        graph: The edges of the interaction: a NetKet graph of N nodes, a sequence of pairs of sites, or an
            integer array of shape ``(n_edges, 2)``. An edge that occurs twice counts twice.
        h: The transverse field, a scalar; None for no field.
        J: The coupling, a scalar.
        dtype: The dtype of the matrix elements. By default that of ``h`` and ``J``, at least a float.

    Raises:
        TypeError: If the Hilbert space isn't discrete with all sites alike, if the edges aren't integers, or
            if a coefficient isn't a number.
        ValueError: If the sites don't have two local states, if the graph doesn't fit the Hilbert space, if a
            coefficient isn't finite, isn't a scalar or can't be held by ``dtype``, or if there is a field and the
            Hilbert space fixes the magnetisation.
    """

    _made_from = _NETKETS
    _coefficients = ("h", "J")

    def __init__(self, hilbert: Any, graph: Any, h: Any, J: Any = 1.0, dtype: Any = None) -> None:
        two_local_states(hilbert, "Ising")
        edges = lattice_edges(graph, hilbert.size)
        if h is not None and not isinstance(h, StaticZero):
            check_coefficient("h", h, dtype)
        check_coefficient("J", J, dtype)
        super().__init__(hilbert, graph=edges, h=h, J=J, dtype=dtype)
        self._check_conserved_charges()

    @classmethod
    def from_netket(cls, operator: Any) -> Self:
        """The operator that equals one of NetKet's, of the same dtype."""
        h, J = own(operator.h), own(operator.J)
        return cls(operator.hilbert, graph=operator.edges, h=h, J=J, dtype=operator.dtype)

    def _with(self, values: Sequence[Any]) -> Self:
        new = super()._with(values)
        new._check_conserved_charges()
        return new

    def _check_conserved_charges(self) -> None:
        """Raises the error for a field in a space that fixes a sum of local states."""
        conserved, _ = conserved_charges(self.hilbert)
        if conserved and not isinstance(self._h, StaticZero):
            charge = conserved[0]
            step = 1 if charge.total < len(charge.sites) else -1
            before, after = list(self.hilbert.local_states)[::step]
            raise violation_error(
                self.hilbert, charge, f"the local state {before:g} of a site", f"the local state {after:g}", step
            )

    def _compile(self) -> Form:
        numbers: Any = jnp if is_traced(self._h, self._J, self._edges) else np
        n_edges, bits = len(self._edges), site_bits(self.hilbert.size)
        flips = bits[: self.max_conn_size - 1]
        nothing = np.zeros((n_edges + len(flips), bits.shape[1]), np.uint32)
        ends = numbers.asarray(bits)[numbers.asarray(self._edges)]
        coefficients = numbers.stack([numbers.asarray(self._J), -numbers.asarray(self._field)])
        form = Terms(
            local_states(self.hilbert),
            flip=np.concatenate([np.zeros_like(bits[:1]), flips]),
            first=np.array([0, *range(n_edges, len(nothing) + 1)], np.int32),
            mask=nothing,
            pattern=nothing,
            sign=numbers.concatenate([ends[:, 0] ^ ends[:, 1], nothing[n_edges:]]),
            values=coefficients[np.repeat([0, 1], [n_edges, len(flips)])],
            diagonal=True,
            unconditional=True,
            max_conn_size=self.max_conn_size,
        )
        # These terms look at no other fermions of a site.
        return Projected(form, constraint_functions(self.hilbert)) if site_limits(self.hilbert) else form

    # Connected elements

    @property
    def max_conn_size(self) -> int:
        """K, the number of connected elements of each sample: N + 1, or 1 without a field."""
        return 1 if isinstance(self.h, StaticZero) else int(self.hilbert.size) + 1

    def get_conn_padded(self, x: Any) -> tuple[jax.Array, jax.Array]:
        """The connected elements of the samples ``x``: the diagonal first, then the flips by site.

        Args:
            x: Samples of shape ``(..., N)``, of any dtype that holds the local states.

        Returns:
            The connected configurations, of shape ``(..., K, N)`` and the dtype of ``x``, and their matrix
            elements ⟨x|H|x'⟩, of shape ``(..., K)`` and the dtype of the operator.

        Raises:
            ValueError: If the last dimension of ``x`` isn't N, or its dtype can't hold the local states.
            jax.errors.JaxRuntimeError, ValueError: If a sample holds something else than local states; it names sample,
                site and value. JAX raises it when the result is used. On other platforms than CPUs the matrix
                elements of that sample are NaN instead.
        """
        if constraint_functions(self.hilbert):
            return super().get_conn_padded(x)
        xp, mels = _elements(self, x)
        return xp, mels

    def to_local_operator(self) -> LocalOperator:
        """The operator as a :class:`ferroket.operator.LocalOperator`, of sparse matrices as those of single spins."""
        h, J = np.asarray(self._field), np.asarray(self._J)
        edges = np.asarray(self._edges)
        loops = edges[:, 0] == edges[:, 1]
        fields = [] if isinstance(self._h, StaticZero) else range(self.hilbert.size)
        flip = sparse_matrix(-h * np.array([[0, 1], [1, 0]]), self.dtype)
        couple = sparse_matrix(J * np.diag([1, -1, -1, 1]), self.dtype)
        return LocalOperator(
            self.hilbert,
            [flip for _ in fields] + [couple for _ in edges[~loops]],
            [[site] for site in fields] + edges[~loops].tolist(),
            constant=J * int(loops.sum()),
            dtype=self.dtype,
        )

    @property
    def _field(self) -> Any:
        """The transverse field as an array, also if it is absent."""
        return jnp.zeros((), self.dtype) if isinstance(self._h, StaticZero) else self._h


@jax.jit
def _elements(operator: Ising, x: Any) -> tuple[jax.Array, jax.Array]:
    return ising_elements(
        x,
        operator.edges,
        operator.h,
        operator.J,
        n_sites=operator.hilbert.size,
        local_states=two_local_states(operator.hilbert, "Ising"),
        n_conn=operator.max_conn_size,
    )
