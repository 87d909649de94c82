"""The transverse-field Ising Hamiltonian."""

import functools
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from netket.operator import IsingJax, IsingNumba
from netket.utils.numbers import StaticZero, is_scalar

from ferroket.ffi import Family, connected_elements
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.local_matrices import sparse_matrix
from ferroket.operator.algebra.sectors import leaving, own_constraints, restricted, sectors
from ferroket.operator.algebra.term_list import TermList
from ferroket.operator.algebra.validation import (
    check_coefficient,
    check_samples,
    is_traced,
    lattice_edges,
    two_local_states,
)
from ferroket.operator.compiled import Form, Terms, local_states, site_bits
from ferroket.operator.local_operator import LocalOperator


def _matrix_elements(
    x: jax.Array, edges: jax.Array, h: jax.Array, J: jax.Array, *, n_conn: int, first: float, second: float
) -> tuple[jax.Array, jax.Array]:
    """The matrix elements in pure JAX, for the platforms that have no Rust kernel, and the sites that they flip or -1.

    A sample that holds anything but local states has the matrix elements NaN: no error can be raised there.
    """
    one, other = jnp.asarray(first, x.dtype), jnp.asarray(second, x.dtype)
    is_other = x == other
    # One gather, since the XLA of jaxlib 0.7 and 0.8 mixes up two of them from one constant.
    ends = is_other[..., edges]
    diagonal = (J * (2 * (ends[..., 0] == ends[..., 1]) - 1).sum(axis=-1)).astype(J.dtype)
    mels = jnp.where(np.arange(n_conn) == 0, diagonal[..., None], -h)
    if jnp.issubdtype(mels.dtype, jnp.inexact):
        valid = (is_other | (x == one)).all(axis=-1, keepdims=True)
        mels = jnp.where(valid, mels, jnp.nan)
    return mels, jnp.broadcast_to(jnp.arange(-1, n_conn - 1), mels.shape)


def _configurations(x: jax.Array, site: jax.Array, *_: jax.Array, first: float, second: float) -> jax.Array:
    one, other = jnp.asarray(first, x.dtype), jnp.asarray(second, x.dtype)
    return jnp.where((x == other) ^ (site[..., None] == np.arange(x.shape[-1])), other, one)


_ISING = Family(
    target="ferroket_ising",
    elements=_matrix_elements,
    configurations=_configurations,
    coefficients=(1, 2),
    filler=lambda *_, first, **__: first,
)


@functools.partial(jax.jit, static_argnames="states")
def _elements(operator: "Ising", x: jax.Array, *, states: bool) -> tuple[jax.Array, ...]:
    first, second = two_local_states(operator.hilbert, "Ising")
    check_samples(x, operator.hilbert.size, (first, second))
    dtype = operator.dtype
    h, J = (jnp.asarray(coefficient).astype(dtype) for coefficient in (operator.h, operator.J))
    return connected_elements(
        _ISING,
        x,
        operator.edges,
        h,
        J,
        n_conn=operator.max_conn_size,
        states=states,
        first=first,
        second=second,
    )


def _undirected(edges: Any) -> np.ndarray:
    """The edges in an order of their own, so that equal sets of edges are equal arrays."""
    ordered = np.sort(np.asarray(edges), axis=1)
    return ordered[np.lexsort(ordered.T)]


