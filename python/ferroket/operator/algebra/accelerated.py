"""What all accelerated operators have in common: NetKet's contract, on top of a compiled form."""

import math
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import scipy.sparse
from netket.errors import JaxOperatorGetConnInJitError
from netket.operator import DiscreteJaxOperator
from netket.utils.numbers import is_scalar
from netket.utils.optional_deps import import_optional_dependency

from ferroket.operator.algebra.numbering import states_to_numbers
from ferroket.operator.algebra.sectors import own_constraints, restricted
from ferroket.operator.algebra.term_list import TermList
from ferroket.operator.algebra.validation import check_coefficient, is_traced
from ferroket.operator.compiled import Form, Terms


class Accelerated(DiscreteJaxOperator):
    """Connected elements from a compiled form, which is made from the operator's definition when it is first needed.

    An operator is a pytree whose leaves are the arrays of its form, the coefficients among them. Inside of
    :func:`jax.jit` it has only these: what needs the definition (its terms, sums, conversions) is an error there.

    A family inherits from this class first and from NetKet's class second, and gives :meth:`_compile`,
    :meth:`_find_hermitian` and, where its sites have two local states, :meth:`_terms`.
    """

    _family: ClassVar[Any] = ()
    """The class of NetKet whose instances this family's arithmetic takes; none, if it is that of general terms."""

    _definition: ClassVar[tuple[str, ...]]
    """The attributes that only a definition has."""

    _form_: Form | None = None
    _hermitian: bool | None = None
    _key_: Any = None
    _is_compiled_only: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own_constraints(self.hilbert)  # raises the error if there is one that can't be kept

    # What a family gives

    def _compile(self) -> Form:
        """The compiled form."""
        raise NotImplementedError

    def _find_hermitian(self) -> bool:
        """Whether the operator equals its adjoint."""
        raise NotImplementedError

    def _terms(self) -> TermList | None:
        """The operator as a sum of few non-branching terms, if all sites have two local states; None if it isn't."""
        return None

    # The form

    @property
    def _form(self) -> Form:
        if self._form_ is None:
            self._form_ = restricted(self._compile(), self.hilbert)
        return self._form_

    def _setup(self, force: bool = False) -> None:
        """Compiles the operator; NetKet's wrappers call this outside of transformed functions."""
        del force  # nothing to gain: what changes the definition forgets the form
        _ = self._form

    def _reset_caches(self) -> None:
        """Forgets what has been derived from the definition, since that has changed."""
        reset = getattr(super(), "_reset_caches", None)
        if reset is not None:
            reset()
        self._form_ = self._hermitian = self._key_ = None

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._definition and self.__dict__.get("_is_compiled_only"):
            raise RuntimeError(
                f"this {type(self).__name__} has been through a JAX transformation, such as jax.jit, and is only its "
                f"compiled arrays there: {name.lstrip('_')!r} isn't known. Do sums, products, conversions and the like "
                "outside of the transformed function"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # Connected elements

    @property
    def dtype(self) -> Any:
        """The dtype of the matrix elements."""
        return self._dtype

    @property
    def max_conn_size(self) -> int:
        """K, the largest number of connected elements that a sample has, as far as is known without looking at all."""
        return 0 if self._is_empty else self._form.max_conn_size

    @property
    def _is_empty(self) -> bool:
        """Whether there are no terms at all, for which a form has a diagonal of zeros."""
        return self._form.values.size == 0

    def get_conn_padded(self, x: Any) -> tuple[jax.Array, jax.Array]:
        """The connected elements of samples: the diagonal first, if there is one, then the others.

        Args:
            x: Samples of shape ``(..., N)``, of any dtype that holds the local states.

        Returns:
            The connected configurations, of shape ``(..., K, N)`` and the dtype of ``x``, and their matrix elements
            ⟨x|O|x'⟩, of shape ``(..., K)`` and the dtype of the operator. Where a sample has fewer than K, the
            sample itself and the matrix element 0 follow; these also stand in the places of elements that a constraint
            of the user's own forbids.

        Raises:
            ValueError: If the last dimension of ``x`` isn't N, if its dtype can't hold the local states, or if the
                operator leads out of its Hilbert space.
            jax.errors.JaxRuntimeError, ValueError: If a sample holds something else than local states; it names sample,
                site and value. JAX raises it when the result is used. On other platforms than CPUs the matrix
                elements of that sample are NaN instead.
        """
        xp, mels = self._form.padded(x)
        return (xp[..., :0, :], mels[..., :0]) if self._is_empty else (xp, mels)

    def get_conn_flattened(self, x: Any, sections: Any, pad: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The connected elements of samples, one after the other, without those that are zero.

        Args:
            x: Samples of shape ``(Ns, N)``.
            sections: An integer array of shape ``(Ns,)``; filled with where the elements of each sample end.
            pad: Whether each sample has as many as :attr:`max_conn_size`, zeros among them.

        Returns:
            The connected configurations, ``(n_elements, N)``, and their matrix elements, ``(n_elements,)``.

        Raises:
            netket.errors.JaxOperatorGetConnInJitError: In a traced function: the number of elements depends on the
                samples.
        """
        if is_traced(x, *jax.tree.leaves(self._form)):
            raise JaxOperatorGetConnInJitError(self)
        if pad:
            xp, mels = (np.asarray(array) for array in self.get_conn_padded(x))
            sections[:] = np.arange(1, math.prod(mels.shape[:-1]) + 1) * mels.shape[-1]
            return xp.reshape(-1, xp.shape[-1]), mels.reshape(-1)
        xp, mels, ends = self._form.flattened(x)
        sections[:] = ends
        return xp, mels

    def get_conn(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        """The connected elements of one sample that aren't zero.

        Args:
            x: A sample of shape ``(N,)``.

        Returns:
            The connected configurations, ``(n_elements, N)``, and their matrix elements, ``(n_elements,)``.

        Raises:
            ValueError: If it is more than one sample.
        """
        x = np.asarray(x)
        if x.ndim != 1:
            raise ValueError(
                f"get_conn takes one sample, of shape ({self.hilbert.size},), and not {x.shape}: take "
                "get_conn_flattened or get_conn_padded for several"
            )
        return self.get_conn_flattened(x[None], np.empty(1, np.int64))

    def get_conn_compact(
        self, x: Any, capacity: int, cursor: Any = (0, 0), off_diagonal_only: bool = False
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """As many connected elements as there is room for, without those that are zero, also under :func:`jax.jit`.

        Called again with the cursor that it returns, it goes on where it has stopped.

        Args:
            x: Samples of shape ``(Ns, N)``; where they are sharded, call this inside of :func:`jax.shard_map`.
            capacity: C, the room for elements, static.
            cursor: Where to begin: two integers, the sample and the element among those of the sample.
            off_diagonal_only: Whether to leave out the diagonal.

        Returns:
            The arrays ``xp, mels, sample, cursor``, which are the connected configurations, ``(C, N)``, their matrix
            elements, ``(C,)``, the number of the sample of each, int32 ``(C,)``, and where to go on, int32 ``(2,)``.
            Rows that aren't used have the sample Ns and the matrix element 0. All elements are out if and only if
            ``cursor[0]`` is Ns; where a constraint of the user's own leaves some out, rows may be unused before that.

        Raises:
            ValueError: If ``x`` hasn't two dimensions or is sharded, and as :meth:`get_conn_padded`.
        """
        return self._form.compact(x, cursor, capacity, off_diagonal_only)

    def n_conn(self, x: Any, out: None = None) -> jax.Array:
        """How many matrix elements of each sample aren't zero.

        Args:
            x: Samples of shape ``(..., N)``.
            out: Not supported, as in all of NetKet's JAX operators.

        Returns:
            An int32 array of shape ``(...)``.
        """
        if out is not None:
            raise NotImplementedError("operators in JAX can't write into `out`: take the returned array")
        return self._form.count(x)

    # Matrices

    def to_sparse(self, jax_: bool = False) -> Any:
        """The matrix of the operator, of as many rows as the Hilbert space has states.

        Args:
            jax_: Whether to return a BCSR of :mod:`jax.experimental.sparse` instead of a SciPy CSR matrix.
        """
        if jax_:
            return super().to_sparse(jax_=True)
        xp, mels, ends = self._form.flattened(self.hilbert.all_states())
        columns = states_to_numbers(self.hilbert, xp)
        n_states = self.hilbert.n_states
        # A copy, since what JAX gives can't be written to.
        matrix = scipy.sparse.csr_matrix(
            (np.array(mels), columns, np.concatenate([[0], ends])), shape=(n_states, n_states)
        )
        if not isinstance(self._form, Terms):
            matrix.sum_duplicates()  # several matrices may connect the same configurations
        return matrix

    def to_dense(self) -> jax.Array:
        """The dense matrix of the operator."""
        if not is_traced(*jax.tree.leaves(self._form)):
            return jnp.asarray(self.to_sparse().toarray())
        x = self.hilbert.all_states()
        xp, mels = self.get_conn_padded(x)
        columns = self.hilbert.states_to_numbers(xp)
        return jnp.zeros((len(x), len(x)), mels.dtype).at[jnp.arange(len(x))[:, None], columns].add(mels)

    def to_qobj(self) -> Any:
        """The matrix as a :class:`qutip.Qobj`, of the sites' dimensions if all their states are allowed.

        In a Hilbert space with constraints it is one factor of as many states as the space has, since QuTiP knows of
        no constraints; NetKet raises there.
        """
        qutip = import_optional_dependency("qutip", descr="to_qobj")
        hilbert = self.hilbert
        shape = list(hilbert.shape) if math.prod(map(int, hilbert.shape)) == hilbert.n_states else [hilbert.n_states]
        return qutip.Qobj(self.to_sparse(), dims=[shape, shape])

    def trace(self) -> complex | float:
        """The sum of the diagonal elements.

        Raises:
            RuntimeError: If the Hilbert space has constraints of its own and too many states to go through them.
        """
        total = self._trace()
        if total is None:
            if not self._form.diagonal:
                return 0.0
            total = complex(np.asarray(self._form.mels(self.hilbert.all_states())[..., 0]).sum())
        return total if jnp.issubdtype(self.dtype, jnp.complexfloating) else total.real

    def _trace(self) -> complex | None:
        """The trace from the definition, or None if it takes all states."""
        return None

    # Algebra

    @property
    def is_hermitian(self) -> bool:
        """Whether the operator is hermitian."""
        if self._hermitian is None:
            self._hermitian = bool(self._find_hermitian())
        return self._hermitian

    @property
    def H(self) -> Any:
        """The hermitian conjugate, as an operator of its own and not as a wrapper around this one."""
        return self if self.is_hermitian else self.transpose().conjugate()

    def collect(self) -> Self:
        """The operator itself: there is no faster one."""
        return self

    def _adopt(self, other: Any) -> Any:
        """Another operator that can be added or multiplied to this one, accelerated if that is possible."""
        from ferroket.operator.algebra.composites import accelerate

        if self.hilbert != other.hilbert:
            raise ValueError(
                f"operators on {self.hilbert!r} and on {other.hilbert!r} can't be combined: they must act on one space"
            )
        if isinstance(other, self._family):
            return other
        try:
            return accelerate(other)
        except TypeError:
            return other

    def __add__(self, other: Any) -> Any:
        from ferroket.operator.algebra.combining import add

        if is_scalar(other):
            check_coefficient("the constant", other)
            return super().__add__(other)
        if not isinstance(other, nk.operator.AbstractOperator):
            return NotImplemented
        other = self._adopt(other)
        return super().__add__(other) if isinstance(other, self._family) else add(self, other)

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __sub__(self, other: Any) -> Any:
        return self + (-other) if _combines(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return -self + other if _combines(other) else NotImplemented

    def __iadd__(self, other: Any) -> Any:
        if is_scalar(other):
            check_coefficient("the constant", other)
            return super().__iadd__(other)
        if isinstance(other, self._family) and self.hilbert == other.hilbert:
            return super().__iadd__(other)
        return self + other

    def __isub__(self, other: Any) -> Any:
        if not _combines(other):
            return NotImplemented
        self += -other
        return self

    def _op__matmul__(self, other: Any) -> Any:
        from ferroket.operator.algebra.combining import multiply

        other = self._adopt(other)
        return super()._op__matmul__(other) if isinstance(other, self._family) else multiply(self, other)

    def _op__rmatmul__(self, other: Any) -> Any:
        from ferroket.operator.algebra.combining import multiply

        other = self._adopt(other)
        if isinstance(other, self._family):
            return type(self)._op__matmul__(self._own(other), self)
        return multiply(other, self)

    def _own(self, other: Any) -> Any:
        """An operator of NetKet's of this family as one of ours."""
        from ferroket.operator.algebra.composites import accelerate

        return accelerate(other)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, nk.operator.AbstractOperator):
            return self._op__matmul__(other)
        return super().__matmul__(other)

    def __rmatmul__(self, other: Any) -> Any:
        if isinstance(other, nk.operator.AbstractOperator):
            return self._op__rmatmul__(other)
        return super().__rmatmul__(other)

    def _scaled(self, factor: Any) -> Any:
        """A multiple of the operator by its form alone, where the definition isn't there or the factor is traced."""
        if not is_scalar(factor) or not (self._is_compiled_only or is_traced(factor)):
            return None
        values = jnp.asarray(self._form.values) * factor
        known = self.is_hermitian and not jnp.issubdtype(values.dtype, jnp.complexfloating)
        hermitian = known or (self.is_hermitian and not jnp.issubdtype(jnp.result_type(factor), jnp.complexfloating))
        metadata = (self.hilbert, jnp.dtype(values.dtype), hermitian)
        return type(self).tree_unflatten(metadata, (self._form.replace_values(values),))

    def __mul__(self, other: Any) -> Any:
        scaled = self._scaled(other)
        if scaled is not None:
            return scaled
        if is_scalar(other):
            check_coefficient("the factor", other)
        elif not isinstance(other, nk.operator.AbstractOperator):
            return NotImplemented
        return super().__mul__(other)

    def __rmul__(self, other: Any) -> Any:
        return self * other if is_scalar(other) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        if not is_scalar(other):
            return NotImplemented
        check_coefficient("the divisor", other)
        if not is_traced(other) and other == 0:
            raise ZeroDivisionError("an operator can't be divided by zero")
        return self * (1 / other)

    def __neg__(self) -> Any:
        return self * np.array(-1, self.dtype)

    def __pos__(self) -> Self:
        return self

    # Conversions

    def to_jax_operator(self) -> Self:
        """The operator itself, which is one in JAX."""
        return self

    def to_local_operator(self) -> Any:
        """The operator as a :class:`ferroket.operator.LocalOperator`.

        Raises:
            ValueError: If a term acts on more sites than local matrices are good for.
        """
        from ferroket.operator.algebra.combining import to_local_operator

        return to_local_operator(self)

    def to_pauli_strings(self) -> Any:
        """The operator as a :class:`ferroket.operator.PauliStrings`.

        Raises:
            TypeError: If its sites don't have two local states.
        """
        from ferroket.operator.algebra.combining import to_pauli_strings

        return to_pauli_strings(self)

    # Identity

    def _key(self) -> Any:
        """What makes two operators equal; None if that isn't known, for then an operator equals only itself."""
        if self._key_ is None:
            leaves, structure = jax.tree.flatten(self._form)
            if not all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves) or is_traced(*leaves):
                return None
            arrays = tuple((leaf.dtype.name, leaf.shape, np.asarray(leaf).tobytes()) for leaf in leaves)
            self._key_ = (self.hilbert, structure, arrays)
        return self._key_

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        key = self._key()
        return key is not None and bool(key == other._key())

    def __hash__(self) -> int:
        key = self._key()
        return object.__hash__(self) if key is None else hash(key)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if not self._is_compiled_only:
            # It can be compiled again, anywhere.
            for name in ("_form_", "_key_"):
                state.pop(name, None)
        return state

    def __repr__(self) -> str:
        if self._is_compiled_only:
            return f"{type(self).__name__}(hilbert={self.hilbert}, dtype={self.dtype}, compiled)"
        return super().__repr__()

    # Pytree

    def _metadata(self) -> tuple[Any, ...]:
        """What is static in a traced function."""
        return (self.hilbert, jnp.dtype(self.dtype), self.is_hermitian)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arrays of the form as leaves, so that new coefficients don't recompile anything."""
        return (self._form,), self._metadata()

    @classmethod
    def tree_unflatten(cls, metadata: tuple[Any, ...], data: tuple[Any, ...]) -> Self:
        """The operator with these leaves, whatever they are: JAX also puts placeholders there."""
        operator = object.__new__(cls)
        operator._is_compiled_only = True
        operator._hilbert, operator._dtype, operator._hermitian = metadata
        (operator._form_,) = data
        return operator


def _combines(other: Any) -> bool:
    return is_scalar(other) or isinstance(other, nk.operator.AbstractOperator)
