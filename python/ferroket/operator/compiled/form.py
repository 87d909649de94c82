"""What the compiled forms have in common: connected elements, padded, counted and compact."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi import Attribute, Family, compact_elements, connected_elements, count_elements
from ferroket.operator.compiled.local_states import LocalStates
from ferroket.operator.compiled.samples import check_samples


class Form:
    """An operator as arrays that the kernels read; a frozen pytree.

    All arrays but the coefficients are NumPy's: they belong to no device and no mesh, and are there while JAX traces.
    The coefficients are the leaf ``values``: the matrix elements are linear in them, and new ones recompile nothing.
    Which elements there are, and in which order, depends on the other arrays alone.
    """

    family: ClassVar[Family]
    sites: LocalStates
    values: Any
    diagonal: bool
    max_conn_size: int

    @property
    def tables(self) -> tuple[Any, ...]:
        """The arrays in the order in which the kernels take them."""
        raise NotImplementedError

    @property
    def attributes(self) -> dict[str, Attribute]:
        """The static numbers that the kernels take."""
        sites = self.sites
        return {"starts": sites.starts, "steps": sites.steps, "sizes": sites.sizes, "diagonal": self.diagonal}

    @property
    def n_sites(self) -> int:
        """N, the number of sites."""
        return self.sites.n_sites

    @property
    def dtype(self) -> Any:
        """The dtype of the matrix elements."""
        return self.values.dtype

    def replace_values(self, values: Any) -> Self:
        """The form with other coefficients, of the same shape; they may be traced."""
        if np.shape(values) != np.shape(self.values):
            raise ValueError(
                f"the coefficients have shape {np.shape(values)}, but this form has {np.size(self.values)} of them: "
                f"give an array of shape {np.shape(self.values)}"
            )
        return dataclasses.replace(self, values=values)  # type: ignore[type-var]

    def with_weights(self) -> Self:
        """With coefficients that amplitudes can be multiplied with: real or complex numbers of 32 or 64 bits."""
        values = jnp.asarray(self.values)
        if not jnp.issubdtype(values.dtype, jnp.inexact):
            return self.replace_values(values.astype(float))
        is_half = values.dtype.itemsize < np.dtype(np.float32).itemsize
        return self.replace_values(values.astype(np.float32)) if is_half else self

    def mels(self, x: Any) -> jax.Array:
        """The matrix elements ⟨x|O|x'⟩ of samples ``(..., N)``, of shape ``(..., K)``: see :meth:`padded`."""
        return _padded(self, x, states=False)[0]

    def on_diagonal(self, x: Any) -> jax.Array:
        """The matrix elements ⟨x|O|x⟩ of samples ``(..., N)``, of shape ``(...)``. Errors as :meth:`padded`."""
        if not self.diagonal:
            return jnp.zeros_like(jnp.asarray(x)[..., 0], self.dtype)
        return _diagonal(self, x)[..., 0]

    def padded(self, x: Any) -> tuple[jax.Array, jax.Array]:
        """The connected elements of samples ``(..., N)``.

        Returns:
            The connected configurations, ``(..., K, N)``, and their matrix elements ⟨x|O|x'⟩, ``(..., K)``: the
            diagonal first if there is one, then all others that the structure of the operator connects, and then
            the sample itself with the matrix element 0.

        Raises:
            ValueError: If the last dimension isn't N, or the dtype can't hold the local states.
            TypeError: If the samples aren't numbers.
            jax.errors.JaxRuntimeError, ValueError: If a sample holds something else than local states, or has more
                elements than K. Off CPUs its matrix elements are NaN instead.
        """
        xp, mels = _padded(self, x, states=True)
        return xp, mels

    def count(self, x: Any, off_diagonal_only: bool = False) -> jax.Array:
        """How many matrix elements aren't zero: int32 ``(...)`` for samples ``(..., N)``. Errors as :meth:`padded`."""
        return _count(self, x, off_diagonal_only=off_diagonal_only)

    def compact(
        self, x: Any, cursor: Any, capacity: int, off_diagonal_only: bool = False
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The connected elements whose matrix elements aren't zero, sample by sample.

        Args:
            x: Samples of shape ``(Ns, N)``; where they are sharded, call this inside of :func:`jax.shard_map`.
            cursor: Where to begin, ``(0, 0)`` or what the call before has returned.
            capacity: C, how many elements are wanted.
            off_diagonal_only: Whether to leave out the diagonal.

        Returns:
            ``(xp, mels, sample, cursor)`` of shapes ``(C, N)``, ``(C,)``, ``(C,)`` and ``(2,)``. Rows that aren't used
            have the sample Ns and the matrix element 0. There are no more elements if and only if ``cursor[0]`` is Ns.

        Raises:
            ValueError: If ``x`` hasn't two dimensions or is sharded, and as :meth:`padded`.
        """
        xp, mels, sample, following = _compact(self, x, cursor, capacity=capacity, off_diagonal_only=off_diagonal_only)
        return xp, mels, sample, following

    def flattened(self, x: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The connected elements whose matrix elements aren't zero, of all samples ``(..., N)``, one after the other.

        Returns:
            The connected configurations, ``(n_elements, N)``, their matrix elements, ``(n_elements,)``, and where the
            elements of each sample end, an integer array ``(Ns,)`` over the samples in order.
        """
        x = np.asarray(x)  # the elements follow each other in one array: they are for one device
        check_samples(x, self.n_sites, self.sites.extremes)
        rows = x.reshape(-1, self.n_sites)
        capacity = self._enough(rows)
        pieces = [(np.empty((0, self.n_sites), jax.dtypes.canonicalize_dtype(x.dtype)), np.empty(0, self.dtype))]
        sections, cursor = np.zeros(len(rows), np.int64), (0, 0)
        while cursor[0] < len(rows):
            xp, mels, sample, following = map(np.asarray, self.compact(rows, cursor, capacity))
            ends = np.searchsorted(sample, np.arange(1, len(rows) + 1, dtype=np.int32))
            # Views, since slices of JAX would be a program for each length.
            pieces.append((xp[: ends[-1]], mels[: ends[-1]]))
            sections += ends
            cursor = (int(following[0]), int(following[1]))
        if len(pieces) <= 2:  # noqa: PLR2004
            return (*pieces[-1], sections)
        return np.concatenate([xp for xp, _ in pieces]), np.concatenate([mels for _, mels in pieces]), sections

    def _enough(self, rows: np.ndarray) -> int:
        """Room for the elements of all samples, most likely, without much more."""
        slack = _SLACK // (self.n_sites * rows.dtype.itemsize + self.dtype.itemsize + _INT32)
        at_most = len(rows) * self.max_conn_size
        if at_most <= slack // 8:
            return max(at_most, 1)  # to count takes longer than to fill the room
        stride = -(-len(rows) // _COUNTED)
        enough = min(int(1.05 * len(rows) * np.asarray(self.count(rows[::stride])).mean()), at_most)
        if 0.05 * enough > slack:
            enough = int(np.asarray(self.count(rows)).sum(dtype=np.int64))
        # A multiple of a round number: so there are few programs to compile.
        step = max(min(1 << max(enough.bit_length() - 4, 0), slack), 1)
        return max(-(-enough // step) * step, 1)


# Bytes of memory that may be left unused.
_SLACK = 4 << 20
# So many samples are counted, to estimate the elements of all.
_COUNTED = 32
_INT32 = 4


def _elements(function: Callable[..., Any], form: Form, x: Any, **params: Any) -> Any:
    x = jnp.asarray(x)
    check_samples(x, form.n_sites, form.sites.extremes)
    tables = (jnp.asarray(table) for table in form.tables)
    return function(form.family, x, *tables, n_conn=form.max_conn_size, **params, **form.attributes)


@functools.partial(jax.jit, static_argnames="states")
def _padded(form: Form, x: Any, *, states: bool) -> tuple[jax.Array, ...]:
    return _elements(connected_elements, form, x, states=states)


@jax.jit
def _diagonal(form: Form, x: Any) -> jax.Array:
    (mels,) = _elements(connected_elements, form, x, states=False, diagonal_only=True)
    return mels


@functools.partial(jax.jit, static_argnames="off_diagonal_only")
def _count(form: Form, x: Any, *, off_diagonal_only: bool) -> jax.Array:
    return _elements(count_elements, form, x, off_diagonal_only=off_diagonal_only)


@functools.partial(jax.jit, static_argnames=("capacity", "off_diagonal_only"))
def _compact(form: Form, x: Any, cursor: Any, *, capacity: int, off_diagonal_only: bool) -> tuple[jax.Array, ...]:
    if np.ndim(x) != 2:  # noqa: PLR2004
        raise ValueError(
            f"the samples have shape {np.shape(x)}, but the compact form takes a list of them, of shape "
            f"(Ns, {form.n_sites}): reshape them"
        )
    cursor = jnp.stack([jnp.asarray(number, jnp.int32) for number in cursor])
    return _elements(compact_elements, form, x, cursor=cursor, capacity=capacity, off_diagonal_only=off_diagonal_only)


def coefficients(values: Any) -> Any:
    """Coefficients as they are if JAX holds them, and else as an array of a dtype that JAX has."""
    if isinstance(values, jax.Array):
        return values
    values = np.asarray(values)
    return values.astype(jax.dtypes.canonicalize_dtype(values.dtype))