@jax.tree_util.register_pytree_node_class
class Ising(Accelerated, IsingJax):
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

    _definition = ()

    def __init__(self, hilbert: Any, graph: Any, h: Any, J: Any = 1.0, dtype: Any = None) -> None:
        two_local_states(hilbert, "Ising")
        edges = lattice_edges(graph, hilbert.size)
        if h is not None and not isinstance(h, StaticZero):
            check_coefficient("h", h, dtype)
        check_coefficient("J", J, dtype)
        super().__init__(hilbert, graph=edges, h=h, J=J, dtype=dtype)
        self._check_sectors()

    @classmethod
    def from_netket(cls, operator: IsingJax | IsingNumba) -> Self:
        """The operator that equals one of NetKet's, of the same dtype."""
        return cls(operator.hilbert, graph=operator.edges, h=operator.h, J=operator.J, dtype=operator.dtype)

    def _with(self, h: Any, J: Any) -> Self:
        """The operator with other coefficients, which may be traced."""
        if not isinstance(h, StaticZero):
            check_coefficient("h", h)
        check_coefficient("J", J)
        dtype = J.dtype if isinstance(h, StaticZero) else jnp.promote_types(h.dtype, J.dtype)
        new = self.tree_unflatten((self.hilbert,), (h.astype(dtype), J.astype(dtype), self.edges))
        new._check_sectors()
        return new

    def _check_sectors(self) -> None:
        """Raises the error for a field in a space that fixes a sum of local states."""
        conserved, _ = sectors(self.hilbert)
        if conserved and not isinstance(self._h, StaticZero):
            sector = conserved[0]
            step = 1 if sector.total < len(sector.sites) else -1
            before, after = list(self.hilbert.local_states)[::step]
            raise leaving(
                self.hilbert, sector, f"the local state {before:g} of a site", f"the local state {after:g}", step
            )

    @property
    def dtype(self) -> Any:
        """The dtype of the matrix elements."""
        return self._J.dtype

    @property
    def _form(self) -> Form:
        """The operator as non-branching terms, with its coefficients as they are, traced or not."""
        if self._form_ is None:
            form = restricted(self._compile(), self.hilbert)
            if is_traced(*jax.tree.leaves(form)):
                return form
            self._form_ = form
        return self._form_

    def _compile(self) -> Form:
        numbers: Any = jnp if is_traced(self._h, self._J, self._edges) else np
        n_edges, bits = len(self._edges), site_bits(self.hilbert.size)
        flips = bits[: self.max_conn_size - 1]
        nothing = np.zeros((n_edges + len(flips), bits.shape[1]), np.uint32)
        ends = numbers.asarray(bits)[numbers.asarray(self._edges)]
        coefficients = numbers.stack([numbers.asarray(self._J), -numbers.asarray(self._field)])
        return Terms(
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

    def _terms(self) -> TermList:
        return self.to_local_operator()._terms()

    def _trace(self) -> complex | None:
        return self.to_local_operator()._trace()

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
        if own_constraints(self.hilbert):
            return super().get_conn_padded(x)
        xp, mels = _elements(self, x, states=True)
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

    # Algebra

    @property
    def is_hermitian(self) -> bool:
        """Whether the operator is hermitian: whether its coefficients are real.

        Complex coefficients whose values aren't known, in a traced function, are taken not to be.
        """
        if not jnp.issubdtype(self.dtype, jnp.complexfloating):
            return True
        return not is_traced(self.h, self.J) and all(complex(c).imag == 0 for c in (self._field, self.J))

    @property
    def _field(self) -> Any:
        """The transverse field as an array, also if it is absent."""
        return jnp.zeros((), self.dtype) if isinstance(self.h, StaticZero) else self.h

    def _map(self, function: Callable[[Any], Any]) -> Self:
        return self._with(self.h if isinstance(self.h, StaticZero) else function(self.h), function(self.J))

    def conjugate(self, *, concrete: bool = True) -> "Ising":
        """The operator with the complex conjugate matrix elements."""
        return self._map(jnp.conj) if jnp.issubdtype(self.dtype, jnp.complexfloating) else self

    def transpose(self, *, concrete: bool = True) -> "Ising":
        """The operator itself: its matrix is symmetric."""
        return self

    @property
    def H(self) -> "Ising":
        """The hermitian conjugate."""
        return self.conjugate()

    def _combine(self, other: Any, sign: int) -> Any:
        """``self + sign * other`` as an Ising, or NotImplemented if it isn't one."""
        if type(other) not in (Ising, IsingJax, IsingNumba):
            return NotImplemented
        if self.hilbert != other.hilbert:
            raise ValueError(
                f"operators on {self.hilbert!r} and on {other.hilbert!r} can't be added: they must act on one space"
            )
        # The same array needs no look, and may be traced.
        if self.edges is not other.edges and not np.array_equal(_undirected(self.edges), _undirected(other.edges)):
            return NotImplemented
        if isinstance(self.h, StaticZero) and isinstance(other.h, StaticZero):
            h: Any = self.h
        elif isinstance(other.h, StaticZero):
            h = self.h
        elif isinstance(self.h, StaticZero):
            h = sign * jnp.asarray(other.h)
        else:
            h = self.h + sign * jnp.asarray(other.h)
        return self._with(h, self.J + sign * jnp.asarray(other.J))

    def __add__(self, other: Any) -> Any:
        res = self._combine(other, 1)
        return super().__add__(other) if res is NotImplemented else res

    def __sub__(self, other: Any) -> Any:
        res = self._combine(other, -1)
        return super().__sub__(other) if res is NotImplemented else res

    def __iadd__(self, other: Any) -> Any:
        return self + other

    def __isub__(self, other: Any) -> Any:
        return self - other

    def __mul__(self, other: Any) -> Any:
        if not is_scalar(other):
            return NotImplemented
        check_coefficient("the factor", other)
        return self._map(lambda coefficient: coefficient * other)

    __rmul__ = __mul__
    __imul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if not is_scalar(other):
            return NotImplemented
        check_coefficient("the divisor", other)
        if not is_traced(other) and other == 0:
            raise ZeroDivisionError("an operator can't be divided by zero")
        return self._map(lambda coefficient: coefficient / other)

    __itruediv__ = __truediv__

    def __neg__(self) -> Self:
        return self._map(lambda coefficient: -coefficient)

    def __pos__(self) -> Self:
        return self

    # Identity

    def _key(self) -> Any:
        """What makes two operators equal; None if that isn't known, for then an operator equals only itself."""
        leaves = jax.tree.leaves((self._h, self._J, self._edges))
        if not all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves) or is_traced(*leaves):
            return None
        # One more comparison for a field that is absent: it is another operator, with fewer connected elements.
        return (
            self.hilbert,
            len(leaves),
            *((leaf.dtype.name, leaf.shape, np.asarray(leaf).tobytes()) for leaf in leaves),
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        key = self._key()
        return key is not None and key == other._key()

    def __hash__(self) -> int:
        key = self._key()
        return object.__hash__(self) if key is None else hash(key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(J={self._J}, h={self._h}; dim={self.hilbert.size})"

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The numbers as leaves, so that new coefficients don't recompile anything."""
        return (self._h, self._J, self._edges), (self.hilbert,)

    @classmethod
    def tree_unflatten(cls, metadata: tuple[Any, ...], data: tuple[Any, ...]) -> Self:
        """The operator with these leaves, whatever they are: JAX also puts placeholders there."""
        operator = object.__new__(cls)
        (operator._hilbert,) = metadata
        operator._h, operator._J, operator._edges = data
        return operator
