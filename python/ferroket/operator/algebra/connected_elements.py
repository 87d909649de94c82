"""Connected elements of accelerated operators."""

import math
from typing import Any

import jax
import numpy as np
from netket.errors import JaxOperatorGetConnInJitError

from ferroket.operator.algebra.base import Compiled
from ferroket.operator.validation import is_traced


class ConnectedElements(Compiled):
    """Connected elements: padded, one after the other, of one sample, in a given room, and their number."""

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
