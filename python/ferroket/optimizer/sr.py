"""``SR``, for the driver ``VMC``."""

from collections.abc import Callable
from typing import Any

import jax
import netket as nk

from ferroket.natural_gradient.qgt import quantum_geometric_tensor


class SR(nk.optimizer.SR, mutable=True):  # type: ignore[call-arg]
    """:class:`netket.optimizer.SR` whose quantum geometric tensor is :class:`ferroket.optimizer.qgt.QGTFactors`."""

    def __init__(
        self,
        qgt: Callable[..., Any] = quantum_geometric_tensor,
        solver: Callable[..., Any] = jax.scipy.sparse.linalg.cg,
        **settings: Any,
    ) -> None:
        """See :class:`netket.optimizer.SR`.

        Args:
            qgt: What makes the tensor of a state.
            solver: Of the linear system.
            **settings: NetKet's other arguments: ``diag_shift``, ``solver_restart``, ``holomorphic``.
        """
        super().__init__(qgt, solver, **settings)
