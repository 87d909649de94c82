"""The matrices of accelerated operators, for Hilbert spaces that are small enough."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from netket.utils.optional_deps import import_optional_dependency

from ferroket.operator.algebra.base import Compiled
from ferroket.operator.algebra.numbering import states_to_numbers
from ferroket.operator.compiled import Terms
from ferroket.operator.validation import is_traced


class FullMatrices(Compiled):
    """The whole matrix, sparse, dense or of QuTiP, and its trace."""

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
